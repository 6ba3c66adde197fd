"""Score the predictions against the times that were measured: writes scores.json and prints the tables of README.md.

``data/after.json`` (from ``record_pairs.py after``) has both sides. Until it exists, the pairs are scored whose second
side is the first side of another pair, timed in the same process: `SAME`; these are not blind.
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CHANGED = 1.2
"""Pairs whose step changes by this factor or more are the ones that the scores are about."""
SAME = {
    "attention_512": "compile_gpt_bf16",
    "bf16_convnet": "cudnn_benchmark",
    "bf16_gpt_fp32": "compile_gpt_bf16",
    "bf16_gpt_tf32": "compile_gpt_bf16",
    "channels_last_bf16": "cudnn_benchmark",
    "channels_last_fp32": "bf16_convnet",
    "checkpoint_removed": "compile_gpt_bf16",
    "foreach_single_mlp": "fused_foreach_mlp",
    "fused_foreach_gpt": "graph_gpt_long",
    "fused_foreach_mlp": "graph_tiny_mlp",
    "fused_single_gpt": "graph_gpt_long",
    "fused_single_mlp": "graph_tiny_mlp",
    "tf32_gpt": "bf16_gpt_tf32",
    "tf32_wide_mlp": "bf16_wide_mlp_tf32",
    "zero_grad_gpt": "compile_gpt_bf16",
}


def measured() -> tuple[dict[str, tuple[float, float]], bool]:
    """Milliseconds before and after, and whether the second sides were timed after the predictions."""
    path = HERE / "data" / "after.json"
    if path.exists():
        pairs = json.loads(path.read_text())["pairs"]
        timed = {n: r for n, r in pairs.items() if "step_ms" in r["before"] and "step_ms" in r["after"]}
        return {n: (r["before"]["step_ms"], r["after"]["step_ms"]) for n, r in timed.items()}, True
    pairs = json.loads((HERE / "data" / "before.json").read_text())["pairs"]
    first = {n: r["before"]["step_ms"] for n, r in pairs.items()}
    return {n: (first[n], first[other]) for n, other in SAME.items()}, False


def row(name: str, predicted: dict[str, Any], before: float, after: float) -> dict[str, Any]:
    """One pair: errors are of the step's time after the change, as a share of the measured one."""
    real, guess = before / after, predicted["speedup"]
    return {
        "pair": name,
        "before_ms": round(before, 3),
        "after_ms": round(after, 3),
        "speedup": round(real, 3),
        **{k: guess[k] for k in ("low", "likely", "high")},
        "error": round(real / guess["likely"] - 1, 3),
        "error_no_change": round(real - 1, 3),
        "error_amdahl": round(real / predicted["amdahl_speedup"] - 1, 3),
        "inside": guess["low"] <= real <= guess["high"],
        "changes": max(real, 1 / real) >= CHANGED,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Scores over some pairs."""
    if not rows:
        return {"pairs": 0}
    within = {
        key: sum(abs(r[key]) <= 0.25 for r in rows) / len(rows)
        for key in ("error", "error_no_change", "error_amdahl")
    }
    return {
        "pairs": len(rows),
        "within_25_percent": {k: round(v, 3) for k, v in within.items()},
        "inside_low_high": round(sum(r["inside"] for r in rows) / len(rows), 3),
        "median_high_over_low": round(statistics.median(r["high"] / r["low"] for r in rows), 3),
        "geometric_mean_error": round(
            math.exp(statistics.fmean(abs(math.log1p(r["error"])) for r in rows)) - 1, 3
        ),
    }


def main() -> None:
    predictions = json.loads((HERE / "predictions.json").read_text())
    times, blind = measured()
    rows = [row(n, predictions[n], *times[n]) for n in sorted(times)]
    found = {
        "blind": blind,
        "changed": summary([r for r in rows if r["changes"]]),
        "unchanged": summary([r for r in rows if not r["changes"]]),
        "rows": rows,
    }
    (HERE / "scores.json").write_text(json.dumps(found, indent=1) + "\n")
    print("| pair | before ms | after ms | speed-up | predicted | low to high | error | no change | Amdahl |")
    print("|---|---|---|---|---|---|---|---|---|")
    for r in rows:
        inside = "" if r["inside"] else " (outside)"
        print(
            f"| {r['pair']} | {r['before_ms']:.2f} | {r['after_ms']:.2f} | {r['speedup']:.2f} | {r['likely']:.2f} "
            f"| {r['low']:.2f} to {r['high']:.2f}{inside} | {r['error']:+.0%} | {r['error_no_change']:+.0%} | {r['error_amdahl']:+.0%} |"
        )
    print(json.dumps({k: v for k, v in found.items() if k != "rows"}, indent=1))


if __name__ == "__main__":
    main()
