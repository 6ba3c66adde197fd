"""Marked recordings with their marks taken away: are the same steps found, with the same verdict and first advice?

python docs/dev/marks_stripped.py ../shared/recordings/kineto/*.gz ... > docs/dev/marks_stripped.md

With ``--start-up FILE``, what that file recorded before its first kernel is put in front of each: a real start-up, with
the making of the context, loading of code, and weights that are moved once.
"""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from profkit.model import OperationKind, Trace
from profkit.readers import read
from profkit.report.assembly import summarise
from profkit.timeline.step_names import marked_rows, steps_inside

TOLERANCE = 0.03
"""How far the median step may be off."""

CLOSE = 0.10
"""Two shares this close may change places."""

_TEXTS = ("name", "module", "stack", "domain", "shapes", "dtypes", "strides", "scalars")
"""Columns of numbers of texts."""


def without_marks(trace: Trace) -> Trace:
    """The trace without ranges that mark steps, and without those of the optimizer's steps."""
    rows = marked_rows(trace, None)[0]
    rows = rows | steps_inside(trace, rows)
    optimizer = np.array([*(name.startswith("Optimizer.step#") for name in trace.strings), False])
    return replace(trace, ranges=trace.ranges.take(~rows & ~optimizer[trace.ranges.name]))


def with_start_up(trace: Trace, donor: Trace) -> Trace:
    """The trace with what another recorded before its first kernel in front; both on the thread that launches most."""
    begun = int(donor.operations.start_ns[donor.operations.kind == OperationKind.KERNEL].min())
    shift = (
        min(int(t.start_ns.min()) for t in (trace.operations, trace.calls, trace.ranges) if len(t)) - begun
    )
    thread, donor_thread = (np.bincount(each.calls.thread).argmax() for each in (trace, donor))
    strings = {text: number for number, text in enumerate(trace.strings)}
    number = np.array([*(strings.setdefault(text, len(strings)) for text in donor.strings), -1])
    # Ids grow with time.
    last = max((int(t.correlation.max()) for t in (donor.operations, donor.calls) if len(t)), default=0)
    tables: dict[str, Any] = {}
    for name, own in (("operations", {"device": 0, "process": 0}), ("calls", {}), ("ranges", {})):
        table = getattr(donor, name)
        main = donor_thread == table.thread if name != "operations" else True
        table = table.take((table.end_ns <= begun) & main)
        given = {each.name: getattr(table, each.name) for each in fields(table)}
        given |= {key: given[key] + shift for key in ("start_ns", "end_ns")}
        given |= {key: number[given[key]] for key in _TEXTS if key in given}
        own = own or {"thread": thread}
        given |= {key: np.full(len(table), value) for key, value in own.items()}
        after = _renumbered(getattr(trace, name), last)
        joined = {key: np.concatenate((given[key], getattr(after, key))) for key in given}
        tables[name] = type(after).of(len(table) + len(after), **joined)
    moved = len(tables["operations"]) - len(trace.operations)
    collectives = replace(trace.collectives, operation=trace.collectives.operation + moved)
    syncs = _renumbered(trace.syncs, last)
    return replace(trace, strings=list(strings), collectives=collectives, syncs=syncs, **tables)


def _renumbered(table: Any, by: int) -> Any:
    if not hasattr(table, "correlation"):
        return table
    return replace(table, correlation=np.where(table.correlation > 0, table.correlation + by, 0))


def row(path: str, start_up: Trace | None = None) -> tuple[str, bool, bool] | None:
    """A line of the table, whether steps and verdict are the same, and the first advice; None without marks."""
    trace = read(path)
    if not isinstance(trace, Trace) or not len(trace.operations) or not marked_rows(trace, None)[0].any():
        return None
    bare = without_marks(trace)
    marked = summarise([trace])
    stripped = summarise([bare if start_up is None else with_start_up(bare, start_up)])
    counts = [len(result.window.steps) for result in (marked, stripped)]
    steps = [result.step.recorded_ns or 0 for result in (marked, stripped)]
    bounds = [result.verdict.bound for result in (marked, stripped)]
    shares, total = marked.verdict.shares, sum(marked.verdict.shares.values())
    close = abs(shares.get(bounds[0], 0) - shares.get(bounds[1], 0)) <= CLOSE * total
    same = abs(counts[0] - counts[1]) <= 1 and abs(steps[0] - steps[1]) <= TOLERANCE * steps[0]
    right = same and (bounds[0] == bounds[1] or close)
    first = [result.advice[0].id if result.advice else "none" for result in (marked, stripped)]
    cells = (
        Path(path).name,
        *counts,
        f"{steps[0] / 1e6:.3f}",
        f"{steps[1] / 1e6:.3f}",
        *bounds,
        "yes" if right else "no",
        *first,
    )
    return f"| {' | '.join(map(str, cells))} |", right, first[0] == first[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recordings", nargs="+")
    parser.add_argument("--start-up", help="a recording whose start-up is put in front of each")
    asked = parser.parse_args()
    start_up = read(asked.start_up) if asked.start_up else None
    assert start_up is None or isinstance(start_up, Trace)
    rows = [found for path in asked.recordings if (found := row(path, start_up)) is not None]
    print(f"## {'Steps without marks, behind 30 s of start-up' if start_up else 'Steps without marks'}\n")
    print(
        f"{sum(right for _, right, _ in rows)} of {len(rows)} have the same steps, median within 3 %, and verdict"
    )
    print("(or one whose share lies within 10 points);", end=" ")
    print(f"{sum(same for *_, same in rows)} the same first advice.\n")
    print(
        "| recording | marked steps | found | marked ms | found ms | verdict | found verdict | same", end=" "
    )
    print("| first advice | found first advice |\n|---|---|---|---|---|---|---|---|---|---|")
    print("\n".join(line for line, *_ in rows))


if __name__ == "__main__":
    main()
