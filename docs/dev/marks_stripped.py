"""Marked recordings with their marks taken away: are the same steps found, and is the verdict the same?

python docs/dev/marks_stripped.py ../shared/recordings/kineto/*.gz ... > docs/dev/marks_stripped.md
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from profkit.model import Trace
from profkit.readers import read
from profkit.report.assembly import summarise
from profkit.timeline.step_names import marked_rows, steps_inside

TOLERANCE = 0.03
"""How far the median step may be off."""

CLOSE = 0.10
"""Two shares this close may change places."""


def without_marks(trace: Trace) -> Trace:
    """The trace without ranges that mark steps, and without those of the optimizer's steps."""
    rows = marked_rows(trace, None)[0]
    rows = rows | steps_inside(trace, rows)
    optimizer = np.array([*(name.startswith("Optimizer.step#") for name in trace.strings), False])
    return replace(trace, ranges=trace.ranges.take(~rows & ~optimizer[trace.ranges.name]))


def row(path: str) -> tuple[str, bool] | None:
    """A line of the table, and whether steps and verdict are the same; None for a recording without marks."""
    trace = read(path)
    if not isinstance(trace, Trace) or not len(trace.operations) or not marked_rows(trace, None)[0].any():
        return None
    marked, stripped = summarise([trace]), summarise([without_marks(trace)])
    counts = [len(result.window["steps"]) for result in (marked, stripped)]
    steps = [result.step.recorded_ns or 0 for result in (marked, stripped)]
    bounds = [result.verdict["bound"] for result in (marked, stripped)]
    shares, total = marked.verdict["shares"], sum(marked.verdict["shares"].values())
    close = abs(shares.get(bounds[0], 0) - shares.get(bounds[1], 0)) <= CLOSE * total
    same = abs(counts[0] - counts[1]) <= 1 and abs(steps[0] - steps[1]) <= TOLERANCE * steps[0]
    right = same and (bounds[0] == bounds[1] or close)
    cells = (
        Path(path).name,
        *counts,
        f"{steps[0] / 1e6:.3f}",
        f"{steps[1] / 1e6:.3f}",
        *bounds,
        "yes" if right else "no",
    )
    return f"| {' | '.join(map(str, cells))} |", right


def main() -> None:
    """Print the table."""
    rows = [found for path in sys.argv[1:] if (found := row(path)) is not None]
    print("# Steps without marks\n\nMade by `marks_stripped.py` from our own recordings.")
    print(
        f"{sum(right for _, right in rows)} of {len(rows)} have the same steps, median within 3 %, and verdict"
    )
    print("(or one whose share lies within 10 points). A start-up put in front is not part of this table.\n")
    print("| recording | marked steps | found | marked ms | found ms | verdict | found verdict | same |")
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join(line for line, _ in rows))


if __name__ == "__main__":
    main()
