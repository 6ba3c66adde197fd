"""The blocks of a recorded memory history, ready to be changed: what each is for, and what it depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.memory.block_sizes import AllocatorRules
from profkit.memory.categories import (
    ACTIVATION,
    BACKWARD,
    GRADIENT,
    OPTIMIZER,
    TEMPORARY,
    UNKNOWN_USE,
    activity_of,
    categorise,
)
from profkit.memory.owners import Owners
from profkit.memory.phase_memory import Stretches, find_stretches
from profkit.memory.replay import DeviceReplay, curve_of, replay
from profkit.model import IntColumn
from profkit.model.memory_history import MemoryHistory
from profkit.model.report_memory import PhaseSpan

__all__ = ["MemoryProgram", "memory_program"]


@dataclass(frozen=True, eq=False)
class MemoryProgram:
    """The blocks of one device, one row each; a change makes a new program. Positions are states of the replay.

    A row exists in the states ``allocated <= state < freed``, and its place is taken until ``reusable``.
    """

    history: MemoryHistory
    replayed: DeviceReplay
    owners: Owners
    stretches: Stretches
    activity: NDArray[np.int64]
    """For each event of the replay, as `activity_of` says."""
    requested: IntColumn
    rest: IntColumn
    """What the block is larger than its rounded request: too little to be split off."""
    allocated: IntColumn
    freed: IntColumn
    reusable: IntColumn
    stack: IntColumn
    stream: IntColumn
    use: IntColumn
    """Index in `CATEGORIES`."""
    batched: NDArray[np.bool_]
    """Whether its size has the batch in it."""
    maybe_batched: NDArray[np.bool_]
    """Whether it may be so all the same: inputs from before the history, and buffers of the size of a gradient."""
    source: IntColumn
    """The recorded row that it stands for, also of rows that a change added; -1 is none."""
    origin: MemoryProgram | None = None
    """The program as it was recorded; None when this is it."""

    @property
    def end(self) -> int:
        """One past the last state."""
        return len(self.replayed.allocated)

    @property
    def recorded(self) -> MemoryProgram:
        """The program as it was recorded, before any change."""
        return self.origin or self

    @property
    def rules(self) -> AllocatorRules:
        """The settings of the allocator that recorded it."""
        return self.replayed.rules

    @property
    def bytes(self) -> NDArray[np.int64]:
        """The size of each row's block; 0 for a request of 0."""
        sizes = self.rules.rounded(self.requested) + self.rest
        taken: NDArray[np.int64] = np.where(self.requested > 0, sizes, 0)
        return taken

    @property
    def before(self) -> NDArray[np.bool_]:
        """Which rows were there before the first event."""
        old: NDArray[np.bool_] = self.allocated == 0
        return old

    def born_in(self, activity: int) -> NDArray[np.bool_]:
        """Which rows were allocated while the program was in a backward pass or in an optimizer step."""
        born = np.clip(self.allocated - 1, 0, len(self.activity) - 1)
        found: NDArray[np.bool_] = ~self.before & (self.activity[born] == activity)
        return found

    @cached_property
    def makes_gradients(self) -> NDArray[np.bool_]:
        """For each event whether it allocates a weight's gradient, or what has the size of one in a backward pass."""
        made = (self.use == GRADIENT) | (self.born_in(BACKWARD) & self.maybe_batched)
        found = np.zeros(self.end, bool)
        found[self.allocated[made & ~self.before] - 1] = True
        return found

    def curve(self) -> NDArray[np.int64]:
        """Allocated bytes in each state."""
        return curve_of(self.bytes, self.allocated, self.freed, self.end)

    @property
    def step_bounds(self) -> IntColumn:
        """The states between which steps lie: as marked, and behind the last mark where the optimizer's stacks end."""
        marked = self.stretches.steps or self.stretches.optimizer
        lasts = [step.last for step in marked if step.last > 0]
        updates = np.flatnonzero(np.diff((self.activity == OPTIMIZER).astype(np.int8), append=0) < 0) + 1
        later = updates[updates > max(lasts, default=0)]
        return np.unique([0, *lasts, *later.tolist(), self.end])

    def peak_bytes(self) -> int:
        """The most that is allocated at once."""
        return int(self.curve().max())

    def like(self, recorded: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Flags of recorded rows, given to the rows that stand for them."""
        padded = np.append(recorded, False)
        found: NDArray[np.bool_] = padded[self.source]
        return found

    def scaled(self, rows: NDArray[np.bool_], factor: float) -> MemoryProgram:
        """With some rows that much larger."""
        return self.scaled_by(np.where(rows, factor, 1.0))

    def scaled_by(self, factors: NDArray[np.float64]) -> MemoryProgram:
        """With each row so many times as large."""
        changed = factors != 1
        sizes = np.where(changed, np.ceil(self.requested * factors), self.requested).astype(np.int64)
        return self.with_columns(requested=sizes, rest=np.where(changed, 0, self.rest))

    def without(self, rows: NDArray[np.bool_]) -> MemoryProgram:
        """With some rows gone."""
        return replace(self, requested=np.where(rows, 0, self.requested), rest=np.where(rows, 0, self.rest))

    def with_rows(self, rows: IntColumn, **columns: NDArray[Any]) -> MemoryProgram:
        """With copies of some rows, changed in the columns that are given."""
        added: dict[str, NDArray[Any]] = {
            name: np.concatenate([getattr(self, name), columns.get(name, getattr(self, name)[rows])])
            for name in _COLUMNS
        }
        return self.with_columns(**added)

    def with_columns(self, **columns: Any) -> MemoryProgram:
        """With other columns; what was recorded is remembered."""
        return replace(self, origin=self.recorded, **columns)


_COLUMNS: Final = (
    "requested",
    "rest",
    "allocated",
    "freed",
    "reusable",
    "stack",
    "stream",
    "use",
    "batched",
    "maybe_batched",
    "source",
)


def memory_program(history: MemoryHistory, phases: Sequence[PhaseSpan] = ()) -> MemoryProgram | None:
    """The blocks of the fullest device of a history; None where no history was recorded.

    Args:
        history: A snapshot.
        phases: Phases of a trace of the same process, in Unix time, for snapshots without annotations.
    """
    recorded = [each for each in replay(history) if each.recorded]
    if not recorded:
        return None
    replayed = max(recorded, key=lambda each: int(each.allocated.max()))
    owners = Owners(history)
    stretches = find_stretches(history, replayed, phases)
    activity = activity_of(replayed, stretches, owners)
    lives = replayed.lifetimes
    program = MemoryProgram(
        history=history,
        replayed=replayed,
        owners=owners,
        stretches=stretches,
        activity=activity,
        requested=lives.requested,
        rest=np.maximum(lives.bytes - replayed.rules.rounded(lives.requested), 0),
        allocated=lives.allocated,
        freed=lives.freed,
        reusable=lives.reusable,
        stack=lives.stack,
        stream=lives.stream,
        use=categorise(history, replayed, activity, owners),
        batched=np.zeros(len(lives), bool),
        maybe_batched=np.zeros(len(lives), bool),
        source=np.arange(len(lives)),
    )
    batched, maybe = _batched(program)
    return replace(program, batched=batched, maybe_batched=maybe)


def _batched(program: MemoryProgram) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows have the batch in their size, and which may have.

    Activations have, and so have temporaries. But what a backward pass makes of the size of a gradient, and of no
    activation's size, is the gradient of a weight on its way.
    """
    use, requested = program.use, program.requested
    activations = use == ACTIVATION
    like_gradient = np.isin(requested, np.unique(requested[use == GRADIENT]))
    like_activation = np.isin(requested, np.unique(requested[activations]))
    temporary = (use == TEMPORARY) & ~program.born_in(OPTIMIZER)
    weights = temporary & program.born_in(BACKWARD) & like_gradient & ~like_activation
    inputs = (use == UNKNOWN_USE) & ~program.before & (program.freed < program.end)
    unexplained = (use == UNKNOWN_USE) & program.before
    return activations | (temporary & ~weights) | inputs, unexplained | weights
