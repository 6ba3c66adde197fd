"""How a recording tells the person that something is missing, without hurting the program."""

from __future__ import annotations

import sys
import warnings

__all__ = ["RecordingWarning", "plain_lines", "warn"]

_plain = False


class RecordingWarning(UserWarning):
    """Something of a recording is missing or incomplete. The program itself is not affected."""


def warn(problem: str) -> None:
    """Warn; also where warnings are errors, the program goes on."""
    message = f"profkit: {problem}"
    if _plain:
        sys.stderr.write(message + "\n")
        return
    try:
        warnings.warn(message, RecordingWarning, stacklevel=_outside())
    except RecordingWarning:
        sys.stderr.write(message + "\n")


def plain_lines() -> None:
    """Write lines instead of warnings from now on: in an unedited program they would quote a line that is not at fault."""
    global _plain
    _plain = True


def _outside() -> int:
    """The stack level, seen from `warn`, of the first caller that is not profkit's own code."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("profkit."):
        frame, level = frame.f_back, level + 1
    return level
