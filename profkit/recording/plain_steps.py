"""The step time without any profiler, which tells the profiler's own cost later."""

from __future__ import annotations

import time
from typing import Any, Final

from profkit.recording.stages import Stage

__all__ = ["PlainSteps"]

MAX_STEPS: Final = 50
"""A run that waits for a request may wait for days; the first steps tell as much."""


class PlainSteps:
    """Times the steps that wait for the first cycle, without waiting for the GPU.

    On a GPU the time is between two CUDA events, so a step that only queues work is timed by that work. The
    very first step is left out when there is another: it allocates, compiles and tunes.
    """

    name = "the plain step time"

    def __init__(self) -> None:
        self._marks: list[tuple[int, Any]] = []
        self._done = False
        self._interrupted: set[int] = set()

    def start(self, stage: Stage) -> None:
        """The first waiting step begins."""
        if stage is Stage.WAIT:
            self._mark()
        else:
            self._done = True

    def step(self, step: int, stage: Stage, following: Stage) -> None:
        """A waiting step is over."""
        if self._done or len(self._marks) > MAX_STEPS:
            return
        self._mark()
        self._done = following is not Stage.WAIT

    def leave_step(self) -> None:
        """Something that is no step lies in the time that runs now: it does not count."""
        self._interrupted.add(len(self._marks))

    def stop(self, stage: Stage) -> None:
        """Nothing is left to do."""
        self._done = True

    def times_ns(self) -> list[int]:
        """The steps' times; empty when no step waited or only a cold first one did."""
        pairs = enumerate(zip(self._marks, self._marks[1:], strict=False), 1)
        return [_between_ns(*pair) for at, pair in pairs if at > 1 and at not in self._interrupted]

    def _mark(self) -> None:
        import torch

        event = None
        if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
            event = torch.cuda.Event(enable_timing=True)
            event.record()
        self._marks.append((time.perf_counter_ns(), event))


def _between_ns(start: tuple[int, Any], end: tuple[int, Any]) -> int:
    if start[1] is None or end[1] is None:
        return end[0] - start[0]
    end[1].synchronize()
    milliseconds: float = start[1].elapsed_time(end[1])
    return round(milliseconds * 1e6)
