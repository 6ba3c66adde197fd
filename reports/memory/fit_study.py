"""Predicted against measured memory and time of changed steps: ``python reports/memory/fit_study.py FOLDER``.

FOLDER holds a run folder of each model (``profkit.record(memory=True)``) and ``peaks.jsonl``, one measured row a line:
model, change, after_bytes, reserved_bytes, after_ms. Prints a table in Markdown, and how far predictions were off.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import profkit

CHANGES: dict[str, dict[str, Any]] = {
    "base": {},
    "batch": {},
    "bf16": {"bf16": True},
    "checkpoint": {"recompute": "all"},
    "sgd": {"optimizer": "sgd"},
    "fused": {"fused_optimizer": True},
    "sdpa": {"fused_attention": True},
}


def asked(change: str) -> dict[str, Any]:
    """The arguments of `profkit.fit` for the name of a measured change: ``bf16_batch_x2``."""
    name, _, factor = change.partition("batch_x")
    found = dict(CHANGES[name.rstrip("_") or "batch"])
    return {**found, "batch": float(factor)} if factor else found


def main(folder: Path) -> None:
    """Print the table."""
    print(
        "| model | change | peak GB | predicted | off | reserved GB | predicted | off | ms | predicted | off |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    off: list[tuple[float, float, float, bool, bool, bool]] = []
    for line in (folder / "peaks.jsonl").read_text().splitlines():
        row = json.loads(line)
        after = profkit.fit(folder / row["model"], **asked(row["change"])).after
        parts, errors, inside = [], [], []
        for found, true, unit in (
            (after.peak_bytes, row["after_bytes"], 1e9),
            (after.reserved_bytes, row["reserved_bytes"], 1e9),
            (after.step_ns, row["after_ms"] * 1e6, 1e6),
        ):
            errors.append(found.likely / true - 1)
            inside.append(found.low <= true <= found.high)
            shown = "" if inside[-1] else " (outside)"
            parts.append(f"{true / unit:.2f} | {found.likely / unit:.2f} | {errors[-1]:+.1%}{shown}")
        off.append((*errors, *inside))
        print(f"| {row['model']} | {row['change']} | {' | '.join(parts)} |")
    for name, place in (("peak", 0), ("reserved", 1), ("time", 2)):
        sizes = sorted(abs(each[place]) for each in off)
        inside = sum(bool(each[place + 3]) for each in off)
        print(
            f"\n{name}: median {sizes[len(sizes) // 2]:.1%}, largest {sizes[-1]:.1%}, "
            f"inside the interval {inside} of {len(off)}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
