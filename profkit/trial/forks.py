"""Processes that the program forks, as a loader's workers: nothing of a trial is theirs."""

from __future__ import annotations

import os
import weakref
from contextlib import ExitStack

__all__ = ["undone_in_children"]

_open: weakref.WeakSet[ExitStack] = weakref.WeakSet()


def undone_in_children(undo: ExitStack) -> None:
    """Let a process that is forked from now on take back what this one has installed.

    A hook may ask CUDA something, which a forked process must not.
    """
    _open.add(undo)


def _undo() -> None:
    for each in list(_open):
        each.close()


os.register_at_fork(after_in_child=_undo)
