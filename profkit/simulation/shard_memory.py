"""What one rank of several holds: state, gradients and parameters divided, and what gathers and reduces them.

``zero1`` is ZeroRedundancyOptimizer over DistributedDataParallel, as PyTorch has them by default. ``zero2`` and ``zero3`` are
fully_shard (FSDP2) of each layer and of the rest with the model, without and with ``reshard_after_forward``.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import (
    ACTIVATION,
    BACKWARD,
    GRADIENT,
    OPTIMIZER,
    OPTIMIZER_STATE,
    PARAMETER,
    TEMPORARY,
)
from profkit.simulation.block_operators import BlockOperators
from profkit.simulation.memory_changes import MemoryChange
from profkit.simulation.memory_program import MemoryProgram
from profkit.simulation.recompute_memory import Segment, backward_begin, find_segments

__all__ = ["is_sharded", "shard_memory"]

_SHARDING = ("c10d::_reduce_scatter_base_", "c10d::reduce_scatter_tensor_")
_REDUCING = ("c10d::allreduce_",)


def is_sharded(operators: BlockOperators) -> bool:
    """Whether the recorded step is that of one rank, which has its share of the gradients alone."""
    return _calls(operators, _SHARDING)


def shard_memory(ranks: int, stage: str, operators: BlockOperators | None) -> MemoryChange:
    """State shared out over ranks (``zero1``), gradients too (``zero2``), and parameters (``zero3``)."""

    def change(program: MemoryProgram) -> MemoryProgram:
        steps = _steps(program.recorded)
        if stage == "zero1":
            reduced = operators is not None and _calls(operators, _REDUCING)
            return _with_buckets(program, ranks, 0 if reduced else _largest(program, steps))
        updates = (program.use == TEMPORARY) & program.born_in(OPTIMIZER)
        divided = np.isin(program.use, (PARAMETER, GRADIENT, OPTIMIZER_STATE))
        changed = program.scaled(divided | updates, 1 / ranks)
        added = _Added(changed)
        for step in steps:
            _gather(added, step, again=stage == "zero3")
            _reduce(added, step)
        return added.program()

    return change


@dataclass(frozen=True)
class _Group:
    """Parameters that are gathered as one, in one step: those of a layer, or all others."""

    bytes: int
    forward: int
    """The state in which its forward begins."""
    forward_end: int
    backward: int
    backward_end: int
    gradients: NDArray[np.int64]
    """Recorded rows."""


@dataclass(frozen=True)
class _Step:
    """The layers of a step in the order of their forward, and the rest."""

    layers: Sequence[_Group]
    rest: _Group

    @property
    def groups(self) -> Sequence[_Group]:
        return [*self.layers, self.rest]


class _Added:
    """Blocks beside those of a program."""

    def __init__(self, program: MemoryProgram) -> None:
        self.base = program
        self.rows: list[tuple[int, int, int, bool, int]] = []

    def add(self, size: int, since: int, until: int, use: int, *, gathers: bool = False) -> None:
        """A block from one state to another, on the stream that gathers or on the one that computes."""
        if size > 0 and until > since:
            self.rows.append((size, since, until, gathers, use))

    def whole(self, group: _Group, since: int | None, until: int, use: int) -> None:
        """A group's parameters, or from where each is made its gradients."""
        recorded = self.base.recorded
        for row in group.gradients.tolist():
            born = int(recorded.allocated[row]) if since is None else since
            self.add(int(recorded.requested[row]), born, until, use)

    def program(self) -> MemoryProgram:
        if not self.rows:
            return self.base
        size, since, until, gathers, use = np.array(self.rows, np.int64).T
        computes = int(np.bincount(self.base.stream).argmax()) if self.base.stream.min() >= 0 else 0
        return self.base.with_rows(
            np.zeros(len(size), np.int64),
            requested=size,
            rest=np.zeros(len(size), np.int64),
            allocated=since,
            freed=until,
            reusable=until,
            stream=np.where(gathers > 0, self.base.stream.max() + 1, computes),
            use=use,
            batched=np.zeros(len(size), bool),
            maybe_batched=np.zeros(len(size), bool),
            source=np.full(len(size), -1),
        )


def _gather(added: _Added, step: _Step, *, again: bool) -> None:
    """Whole parameters, and the buffer that they are gathered in, which lives until the next group has its own.

    ``again`` is: layers free their parameters after the forward and gather them for the backward, one layer ahead.
    """
    rest = step.rest
    behind = [*(each.forward + 1 for each in step.layers), rest.backward]
    ahead = [*(each.backward for each in step.layers), rest.backward][1:]
    added.whole(rest, rest.forward, rest.backward_end, PARAMETER)
    added.add(rest.bytes, rest.forward, behind[0], TEMPORARY, gathers=True)
    for layer, buffered, asked in zip(step.layers, behind[1:], ahead, strict=True):
        added.add(layer.bytes, layer.forward, buffered, TEMPORARY, gathers=True)
        if again:
            added.whole(layer, layer.forward, layer.forward_end, PARAMETER)
            added.add(layer.bytes, asked, layer.backward + 1, TEMPORARY, gathers=True)
            added.whole(layer, layer.backward, layer.backward_end, PARAMETER)
        else:
            added.whole(layer, layer.forward, layer.backward_end, PARAMETER)


def _reduce(added: _Added, step: _Step) -> None:
    """Whole gradients to the end of their group's backward; then the buffer that they are reduced from, until the next."""
    ends = [step.rest.backward_end, *(each.backward_end for each in step.layers)]
    for group, following in zip([*step.layers, step.rest], [*ends[:-1], 0], strict=True):
        end = group.backward_end
        added.whole(group, None, end + 1, TEMPORARY)
        added.add(group.bytes, end, max(following, end + 1), TEMPORARY)


def _with_buckets(program: MemoryProgram, ranks: int, buckets: int) -> MemoryProgram:
    """Whole parameters go to the rank that has the least so far, the largest first; gradients are reduced in buckets."""
    sizes = np.sort(program.requested[(program.use == PARAMETER) & (program.requested > 0)])[::-1]
    held = [0] * ranks
    for size in sizes.tolist():
        heapq.heapreplace(held, held[0] + size)
    fullest = max(held) / max(sum(held), 1) or 1 / ranks
    updates = (program.use == TEMPORARY) & program.born_in(OPTIMIZER)
    added = _Added(program.scaled((program.use == OPTIMIZER_STATE) | updates, fullest))
    added.add(buckets, 0, program.end, TEMPORARY)
    return added.program()


def _largest(program: MemoryProgram, steps: Sequence[_Step]) -> int:
    """The gradients of a step, in bytes."""
    recorded = program.recorded
    stayed = int(recorded.requested[(recorded.use == GRADIENT) & recorded.before].sum())
    return max([stayed, *(sum(group.bytes for group in step.groups) for step in steps)])


def _calls(operators: BlockOperators, names: Sequence[str]) -> bool:
    return any(call.name in names for call in operators.calls)


def _steps(recorded: MemoryProgram) -> list[_Step]:
    segments = find_segments(recorded)
    gradients = np.flatnonzero((recorded.use == GRADIENT) & ~recorded.before & (recorded.requested > 0))
    steps = []
    for first, last in pairwise(recorded.step_bounds.tolist()):
        mine = gradients[(recorded.allocated[gradients] > first) & (recorded.allocated[gradients] <= last)]
        layers = [each for each in segments if first <= each.first(recorded) < last]
        if len(mine):
            steps.append(_step(recorded, layers, mine, first))
    return steps


def _step(
    recorded: MemoryProgram, segments: Sequence[Segment], gradients: NDArray[np.int64], first: int
) -> _Step:
    """The groups of a step: a layer has the parameters whose gradients its backward makes."""
    born = recorded.allocated[gradients]
    left = np.ones(len(gradients), bool)
    layers = []
    for segment in segments:
        begin = backward_begin(recorded, segment)
        kept = segment.rows[segment.rows != segment.result(recorded)]
        end = int(recorded.freed[kept].max(initial=begin))
        own = left & (born > begin) & (born <= end)
        left &= ~own
        size = int(recorded.requested[gradients[own]].sum())
        layers.append(
            _Group(size, segment.first(recorded), segment.last(recorded) + 1, begin, end, gradients[own])
        )
    activations = recorded.allocated[recorded.use == ACTIVATION]
    since = int(activations[activations > first].min(initial=int(born.min()))) - 1
    backward = np.flatnonzero(recorded.activity[since:] == BACKWARD)
    turn = since + int(backward[0]) if len(backward) else int(born.min())
    others = gradients[left]
    rest = _Group(int(recorded.requested[others].sum()), since, turn, turn, int(born.max()) + 1, others)
    return _Step(layers, rest)
