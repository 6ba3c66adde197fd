"""The program's own profilers beside a recording: torch can run one at a time, and crashes with two."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["ForeignProfilers"]


class ForeignProfilers:
    """Watches the profilers that the program starts; while the recording's own is on, they record nothing.

    A profiler that records nothing stays usable: its tables are empty, and so is the trace that it exports.

    Args:
        tell: Told once that a profiler of the program was left out.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._told = False
        self._own_turn = False
        self._running: set[int] = set()
        self._undo: list[Callable[[], None]] = []
        self.ours_is_on = False
        """Whether the recording's own profiler warms up or records."""

    @property
    def active(self) -> bool:
        """Whether a profiler of the program warms up or records now."""
        from torch.autograd import profiler

        return bool(self._running) or (profiler._is_profiler_enabled and not self.ours_is_on)

    @contextmanager
    def own(self) -> Iterator[None]:
        """For calls of the recording's own profiler."""
        self._own_turn = True
        try:
            yield
        finally:
            self._own_turn = False

    def watch(self) -> None:
        """Begin to watch."""
        from torch.autograd.profiler import profile

        for name, replacement in (
            ("_prepare_trace", self._beginning),
            ("_start_trace", self._beginning),
            ("__exit__", self._ending),
            ("export_chrome_trace", _exporting),
        ):
            original = getattr(profile, name, None)
            if original is not None:
                setattr(profile, name, functools.wraps(original)(replacement(original)))
                self._undo.append(functools.partial(setattr, profile, name, original))

    def unwatch(self) -> None:
        """Leave torch as it was. What was left out stays so, and still exports."""
        while len(self._undo) > 1:
            self._undo.pop(0)()
        if self._undo and not self._told:
            self._undo.pop()()

    def _beginning(self, original: Any) -> Any:
        def begin(profile: Any) -> Any:
            if self._own_turn:
                return original(profile)
            if self.ours_is_on and id(profile) not in self._running:
                self._leave_out(profile)
            if not profile.enabled:
                return None
            self._running.add(id(profile))
            return original(profile)

        return begin

    def _ending(self, original: Any) -> Any:
        def end(profile: Any, *error: Any) -> Any:
            if not self._own_turn:
                self._running.discard(id(profile))
            return original(profile, *error)

        return end

    def _leave_out(self, profile: Any) -> None:
        from torch.autograd.profiler_util import EventList

        profile.enabled = False  # torch's own word for a profiler that does nothing
        profile._needs_processing = False
        profile._function_events = EventList([])
        profile._function_events._build_tree()
        if not self._told:
            self._told = True
            self._tell(
                "the program's own torch profiler records nothing, and its tables and traces are empty: this recording was first,"
                " and torch runs one profiler at a time"
            )


def _exporting(original: Any) -> Any:
    def export(profile: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        if profile.enabled:
            return original(profile, path, *args, **kwargs)
        Path(path).write_text(json.dumps({"traceEvents": []}), encoding="utf-8")
        return None

    return export
