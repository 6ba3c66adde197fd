"""What came of the study: ``python reports/trial/score.py OUT`` prints a table in Markdown, and the three demands.

An expert's speed-up is the best of the ways in `expert`; a trial's is that of the later measurement, and 1 where nothing
was kept. A kept change loses time where every later time with it is above every bare one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ENOUGH = 0.8
MOST_OVERHEAD = 1.01


def times(found: dict[str, Any]) -> dict[str, list[float]]:
    """Step times in ms by way."""
    ways: dict[str, list[float]] = {}
    for run in found["runs"]:
        if "step_ms" in run:
            ways.setdefault(run["way"], []).append(run["step_ms"])
    return ways


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def row(out: Path, name: str) -> dict[str, Any]:
    """What is known of a program."""
    trial = json.loads((out / f"{name}.trial.json").read_text())["try"]
    found: dict[str, Any] = {"name": name, "promised": None, "changes": "", "duration_s": None}
    if trial is not None:
        final = trial["final"]
        found |= {"changes": " + ".join(final["changes"]), "duration_s": trial["duration_s"]}
        found["promised"] = final["speedup"]
    later = out / f"{name}.later.json"
    if later.exists():
        ways = times(json.loads(later.read_text()))
        bare = ways["bare"]
        kept = ways.get("kept", bare)
        experts = {way: mean(bare) / mean(each) for way, each in ways.items() if way.startswith("expert")}
        found |= {
            "bare_ms": mean(bare),
            "kept": mean(bare) / mean(kept),
            "expert": max(experts.values(), default=1.0),
            "loses": "kept" in ways and min(kept) > max(bare),
        }
    overhead = out / f"{name}.overhead.json"
    if overhead.exists():
        found["overhead"] = json.loads(overhead.read_text())["ratio"]
    return found


def ratio(interval: dict[str, float] | None) -> str:
    return (
        ""
        if interval is None
        else f"{interval['likely']:.2f} ({interval['low']:.2f} to {interval['high']:.2f})"
    )


def main() -> None:
    """Print the table."""
    out = Path(sys.argv[1])
    rows = [row(out, path.name.split(".")[0]) for path in sorted(out.glob("*.trial.json"))]
    print("| program | bare step, ms | kept | by the trial | later | expert | of the expert's | overhead |")
    print("|---|---|---|---|---|---|---|---|")
    for each in rows:
        share = gain_share(each)
        cells = [
            each["name"],
            f"{each['bare_ms']:.2f}" if "bare_ms" in each else "",
            each["changes"] or "nothing",
            ratio(each["promised"]),
            f"{each['kept']:.2f}" if "kept" in each else "",
            f"{each['expert']:.2f}" if "expert" in each else "",
            "" if share is None else f"{share:.0%}",
            "{:.3f} ({:.3f} to {:.3f})".format(each["overhead"][1], each["overhead"][0], each["overhead"][2])
            if "overhead" in each
            else "",
        ]
        print(f"| {' | '.join(cells)} |")
    judged = [each for each in rows if "expert" in each]
    good = sum(each["kept"] >= ENOUGH * each["expert"] for each in judged)
    print(f"\n{good} of {len(judged)} reach {ENOUGH:.0%} of the expert's speed-up.")
    print(f"{sum(each['loses'] for each in judged)} lose time by what was kept.")
    heard = [each["overhead"][0] for each in rows if "overhead" in each]
    print(
        f"{sum(low <= MOST_OVERHEAD for low in heard)} of {len(heard)} within {MOST_OVERHEAD} of the bare step."
    )


def gain_share(each: dict[str, Any]) -> float | None:
    """The share of the expert's speed-up that the trial reached."""
    return each["kept"] / each["expert"] if "expert" in each else None


if __name__ == "__main__":
    main()
