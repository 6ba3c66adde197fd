"""The stages of a recording: what a step is for, and what takes part in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

__all__ = ["Part", "Schedule", "Stage", "schedule_problem"]


class Stage(Enum):
    """What the step that runs now is for."""

    WAIT = "wait"
    """It runs without any profiler; its time is the program's own."""
    WARMUP = "warmup"
    """The profiler is on, and what it sees is thrown away."""
    ACTIVE = "active"
    """It is recorded."""
    DONE = "done"
    """All cycles are over."""


@dataclass(kw_only=True)
class Schedule:
    """Which steps are recorded: ``wait`` + ``warmup`` + ``steps`` make a cycle, ``repeat`` times (0: for ever)."""

    wait: int
    warmup: int
    steps: int | None
    """None: everything from start to end, whatever the steps are."""
    repeat: int
    on_request: bool = False
    """Each request records one cycle, from `begin` on; ``repeat`` does not count."""
    begin: int | None = 0
    """The step with which the first cycle begins; None while nothing was asked for."""

    @property
    def cycle(self) -> int:
        """Steps in one cycle; 0 without a schedule."""
        return 0 if self.steps is None else self.wait + self.warmup + self.steps

    def stage(self, step: int) -> Stage:
        """What step number ``step`` is for, counted from 0."""
        if self.steps is None:
            return Stage.ACTIVE
        if self.begin is None or step < self.begin:
            return Stage.WAIT
        cycle, place = divmod(step - self.begin, self.cycle)
        if self.on_request and cycle:
            return Stage.WAIT
        if self.repeat and cycle >= self.repeat:
            return Stage.DONE
        if place < self.wait:
            return Stage.WAIT
        return Stage.WARMUP if place < self.wait + self.warmup else Stage.ACTIVE

    def ends_cycle(self, step: int) -> bool:
        """Whether step number ``step`` is the last that its cycle records."""
        return (
            self.steps is not None
            and self.stage(step) is Stage.ACTIVE
            and (step - (self.begin or 0)) % self.cycle == self.cycle - 1
        )


def schedule_problem(wait: int, warmup: int, steps: int | None, repeat: int, every: int | None) -> str | None:
    """Why these numbers make no schedule; None where they make one."""
    least = {"warmup": (warmup, 0), "repeat": (repeat, 0)}
    if steps is not None:
        least |= {"steps": (steps, 1)}
    for name, (value, minimum) in least.items():
        if type(value) is not int or value < minimum:
            return f"{name} is {value!r}, which is not a whole number from {minimum} on"
    if every is not None and steps is not None and wait < 0:
        return f"every is {every}, less than warmup + steps ({warmup} + {steps})"
    if type(wait) is not int or wait < 0:
        return f"wait is {wait!r}, which is not a whole number from 0 on"
    return None


class Part(Protocol):
    """Something that takes part in a recording. A part that raises is left out of the rest of it."""

    name: str
    """For messages: ``torch.profiler``, ``the memory history``..."""

    def start(self, stage: Stage) -> None:
        """The recording starts; step 0 is for ``stage``."""

    def step(self, step: int, stage: Stage, following: Stage) -> None:
        """Step number ``step``, which was for ``stage``, is over; the next is for ``following``."""

    def leave_step(self) -> None:
        """The step that runs is over before the next begins: what follows is in neither. Then `step` is called."""

    def stop(self, stage: Stage) -> None:
        """The recording stops within a step for ``stage``."""
