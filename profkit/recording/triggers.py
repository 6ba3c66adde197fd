"""A recording on demand: by a signal, a touched file, or a slow step."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, Final, Protocol

__all__ = ["REQUEST_SIGNAL", "Trigger", "make_trigger"]

REQUEST_SIGNAL: Final = signal.SIGUSR2
"""SIGUSR1 is what clusters send before they take a machine away."""


class Trigger(Protocol):
    """Asks for a recording."""

    asked_by: str
    """For messages."""

    def fired(self, step_ns: int) -> bool:
        """Whether a recording is wanted after a step that took so long; each request is told once."""

    def close(self) -> None:
        """Listen no more."""


def make_trigger(on: str | None, slower_than_s: float | None) -> Trigger | None:
    """The trigger of ``on="signal"``, of another ``on``, which is a file's path, or of slow steps; None without."""
    if slower_than_s is not None:
        return _SlowStep(slower_than_s)
    if not on:
        return None
    return _Signal() if on == "signal" else _TouchedFile(Path(on).absolute())


class _Signal:
    asked_by = f"the signal {REQUEST_SIGNAL.name}"

    def __init__(self) -> None:
        self._asked = False
        self._before: Any = signal.signal(REQUEST_SIGNAL, self._receive)

    def fired(self, step_ns: int) -> bool:
        """Whether the signal came since the last call."""
        asked, self._asked = self._asked, False
        return asked

    def close(self) -> None:
        """Let the program's own handler stand again."""
        if signal.getsignal(REQUEST_SIGNAL) == self._receive:
            signal.signal(REQUEST_SIGNAL, self._before)

    def _receive(self, number: int, frame: Any) -> None:
        self._asked = True
        if callable(self._before):
            self._before(number, frame)


class _TouchedFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.asked_by = f"touching {path}"
        self._seen_ns = self._touched_ns()

    def fired(self, step_ns: int) -> bool:
        """Whether the file was made or touched since the last call."""
        before, self._seen_ns = self._seen_ns, self._touched_ns()
        return self._seen_ns is not None and self._seen_ns != before

    def close(self) -> None:
        """Nothing is held."""

    def _touched_ns(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except (OSError, ValueError):
            return None


class _SlowStep:
    def __init__(self, seconds: float) -> None:
        self._ns = seconds * 1e9
        self._first = True
        self.asked_by = f"a step of more than {seconds:g} s"

    def fired(self, step_ns: int) -> bool:
        """Whether the step was slow; the first one does not count, since it holds the program's start."""
        first, self._first = self._first, False
        return step_ns > self._ns and not first

    def close(self) -> None:
        """Nothing is held."""
