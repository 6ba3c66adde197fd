"""The training steps of an unedited script: by the optimizer that runs, or what else repeats."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, Final

from profkit.recording.program_events import Kind, in_backward

__all__ = ["STEP_MARKS", "StepFinder"]

STEP_MARKS: Final = ("optimizer", "backward", "module", "loader")
"""What a step can be counted by."""

_BACKWARDS_BEFORE_FALLBACK: Final = 2
"""A program whose second backward ends without an optimizer of torch updates its weights by hand."""


class StepFinder:
    """Tells of each training step of a program that says nothing of them.

    Args:
        stepped: Called at the end of each step.
        by: What ends a step: the optimizer (without any: backward), or one of `STEP_MARKS`.
        every: How many of those make a step.
    """

    def __init__(self, stepped: Callable[[], None], by: str | None = None, every: int = 1) -> None:
        self._stepped, self._by, self._every = stepped, by or "optimizer", every
        self._may_fall_back = by is None
        self._leader = _Leader()
        self._count = 0
        self._depth = 0
        self._begun = self._trains = False
        self.heard: Counter[str] = Counter()
        """How often what was heard: for a recording without steps, to say why."""
        self.kinds: tuple[Kind, ...] = (Kind.OPTIMIZER, Kind.BACKWARD)
        if by in ("module", "loader"):
            self.kinds += (Kind(by),)

    def entered(self, kind: Kind, subject: Any) -> None:
        """A step by module or loader ends where the next one begins."""
        if kind is Kind.MODULE:
            self._depth += 1
            if self._depth == 1 and not in_backward():
                self._next(id(subject))
        elif kind is Kind.LOADER:
            trains = _with_gradients()
            self._trains |= trains
            if trains or not self._trains:  # evaluation is no step of a program that trains
                self._next((id(subject._index_sampler), trains))

    def left(self, kind: Kind, subject: Any, values: Any = None) -> None:
        """A step by optimizer or backward ends with it."""
        if kind is Kind.MODULE:
            self._depth = max(0, self._depth - 1)
            return
        self.heard[kind.value] += 1
        if kind is Kind.BACKWARD and self._may_fall_back and self._nothing_updates():
            self._by, self._may_fall_back = "backward", False
        if kind is Kind.OPTIMIZER:
            self._may_fall_back = False
        if kind.value == self._by and (kind is Kind.BACKWARD or self._leader.is_at(id(subject))):
            self._ended()

    def _nothing_updates(self) -> bool:
        if self.heard["optimizer"] or self.heard["backward"] != _BACKWARDS_BEFORE_FALLBACK:
            return False
        from torch.optim import Optimizer

        return not any(issubclass(type(each), Optimizer) for each in gc.get_objects())

    def _next(self, key: Hashable) -> None:
        if self._leader.is_at(key):
            if self._begun:
                self._ended()
            self._begun = True

    def _ended(self) -> None:
        self._count += 1
        if self._count % self._every == 0:
            self._stepped()


class _Leader:
    """Which one of several ends a step: the first that ran, until it goes quiet."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._others: Counter[Hashable] = Counter()
        self._most = 0

    def is_at(self, key: Hashable) -> bool:
        """Note that ``key`` ran; whether it leads."""
        if self._key is None:
            self._key = key
        if key != self._key:
            self._others[key] += 1
            if self._others[key] <= 2 * self._most + 2:
                return False
            self._key = key
        else:
            self._most = max([self._most, *self._others.values()])
        self._others.clear()
        return True


def _with_gradients() -> bool:
    import torch

    return bool(torch.is_grad_enabled())
