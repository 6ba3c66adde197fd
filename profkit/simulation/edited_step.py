"""A program that is being changed: operations retimed or dropped, host time taken off or put on."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profkit.simulation.constants import Constants
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.step_program import LAUNCH, Program

__all__ = ["EditedStep"]

_PAUSE: Final = 100.0
"""In usual launches: more host time before a launch is the program's own (an optimizer's Python takes up to 80)."""

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


class EditedStep:
    """A step under change. Rows stay those of its facts; `program` gives what is left of it.

    Attributes:
        facts: What is known of the step as recorded.
        constants: What is assumed of everything else.
        duration_ns: Of each operation; a change sets it.
        bytes: Of each operation, as far as known.
        alive: Which operations are left.
        gap_ns: Host time before each token.
        own_ns: Host time of each token.
    """

    def __init__(self, facts: StepFacts, program: Program, constants: Constants) -> None:
        self.facts, self.constants = facts, constants
        self._program = program
        self.duration_ns = program.duration_ns.astype(float)
        self.bytes = facts.bytes.copy()
        self.dtype = facts.dtype.copy()
        self.lead_ns = program.lead_ns.astype(float)
        self.stream = program.stream.copy()
        self.after = program.after.copy()
        self.early_ns = program.early_ns.astype(float)
        self.alive = np.ones(facts.count, bool)
        self.gap_ns = program.gap_ns.astype(float)
        self.own_ns = program.own_ns.astype(float)
        self.input_ns = np.minimum(program.input_ns, program.gap_ns).astype(float)
        self.allocation_ns = np.minimum(program.allocation_ns, program.gap_ns).astype(float)
        self.work_ns = np.minimum(program.work_ns, program.gap_ns).astype(float)
        self.waits = program.kind != LAUNCH
        self.held = program.held.copy()
        self.graphed = False
        self.usual_launch_ns = facts.usual_launch_ns(program)
        whole = self.launching_ns
        pause = np.maximum(whole - _PAUSE * self.usual_launch_ns, 0.0)
        self.pause_ns = np.minimum(pause, np.maximum(self.gap_ns - self.kept_ns, 0.0))
        """What the program itself does before each launch, as far as it is far more than launching takes."""
        self.least_ns = 0.0
        """A bound from outside the step, such as a loader that delivers no faster."""

    @property
    def kept_ns(self) -> Floats:
        """Of the gap before each token: what has nothing to do with launching (data, allocation, the program's work)."""
        kept: Floats = np.minimum(self.input_ns + self.allocation_ns + self.work_ns, self.gap_ns)
        return kept

    def drop(self, chosen: Flags, *, host: float = 0.0, within: bool = False) -> None:
        """Take operations out, and the host time of launches that have none left.

        Args:
            chosen: Which operations.
            host: The share of their host time that stays.
            within: They are launched inside operators that stay: what led to the first of each run was the way into
                the operator, and stays too.
        """
        before = self._launched()
        self.alive &= ~chosen
        gone = (before > 0) & (self._launched() == 0)
        fixed = np.minimum(self.kept_ns + self.pause_ns, self.gap_ns)
        if within:
            first = gone & ~np.concatenate(([False], gone[:-1]))
            fixed = np.where(first, self.gap_ns, fixed)
        self.gap_ns = np.where(gone, fixed + (self.gap_ns - fixed) * host, self.gap_ns)
        self.own_ns = np.where(gone, self.own_ns * host, self.own_ns)

    def scale_host(self, chosen: Flags, factor: float) -> None:
        """Multiply the host time of the launches of some operations."""
        tokens = np.unique(self.facts.token[chosen & self.alive])
        fixed = self.kept_ns[tokens]
        self.gap_ns[tokens] = fixed + (self.gap_ns[tokens] - fixed) * factor
        self.own_ns[tokens] *= factor

    def host_ns(self, tokens: NDArray[np.int64]) -> float:
        """Host time of some tokens: without fetching data, allocating and the program's own work."""
        return float(self.launching_ns[tokens].sum())

    @property
    def launching_ns(self) -> Floats:
        """Host time of each token: without fetching data, allocating and the program's own work."""
        launching: Floats = self.gap_ns - self.kept_ns + self.own_ns
        return launching

    def give_host(self, tokens: NDArray[np.int64], host_ns: Floats | float) -> None:
        """Give each of some launches so much host time; what they fetch, allocate or work stays."""
        fixed = self.kept_ns[tokens]
        self.own_ns[tokens] = np.minimum(self.own_ns[tokens], host_ns)
        self.gap_ns[tokens] = fixed + host_ns - self.own_ns[tokens]

    def add(self, row: int, device_ns: float, host_ns: float) -> None:
        """Put work before an operation: device time, and host time before its launch."""
        self.duration_ns[row] += device_ns
        self.gap_ns[self.facts.token[row]] += host_ns

    def retime(self, chosen: Flags, ns: Floats) -> None:
        """Give operations new durations: never longer than they were."""
        self.duration_ns = np.where(chosen, np.minimum(ns, self.duration_ns), self.duration_ns)

    def program(self) -> Program:
        """What is left, as a program to replay."""
        return self._as_graph() if self.graphed else self._compacted()

    def _launched(self) -> NDArray[np.int64]:
        """How many operations each token has left."""
        return np.bincount(self.facts.token[self.alive], minlength=self._program.tokens)

    def _compacted(self) -> Program:
        launched = self._launched()
        last = np.arange(self._program.tokens) == self._program.tokens - 1
        stays = self.waits | (launched > 0) | last
        # Host time before a token that is gone passes to the next that stays.
        owner = np.searchsorted(np.flatnonzero(stays), np.arange(len(stays)))
        gap = np.bincount(owner, self.gap_ns + np.where(stays, 0.0, self.own_ns))
        return replace(
            self._program,
            kind=self._program.kind[stays],
            gap_ns=np.maximum(gap, 0).astype(np.int64),
            own_ns=np.maximum(self.own_ns[stays], 0).astype(np.int64),
            work_ns=self.work_ns[stays].astype(np.int64),
            profiler_ns=self._program.profiler_ns[stays],
            held=self.held[stays],
            unawaited=self._program.unawaited[stays],
            first=np.concatenate(([0], np.cumsum(launched[stays]))),
            call=self._program.call[stays],
            input_ns=self.input_ns[stays].astype(np.int64),
            allocation_ns=self.allocation_ns[stays].astype(np.int64),
            ranges=self._program.ranges[stays],
            calls=self._program.calls[stays],
            **self._operations()._asdict(),
        )

    def _operations(self) -> _Operations:
        place = np.cumsum(self.alive) - 1
        after = self.after[self.alive]
        kept = (after >= 0) & self.alive[after]
        return _Operations(
            row=self._program.row[self.alive],
            duration_ns=np.maximum(self.duration_ns[self.alive], 0).astype(np.int64),
            stream=self.stream[self.alive],
            lead_ns=np.maximum(self.lead_ns[self.alive], 0).astype(np.int64),
            early_ns=np.maximum(self.early_ns[self.alive], 0).astype(np.int64),
            after=np.where(kept, place[after], -1),
        )

    def _as_graph(self) -> Program:
        """One launch for everything, with the time that the host needs for anything else."""
        parts = self._operations()
        count, none = len(parts.row), np.zeros(1, np.int64)
        parts = parts._replace(
            lead_ns=np.full(count, int(self.constants.node_ns), np.int64), early_ns=np.zeros(count, np.int64)
        )
        fixed = float(np.minimum(self.kept_ns + self.pause_ns, self.gap_ns).sum())
        return replace(
            self._program,
            kind=np.array([LAUNCH], np.int8),
            gap_ns=np.array([int(fixed)], np.int64),
            own_ns=np.array([int(self.usual_launch_ns)], np.int64),
            first=np.array([0, count], np.int64),
            call=np.array([-1], np.int64),
            held=np.zeros(1, bool),
            unawaited=none,
            input_ns=none,
            allocation_ns=none,
            work_ns=none,
            profiler_ns=none,
            ranges=none,
            calls=none,
            **parts._asdict(),
        )


class _Operations(NamedTuple):
    """The columns of a program that have one row for each operation."""

    row: NDArray[np.int64]
    duration_ns: NDArray[np.int64]
    stream: NDArray[np.int64]
    lead_ns: NDArray[np.int64]
    early_ns: NDArray[np.int64]
    after: NDArray[np.int64]
