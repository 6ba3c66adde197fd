"""How a recording tells the person that something is missing, without hurting the program."""

from __future__ import annotations

import sys
import warnings

__all__ = ["RecordingWarning", "warn"]


class RecordingWarning(UserWarning):
    """Something of a recording is missing or incomplete. The program itself is not affected."""


def warn(problem: str) -> None:
    """Warn; also where warnings are errors, the program goes on."""
    message = f"profkit: {problem}"
    try:
        warnings.warn(message, RecordingWarning, stacklevel=3)
    except RecordingWarning:
        sys.stderr.write(message + "\n")
