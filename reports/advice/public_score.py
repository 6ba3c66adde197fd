"""Score prices against what `public_study.py` measured: ``public_score.py [TRACES] [PAIRS.jsonl]``.

PAIRS is the study's ``pairs.jsonl`` (by default ``public/pairs.jsonl``), whose rows hold what was said. With TRACES, a
folder of ``<model>.json.gz``, each row gains what profkit says now, from the trace of the first side alone, and
``scored.jsonl`` is written beside PAIRS. ``--known-step`` also gives it the step's time without a profiler.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FLAGS = {
    "tf32": "tf32", "bf16": "bf16", "sdpa": "fused-attention", "foreach": "foreach-optimizer", "fused": "fused-optimizer",
    "compile": "compile", "channels_last": "channels-last", "no_sync": "no-sync",
    "no_unused": "no-unused-search", "buckets": "larger-buckets",
}  # fmt: skip
"""The registry's names of the study's changes."""
CHANGED = 1.2
"""A pair counts as changed from here; below 1.1 a promise of over 10 % is false."""


def said(traces: list[Path], row: dict[str, Any], known: bool) -> dict[str, Any]:
    """What profkit predicts for a pair: low, likely, high and the limit; no gain where it refuses."""
    command = [sys.executable, "-m", "profkit", "whatif", *map(str, traces), "--json"]
    command += [f"--{FLAGS[part]}" for part in row["change"].split("+")]
    command += ["--plain-step", f"{row['plain_ms']}ms"] if known else []
    answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    if not answer["changes"]:
        return {"low": 1.0, "likely": 1.0, "high": 1.0, "limit": None}
    last = answer["changes"][-1]
    return {**{k: round(last["speedup"][k], 3) for k in ("low", "likely", "high")}, "limit": last["limit"]}


def table(rows: list[dict[str, Any]]) -> None:
    """Every pair, then the scores."""
    print("| model | change | measured | predicted | low to high | error |\n|---|---|---|---|---|---|")
    for row in rows:
        told, error = row["said"], row["said"]["likely"] / row["speedup"] - 1
        inside = told["low"] <= row["speedup"] <= told["high"]
        print(
            f"| {row['model']} | {row['change']} | {row['speedup']:.2f} | {told['likely']:.2f} | "
            f"{told['low']:.2f} to {told['high']:.2f}{'' if inside else ' (outside)'} | {error:+.0%} |"
        )
    big = [row for row in rows if row["speedup"] >= CHANGED]
    errors = [abs(math.log(row["said"]["likely"] / row["speedup"])) for row in big]
    near = sum(abs(row["said"]["likely"] / row["speedup"] - 1) <= 0.25 for row in big)
    inside = sum(row["said"]["low"] <= row["speedup"] <= row["said"]["high"] for row in big)
    false = sum(row["speedup"] < 1.1 < row["said"]["likely"] for row in rows)
    print(
        f"\nof {len(big)} changed: within 25 % {near}, inside {inside}, mean error "
        f"{math.exp(sum(errors) / len(errors)) - 1:.0%}; {false} false promises among the other {len(rows) - len(big)}"
    )


def main() -> None:
    arguments = [Path(each) for each in sys.argv[1:] if not each.startswith("--")]
    folder = next((each for each in arguments if each.is_dir()), None)
    pairs = next((each for each in arguments if each.is_file()), HERE / "public" / "pairs.jsonl")
    rows = [row for line in pairs.read_text().splitlines() if "error" not in (row := json.loads(line))]
    if folder:
        known = "--known-step" in sys.argv
        recorded = {row["model"]: sorted(folder.glob(f"{row['model']}.*json.gz")) for row in rows}
        rows = [row for row in rows if recorded[row["model"]]]
        rows = [{**row, "said": said(recorded[row["model"]], row, known)} for row in rows]
        pairs.with_name("scored.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table([row for row in rows if "said" in row])


if __name__ == "__main__":
    main()
