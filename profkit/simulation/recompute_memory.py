"""Recomputing activations: what a layer keeps is freed after its forward, and made again before its backward.

Layers are found in the stacks: calls of one line of code that repeat within a forward pass, such as a loop over
blocks. Of a layer its result stays, which is the next one's input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import ACTIVATION
from profkit.memory.phase_memory import Stretch
from profkit.memory.replay import curve_of
from profkit.model.memory_history import Action
from profkit.simulation.memory_changes import MemoryChange
from profkit.simulation.memory_program import MemoryProgram

__all__ = [
    "Segment",
    "backward_begin",
    "cheapest_places",
    "find_segments",
    "recompute_memory",
]

_LEAST_SHARE = 0.02
"""Of all activations: a loop whose layers keep less is no loop over layers."""
_ALONE = 0.99
"""Of what repeats: one line that holds so much leads to the loop, or is the loop's."""
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

    def result(self, program: MemoryProgram) -> int:
        """The row that stays, since it is the next layer's input: of what its last operator makes, the largest."""
        stacks = program.stack[self.rows]
        others = np.flatnonzero(stacks != stacks[-1])
        made = self.rows[others[-1] + 1 if len(others) else 0 :]
        return int(made[program.requested[made].argmax()])


def find_segments(program: MemoryProgram, which: str = "all") -> Sequence[Segment]:
    """The layers of all steps of a program, in order.

    Args:
        program: The recorded blocks.
        which: ``all``, the path of a phase, a part of the name of the file or function that calls the layers, or how
            many of a step: those first that keep the most for their time on the host.
    """
    if which.isdecimal():
        every = _found_segments(program, "all")
        places = cheapest_places(program, every, int(which))
        return [each for each, place in zip(every, _places(every), strict=True) if place in places]
    return _found_segments(program, which)


@lru_cache(maxsize=4)
def _found_segments(program: MemoryProgram, which: str) -> Sequence[Segment]:
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


def _places(segments: Sequence[Segment]) -> list[int]:
    """The place of each layer in its step, from 0."""
    first: dict[int, int] = {}
    return [at - first.setdefault(each.step, at) for at, each in enumerate(segments)]


def cheapest_places(program: MemoryProgram, segments: Sequence[Segment], count: int) -> frozenset[int]:
    """The places in a step, from 0, of so many layers: those that keep the most for their time on the host."""
    last = max((each.step for each in segments), default=0)
    mine = [each for each in segments if each.step == last]
    events = program.replayed.events.time_ns
    cost = [max(int(events[s.last(program)] - events[s.first(program)]), 1) for s in mine]
    freed = [int(program.requested[s.rows].sum() - program.requested[s.result(program)]) for s in mine]
    worth = -np.array(freed, float) / np.array(cost, float)
    return frozenset(np.argsort(worth, kind="stable")[:count].tolist())


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
        stacks, stack_of = np.unique(self.program.stack[rows], return_inverse=True)
        lines: dict[str, list[int]] = defaultdict(list)
        for place, stack in enumerate(stacks.tolist()):
            path = self.paths[stack]
            if len(path) > depth:
                lines[path[depth]].append(place)
        return {line: rows[np.isin(stack_of, mine)] for line, mine in lines.items()}

    def _turns(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each row how often its stack comes: three blocks at once are the results of one operator."""
        stacks = self.program.stack[rows]
        anew = np.append(True, stacks[1:] != stacks[:-1])
        _, inverse = np.unique(stacks, return_inverse=True)
        counts: NDArray[np.int64] = np.bincount(inverse[anew], minlength=int(inverse.max()) + 1)[inverse]
        return counts

    def _repeats(self, rows: NDArray[np.int64]) -> int:
        """How often the stacks come: the largest number that divides the counts of most bytes."""
        counts = self._turns(rows)
        sizes = self.program.requested[rows]
        divided = {int(n): float(sizes[counts % n == 0].sum()) for n in np.unique(counts) if n > 1}
        most = max(divided.values(), default=0.0)
        return max((n for n, held in divided.items() if held >= _MOSTLY * most), default=1)

    def _repeated(self, rows: NDArray[np.int64], repeats: int) -> NDArray[np.bool_]:
        """Which rows have stacks that come that often, or a multiple of it."""
        found: NDArray[np.bool_] = self._turns(rows) % repeats == 0
        return found

    def _bytes(self, rows: NDArray[np.int64], repeats: int) -> int:
        return int(self.program.requested[rows[self._repeated(rows, repeats)]].sum())

    def _instances(self, rows: NDArray[np.int64], repeats: int) -> list[NDArray[np.int64]]:
        """The rows by turn, after those of a first turn unlike the others.

        Empty where stacks do not come in each: then several loops lie behind one another.
        """
        stacks, repeated = self.program.stack[rows], self._repeated(rows, repeats)
        if len(np.unique(stacks[repeated])) < _FEWEST_STACKS:
            return []
        first = int(np.flatnonzero(repeated)[0])
        marker = (stacks == stacks[first]) & np.append(True, stacks[1:] != stacks[:-1])
        turn = (np.cumsum(marker) - 1) // (int(marker.sum()) // repeats)
        turn[:first] = -1
        _, place = np.unique(stacks, return_inverse=True)
        held = np.zeros((int(place.max()) + 1, repeats), np.int64)
        np.add.at(held, (place[first:], turn[first:]), 1)
        even = (held == held[:, :1]).all(axis=1)[place]
        sizes = self.program.requested[rows]
        if sizes[even & repeated].sum() < _ALONE * sizes[repeated].sum():
            return []
        unlike = rows[:first] if len(np.unique(stacks[:first])) >= _FEWEST_STACKS else rows[:0]
        return [*([unlike] if len(unlike) else []), *(rows[turn == each] for each in range(repeats))]


def recompute_memory(segments: Sequence[Segment]) -> MemoryChange:
    """The activations of some layers recomputed, each layer by itself."""

    def change(program: MemoryProgram) -> MemoryProgram:
        if not segments:
            return program
        blocks = _Blocks(program)
        layers = [blocks.recomputed(each, backward_begin(program.recorded, each)) for each in segments]
        rows = np.concatenate([each.rows for each in layers])
        again = program.with_rows(
            rows,
            requested=np.concatenate([each.requested for each in layers]),
            allocated=np.concatenate([each.allocated for each in layers]),
            freed=np.concatenate([each.freed for each in layers]),
            reusable=np.concatenate([each.reusable for each in layers]),
        )
        columns = {name: getattr(again, name).copy() for name in ("freed", "reusable")}
        for each in layers:
            for column in columns.values():
                kept = column[each.kept]
                column[each.kept] = np.minimum(kept, np.maximum(again.allocated[each.kept] + 1, each.after))
        return again.with_columns(**columns)

    return change


def backward_begin(recorded: MemoryProgram, segment: Segment) -> int:
    """The state in which a layer's backward begins: before the operator that is the first to free what the layer keeps.

    Its result is the next layer's input too. Where that layer's first operator frees it, that one makes a weight's
    gradient; an activation in place, which is this layer's own last operator, does not.
    """
    result = segment.result(recorded)
    kept = segment.rows[segment.rows != result]
    first = int(recorded.freed[kept].min(initial=recorded.end))
    if first >= recorded.end:  # the recording ends before the backward
        return recorded.end
    freed = int(recorded.freed[result])
    if freed <= first and not recorded.makes_gradients[slice(*_allocations_before(recorded, freed))].any():
        first = freed
    begin, _ = _allocations_before(recorded, first)
    return begin


def _allocations_before(recorded: MemoryProgram, state: int) -> tuple[int, int]:
    """The first event and the one behind the last of those that allocate, uninterrupted, before what is freed at a state."""
    latest, begins = _allocations(recorded)
    last = int(latest[state - 1])
    return int(begins[last]), last + 1


@lru_cache(maxsize=4)
def _allocations(recorded: MemoryProgram) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each event the last that allocates up to it, and the first of those that allocate, uninterrupted, before it."""
    allocates = recorded.replayed.events.action == Action.ALLOC
    events = np.arange(len(allocates))
    latest = np.maximum.accumulate(np.where(allocates, events, 0))
    others = np.maximum.accumulate(np.where(allocates, 0, events + 1))
    return latest, np.append(0, others[:-1])


@dataclass(frozen=True)
class _Again:
    """A layer that is recomputed: rows to copy, with what their copies have, and rows that end behind its forward."""

    rows: NDArray[np.int64]
    requested: NDArray[np.int64]
    allocated: NDArray[np.int64]
    freed: NDArray[np.int64]
    reusable: NDArray[np.int64]
    kept: NDArray[np.int64]
    after: int


class _Blocks:
    """The rows of a program by what they stand for and by when they are allocated."""

    def __init__(self, program: MemoryProgram) -> None:
        self.program, self.bytes = program, program.bytes
        self.by_source = np.argsort(program.source, kind="stable")
        self.sources = program.source[self.by_source]
        self.by_time = np.argsort(program.allocated, kind="stable")
        self.times = program.allocated[self.by_time]
        self.is_kept = np.zeros(len(self.bytes), bool)

    def recomputed(self, segment: Segment, begin: int) -> _Again:
        """A layer whose backward begins at a state."""
        program, recorded = self.program, self.program.recorded
        kept = self._standing_for(segment.rows[segment.rows != segment.result(recorded)])
        kept = kept[(program.allocated[kept] < begin) & (program.requested[kept] > 0)]
        kept = kept[np.lexsort((kept, program.allocated[kept]))]
        last = segment.last(recorded)
        passing, beyond = self._passing(kept, segment.first(recorded) + 1, last, begin)
        ends = np.full(len(passing), begin + 1)
        return _Again(
            rows=np.concatenate([passing, kept]),
            requested=np.concatenate([beyond, program.requested[kept]]),
            allocated=np.full(len(passing) + len(kept), begin),
            freed=np.concatenate([ends, program.freed[kept]]),
            reusable=np.concatenate([ends, program.reusable[kept]]),
            kept=kept,
            after=last + 1,
        )

    def _standing_for(self, recorded: NDArray[np.int64]) -> NDArray[np.int64]:
        first = np.searchsorted(self.sources, recorded)
        counts = np.searchsorted(self.sources, recorded, side="right") - first
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        found: NDArray[np.int64] = self.by_source[np.repeat(first, counts) + within]
        return found

    def _passing(
        self, kept: NDArray[np.int64], first: int, last: int, begin: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """What the layer's forward takes for a moment beyond all that it keeps, as one block: its row and size, or none."""
        program, none = self.program, np.zeros(0, np.int64)
        since, until = np.searchsorted(self.times, (first, last + 1))
        self.is_kept[kept] = True
        rows = self.by_time[since:until]
        rows = np.sort(rows[~self.is_kept[rows]])
        self.is_kept[kept] = False
        rows = rows[(program.freed[rows] <= last) & (program.requested[rows] > 0)]
        if not len(rows) or begin >= program.end:
            return none, none
        length = last - first + 2
        starts = np.minimum(program.allocated[kept] - first, length - 1)
        held = curve_of(self.bytes[kept], starts, np.full(len(kept), length), length)
        starts, stops = program.allocated[rows] - first, program.freed[rows] - first
        held += curve_of(self.bytes[rows], starts, stops, length)
        beyond = int(held.max()) - int(self.bytes[kept].sum())
        if beyond <= 0:
            return none, none
        return rows[[program.requested[rows].argmax()]], np.array([beyond])
