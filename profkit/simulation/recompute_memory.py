"""Recomputing activations: what a layer keeps is freed after its forward, and made again before its backward.

Layers are found in the stacks: calls of one line of code that repeat within a forward pass, such as a loop over
blocks. Of a layer its last activation stays, which is the next one's input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import ACTIVATION, BACKWARD
from profkit.memory.phase_memory import Stretch
from profkit.model import IntColumn
from profkit.simulation.memory_changes import MemoryChange
from profkit.simulation.memory_program import MemoryProgram

__all__ = ["LayerTimes", "Segment", "find_segments", "layer_times", "recompute_memory"]

_LEAST_SHARE = 0.02
"""Of all activations: a loop whose layers keep less is no loop over layers."""
_ALONE = 0.99
"""Of what repeats: one line that holds so much leads to the loop, or is the loop's."""
_FORWARD = 0
_MOSTLY = 0.9
_FEWEST_STACKS = 2
"""One place in the code is an operator, no layer."""


@dataclass(frozen=True, eq=False)
class Segment:
    """What is recomputed as one: the activations of one layer in one step."""

    name: str
    """The innermost line of code outside of torch that leads to it: ``models/gpt2.py:608 forward``."""
    rows: NDArray[np.int64]
    """Recorded rows, in the order in which they are made."""
    step: int
    """The number of the step, from 0."""

    def first(self, program: MemoryProgram) -> int:
        """The state before its first activation."""
        return int(program.allocated[self.rows[0]]) - 1

    def last(self, program: MemoryProgram) -> int:
        """The state in which its last activation is made."""
        return int(program.allocated[self.rows[-1]])


@lru_cache(maxsize=4)
def find_segments(program: MemoryProgram, which: str = "all") -> Sequence[Segment]:
    """The layers of all steps of a program, in order.

    Args:
        program: The recorded blocks.
        which: ``all``, the path of a phase, or a part of the name of the file or function that calls the layers.
    """
    kept = (program.use == ACTIVATION) & ~program.before
    phases = [
        each for each in program.stretches.phases if each.path == which or each.path.startswith(f"{which}/")
    ]
    if phases:
        kept &= _within(program, phases)
    rows = np.flatnonzero(kept)
    rows = rows[np.argsort(program.allocated[rows], kind="stable")]
    found: list[Segment] = []
    for number, step in enumerate(_per_forward(program, rows)):
        layers = _Layers(program, step).found()
        named = phases or which == "all"
        chosen = [(path, each) for path, each in layers if named or any(which in line for line in path)]
        found += [Segment(_own(path), each, number) for path, each in chosen]
    return sorted(found, key=lambda segment: segment.first(program))


def _own(path: tuple[str, ...]) -> str:
    own = [line for line in path if not line.startswith("torch/")]
    return own[-1] if own else path[-1]


def _within(program: MemoryProgram, phases: Sequence[Stretch]) -> NDArray[np.bool_]:
    found = np.zeros(len(program.requested), bool)
    for phase in phases:
        found |= (program.allocated > phase.first) & (program.allocated <= phase.last)
    return found


def _per_forward(program: MemoryProgram, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Activations by the forward pass that made them: each is freed before the next begins to be."""
    groups: list[NDArray[np.int64]] = []
    bounds = program.step_bounds.tolist()
    for first, last in pairwise(bounds):
        mine = rows[(program.allocated[rows] > first) & (program.allocated[rows] <= last)]
        if len(mine):
            groups.append(mine)
    return groups


class _Layers:
    """The layers of one forward pass: lines of code under which the same stacks come in the same turn, several times."""

    def __init__(self, program: MemoryProgram, rows: NDArray[np.int64]) -> None:
        self.program, self.rows = program, rows
        self.paths = {stack: program.owners.path(stack) for stack in np.unique(program.stack[rows]).tolist()}
        self.total = int(program.requested[rows].sum())

    def found(self) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
        """The lines of code that lead to each layer, outermost first, and its rows."""
        return self.under(self.rows, ())

    def under(
        self, rows: NDArray[np.int64], path: tuple[str, ...]
    ) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
        """The layers among rows whose stacks begin with a path."""
        lines = self._lines(rows, len(path))
        repeats = self._repeats(rows)
        most = max((self._bytes(mine, repeats) for mine in lines.values()), default=0)
        if repeats > 1 and most < _ALONE * self._bytes(rows, repeats):
            instances = self._instances(rows, repeats)
            if instances:
                return [(path, each) for each in instances]
        found: list[tuple[tuple[str, ...], NDArray[np.int64]]] = []
        for line, mine in lines.items():
            if self.program.requested[mine].sum() >= _LEAST_SHARE * self.total:
                found += self.under(mine, (*path, line))
        return found

    def _lines(self, rows: NDArray[np.int64], depth: int) -> dict[str, NDArray[np.int64]]:
        lines: dict[str, list[int]] = defaultdict(list)
        for row in rows.tolist():
            path = self.paths[int(self.program.stack[row])]
            if len(path) > depth:
                lines[path[depth]].append(row)
        return {line: np.array(mine) for line, mine in lines.items()}

    def _repeats(self, rows: NDArray[np.int64]) -> int:
        """How often the stacks come: the largest number that divides the counts of most bytes.

        An operator with three results makes three blocks at one place, so that its stack comes three times a turn.
        """
        _, inverse, counts = np.unique(self.program.stack[rows], return_inverse=True, return_counts=True)
        weight = np.bincount(counts[inverse], self.program.requested[rows])
        divided = {int(n): float(weight[::n].sum()) for n in np.unique(counts) if n > 1}
        most = max(divided.values(), default=0.0)
        return max((n for n, held in divided.items() if held >= _MOSTLY * most), default=1)

    def _repeated(self, rows: NDArray[np.int64], repeats: int) -> NDArray[np.bool_]:
        """Which rows have stacks that come that often, or a multiple of it."""
        _, inverse, counts = np.unique(self.program.stack[rows], return_inverse=True, return_counts=True)
        found: NDArray[np.bool_] = counts[inverse] % repeats == 0
        return found

    def _bytes(self, rows: NDArray[np.int64], repeats: int) -> int:
        return int(self.program.requested[rows[self._repeated(rows, repeats)]].sum())

    def _instances(self, rows: NDArray[np.int64], repeats: int) -> list[NDArray[np.int64]]:
        """The rows by turn; empty where stacks do not come in each: then several loops lie behind one another."""
        stacks, repeated = self.program.stack[rows], self._repeated(rows, repeats)
        if len(np.unique(stacks[repeated])) < _FEWEST_STACKS:
            return []
        first = int(np.flatnonzero(repeated)[0])
        marker = stacks == stacks[first]
        turn = (np.cumsum(marker) - 1) // (int(marker.sum()) // repeats)
        turn[:first] = -1
        _, place = np.unique(stacks, return_inverse=True)
        held = np.zeros((int(place.max()) + 1, repeats), np.int64)
        np.add.at(held, (place[first:], turn[first:]), 1)
        even = (held == held[:, :1]).all(axis=1)[place]
        sizes = self.program.requested[rows]
        if sizes[even & repeated].sum() < _ALONE * sizes[repeated].sum():
            return []
        return [rows[turn == each] for each in range(repeats)]


@dataclass(frozen=True)
class LayerTimes:
    """When the host was in some layers of a forward pass."""

    unix_ns: Sequence[tuple[int, int]]
    """In each step of the history."""
    shares: Sequence[tuple[float, float]]
    """In the last of them: 0 is the begin of its forward pass, 1 its end."""


def layer_times(program: MemoryProgram, segments: Sequence[Segment]) -> LayerTimes:
    """When the layers run: from a layer's first activation to the next one's, so that its last kernel is in it."""
    events = program.replayed.events.time_ns
    spans = [_host_span(program, events, place, segments) for place in range(len(segments))]
    if not segments:
        return LayerTimes((), ())
    last = max(segment.step for segment in segments)
    mine = [span for span, segment in zip(spans, segments, strict=True) if segment.step == last]
    start = next(segment for segment in segments if segment.step == last).first(program)
    before = np.flatnonzero(program.activity[:start] != _FORWARD)
    after = np.flatnonzero(program.activity[start:] == BACKWARD)
    since = int(events[int(before[-1]) + 1 if len(before) else 0])
    until = int(events[start + int(after[0]) if len(after) else len(events) - 1])
    length = max(until - since, 1)
    return LayerTimes(spans, [((begin - since) / length, (end - since) / length) for begin, end in mine])


def _host_span(
    program: MemoryProgram, events: IntColumn, place: int, segments: Sequence[Segment]
) -> tuple[int, int]:
    segment = segments[place]
    behind = segments[place + 1] if place + 1 < len(segments) else None
    following = segment.last(program) + 1
    if behind is not None and behind.step == segment.step and behind.name == segment.name:
        following = max(behind.first(program), following)
    return int(events[segment.first(program)]), int(events[min(following, len(events) - 1)])


def recompute_memory(segments: Sequence[Segment]) -> MemoryChange:
    """The activations of some layers recomputed, each layer by itself."""

    def change(program: MemoryProgram) -> MemoryProgram:
        recorded = program.recorded
        begins = _backward_begins(recorded, segments)
        for segment, begin in zip(segments, begins, strict=True):
            program = _recomputed(program, recorded, segment, begin)
        return program

    return change


def _backward_begins(recorded: MemoryProgram, segments: Sequence[Segment]) -> list[int]:
    """The state in which each layer's backward begins: where that of the layer behind it ends."""
    begins = []
    for place, segment in enumerate(segments):
        freed = recorded.freed[segment.rows]
        behind = segments[place + 1] if place + 1 < len(segments) else None
        last = int(recorded.freed[behind.rows].max()) if behind is not None else -1
        first = int(freed.min())
        begins.append(last if segment.last(recorded) < last <= first else first - 1)
    return begins


def _recomputed(
    program: MemoryProgram, recorded: MemoryProgram, segment: Segment, begin: int
) -> MemoryProgram:
    dropped = np.zeros(len(recorded.requested), bool)
    dropped[segment.rows[:-1]] = True
    rows = np.flatnonzero(program.like(dropped) & (program.allocated < begin) & (program.requested > 0))
    rows = rows[np.argsort(program.allocated[rows], kind="stable")]
    again = program.with_rows(rows, allocated=np.full(len(rows), begin))
    after = segment.last(recorded) + 1
    changed = {name: getattr(again, name).copy() for name in ("freed", "reusable")}
    for column in changed.values():
        column[rows] = np.minimum(column[rows], np.maximum(again.allocated[rows] + 1, after))
    return again.with_columns(**changed)
