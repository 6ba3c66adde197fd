"""Where a step ends: outside of the program's ranges and of backward, so that no phase holds the recorder's own work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from profkit.recording.program_events import Kind, in_backward

__all__ = ["Evaluations", "StepEnds"]


class StepEnds:
    """Puts the end of a step off until nothing is open that was opened within the step.

    A step that a hook has heard to end, of a program whose phases are heard, lasts until the next of them begins: what
    the loop does behind the optimizer is its own. A range that holds several steps is known by that a second step ends
    in it, and counts no more.

    Args:
        act: Ends the step, on the recording's thread, and begins the next.
        plain: Whether no profiler has started: the recording may still go over to the thread that trains, and no phase
            will be heard.
        leave: Ends the step alone: what follows is in none, until ``act``.
    """

    kinds: tuple[Kind, ...] = (Kind.RANGE, Kind.BACKWARD)

    def __init__(
        self,
        act: Callable[[], None],
        plain: Callable[[], bool],
        leave: Callable[[], None],
    ) -> None:
        self._act, self._plain, self._leave = act, plain, leave
        self._thread = threading.get_ident()
        self._depth = 0
        self._level = 0
        """How many open ranges hold whole steps."""
        self._pending = self._until_next = self._away = False
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
        if self._until_next:
            self._do_if_outside()  # nothing was heard since
        self._put_off()
        self._until_next = not self._plain()
        if not self._until_next:
            self._do_if_outside()
        return True

    def finish(self) -> None:
        """End the step that waits for its end; the recording stops."""
        if self._pending and not in_backward():
            self._do()

    def entered(self, kind: Kind, subject: Any) -> None:
        """Something opens: a step that waits ends before it, if nothing else is open."""
        if threading.get_ident() == self._thread and not _is_no_phase(kind, subject):
            self._do_if_outside()
            self._depth += 1

    def left(self, kind: Kind, subject: Any, values: Any = None) -> None:
        """Something closes: a step that waits ends after it, if nothing else is open."""
        if threading.get_ident() == self._thread and not _is_no_phase(kind, subject):
            self._depth = max(0, self._depth - 1)  # it may have been opened before the recording
            self._lowest = min(self._lowest, self._depth)
            if not self._until_next or self._depth < self._level:
                self._do_if_outside()

    def evaluation_began(self) -> None:
        """An evaluation begins: it is in no step, if it lies between two."""
        if threading.get_ident() != self._thread or self._away:
            return
        between = self._pending and self._depth <= self._level and not in_backward()
        if between or self._plain():
            self._away = True
            self._leave()

    def evaluation_ended(self) -> None:
        """An evaluation ends, and a step begins."""
        if threading.get_ident() == self._thread and self._away:
            self._away = False
            self._do_if_outside()

    def _put_off(self) -> None:
        if self._pending:
            self._level = max(self._level, self._lowest)
        self._pending = True
        self._lowest = self._depth

    def _do_if_outside(self) -> None:
        if self._pending and not self._away and self._depth <= self._level and not in_backward():
            self._do()

    def _do(self) -> None:
        self._pending = self._until_next = self._away = False
        self._level = self._depth
        self._act()

    def _mine(self) -> bool:
        if threading.get_ident() != self._thread and self._plain():
            self._thread, self._depth = threading.get_ident(), 0
        return threading.get_ident() == self._thread


class Evaluations:
    """Hears the evaluations that a training framework runs, which are in no step."""

    kinds: tuple[Kind, ...] = (Kind.EVALUATION,)

    def __init__(self, ends: StepEnds) -> None:
        self._ends = ends

    def entered(self, kind: Kind, subject: Any) -> None:
        """An evaluation begins."""
        self._ends.evaluation_began()

    def left(self, kind: Kind, subject: Any, values: Any = None) -> None:
        """An evaluation ends."""
        self._ends.evaluation_ended()


def _is_no_phase(kind: Kind, subject: Any) -> bool:
    """Torch's own marks of a step, and of ``zero_grad``, which ends a loop as often as it begins one."""
    return kind is Kind.RANGE and getattr(subject, "name", "").startswith(
        ("ProfilerStep#", "Optimizer.zero_grad#")
    )
