"""Where compiled code breaks or is compiled again, and why, as far as the ranges of a recording tell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind
from profkit.roofline.operator_shapes import tensor_shapes
from profkit.simulation.compiled_regions import Region, all_regions, breaks_of
from profkit.simulation.kernel_facts import StepFacts
from profkit.timeline.call_sites import frame_text, is_users_frame
from profkit.timeline.range_names import matching

__all__ = ["breaks_seen", "changed_sizes", "place_of"]

_COMPILED: Final = re.compile(r"CompiledFunction|(?:## )?Call CompiledFxGraph")
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(\w+?)_at_\d+")
"""What Dynamo calls the rest of a function after a break, with the line of the break."""
_MOST_OPERATORS = 2


def breaks_seen(facts: StepFacts) -> list[str]:
    """Each place where a graph ends: what ran there outside of any graph, and the line; the most frequent first."""
    counted = Counter(_break_text(facts, before, after) for before, after in facts.once(breaks_of))
    return [f"{text}{f' ({count}x)' if count > 1 else ''}" for text, count in counted.most_common()]


def place_of(facts: StepFacts, region: Region) -> str:
    """The program's line that a region begins with, as `` at model.py:12 forward``; empty without stacks."""
    ranges, strings = facts.view.trace.ranges, facts.view.trace.strings
    users = facts.once(_users_frames)
    inside = users[(ranges.thread[users] == ranges.thread[region.row])]
    inside = inside[ranges.start_ns[inside] >= ranges.start_ns[region.row]]
    inside = inside[ranges.start_ns[inside] < ranges.end_ns[region.row]]
    if not len(inside):
        return ""
    first = int(inside[np.argmin(ranges.start_ns[inside])])
    return f" at {_RESUMED.sub(lambda m: m[1], frame_text(strings[ranges.name[first]]))}"


def changed_sizes(facts: StepFacts, graph: int) -> str:
    """The sizes that differ between two versions of a graph, as ``[64, 96] and [64, 112]``; empty where none is seen."""
    taken: dict[int, list[tuple[int, ...]]] = {}
    for region in facts.once(all_regions):
        if region.graph == graph and (shapes := _taken(facts, region)):
            taken[region.version] = shapes
    versions = sorted(taken)
    for older, newer in zip(versions[-2::-1], versions[:0:-1], strict=True):
        if len(taken[older]) == len(taken[newer]):
            unlike = [
                f"{list(a)} and {list(b)}" for a, b in zip(taken[older], taken[newer], strict=True) if a != b
            ]
            if unlike:
                return unlike[0]
    return ""


def _break_text(facts: StepFacts, before: Region, after: Region) -> str:
    names = list(dict.fromkeys(_between(facts, before, after)))[:_MOST_OPERATORS]
    ran = ", ".join(names) or "no operator, so a print, a branch or a call that is not supported"
    return f"graph {before.graph} ends{place_of(facts, after)}: {ran}"


def _between(facts: StepFacts, before: Region, after: Region) -> Iterator[str]:
    """The outermost operators between what was compiled in a region and the next region."""
    ranges, strings = facts.view.trace.ranges, facts.view.trace.strings
    rows = facts.once(_operators)
    rows = rows[(ranges.thread[rows] == ranges.thread[before.row])]
    starts, until = ranges.start_ns[rows], int(ranges.start_ns[after.row])
    rows = rows[(starts >= ranges.start_ns[before.row]) & (starts < until)]
    ends = -1
    for row in rows.tolist():
        name = strings[ranges.name[row]]
        if ranges.start_ns[row] < ends:
            continue
        ends = int(ranges.end_ns[row])
        if not _COMPILED.match(name) and ends <= until:
            yield name


def _operators(facts: StepFacts) -> NDArray[np.int64]:
    """Operators and calls of compiled graphs, in the order of their starts."""
    ranges, strings = facts.view.trace.ranges, facts.view.trace.strings
    wanted = matching(strings, ranges.name, lambda name: "::" in name or _COMPILED.match(name) is not None)
    rows = np.flatnonzero(wanted & (ranges.kind != RangeKind.PYTHON))
    return rows[np.lexsort((-ranges.end_ns[rows], ranges.start_ns[rows]))]


def _users_frames(facts: StepFacts) -> NDArray[np.int64]:
    ranges = facts.view.trace.ranges
    return np.flatnonzero(
        (ranges.kind == RangeKind.PYTHON) & matching(facts.view.trace.strings, ranges.name, is_users_frame)
    )


def _taken(facts: StepFacts, region: Region) -> list[tuple[int, ...]]:
    """The shapes of the tensors that the first operator with any takes in a region: the compiled function, as a rule."""
    ranges, strings = facts.view.trace.ranges, facts.view.trace.strings
    rows = facts.once(_operators)
    rows = rows[(ranges.thread[rows] == ranges.thread[region.row]) & (ranges.shapes[rows] >= 0)]
    rows = rows[(ranges.start_ns[rows] >= ranges.start_ns[region.row])]
    rows = rows[(ranges.start_ns[rows] < ranges.end_ns[region.row])]
    return list(tensor_shapes(strings[ranges.shapes[rows[0]]]) or ()) if len(rows) else []
