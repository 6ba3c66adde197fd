"""Where a step ends: outside of the program's ranges and of backward, so that no phase holds the recorder's own work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from profkit.recording.program_events import Kind, in_backward

__all__ = ["StepEnds"]


class StepEnds:
    """Puts the end of a step off until nothing is open that was opened within the step.

    A range that holds several steps is known by that a second step ends in it, and counts no more.

    Args:
        act: Ends the step, on the recording's thread.
        movable: Whether the recording may still go over to the thread that trains: no profiler has started.
    """

    kinds: tuple[Kind, ...] = (Kind.RANGE, Kind.BACKWARD)

    def __init__(self, act: Callable[[], None], movable: Callable[[], bool]) -> None:
        self._act = act
        self._movable = movable
        self._thread = threading.get_ident()
        self._depth = 0
        self._level = 0
        """How many open ranges hold whole steps."""
        self._pending = False
        self._lowest = 0

    def end(self) -> bool:
        """A step is over by the program's own word: end it here, unless that is within backward.

        Returns:
            Whether it could be ended, now or soon; False on a thread that is not the recording's.
        """
        if in_backward():
            self._put_off()
        elif self._mine():
            self._pending = True
            self._do()
        else:
            return False
        return True

    def end_outside(self) -> bool:
        """A step is over by what a hook has heard: end it as soon as nothing is open; as `end`."""
        if not in_backward() and not self._mine():
            return False
        self._put_off()
        if not in_backward() and self._depth <= self._level:
            self._do()
        return True

    def finish(self) -> None:
        """End the step that waits for its end; the recording stops."""
        if self._pending and not in_backward():
            self._do()

    def entered(self, kind: Kind, subject: Any) -> None:
        """Something opens: a step that waits ends before it, if nothing else is open."""
        if threading.get_ident() == self._thread and not _of_profiler(kind, subject):
            if self._pending and self._depth <= self._level and not in_backward():
                self._do()
            self._depth += 1

    def left(self, kind: Kind, subject: Any, values: Any = None) -> None:
        """Something closes: a step that waits ends after it, if nothing else is open."""
        if threading.get_ident() == self._thread and not _of_profiler(kind, subject):
            self._depth = max(0, self._depth - 1)  # it may have been opened before the recording
            self._lowest = min(self._lowest, self._depth)
            if self._pending and self._depth <= self._level and not in_backward():
                self._do()

    def _put_off(self) -> None:
        if self._pending:
            self._level = max(self._level, self._lowest)
        self._pending = True
        self._lowest = self._depth

    def _do(self) -> None:
        self._pending = False
        self._level = self._depth
        self._act()

    def _mine(self) -> bool:
        if threading.get_ident() != self._thread and self._movable():
            self._thread, self._depth = threading.get_ident(), 0
        return threading.get_ident() == self._thread


def _of_profiler(kind: Kind, subject: Any) -> bool:
    return kind is Kind.RANGE and getattr(subject, "name", "").startswith("ProfilerStep#")
