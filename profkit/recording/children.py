"""Processes that a recorded program starts through `multiprocessing`: those that train are recorded too."""

from __future__ import annotations

import functools
import importlib
import multiprocessing.process
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Final

from profkit.recording.program_events import Kind, forget_listeners, listen, unlisten

__all__ = ["record_children"]

_LIBRARIES: Final = ("torch", "multiprocessing", "concurrent", "joblib", "loky")
"""Whose processes load data, compile and serve: they train nothing, and the program's own do not come from there."""

_Recording = Callable[[dict[str, Any]], AbstractContextManager[object]]


def record_children(
    recorded: _Recording, options: dict[str, Any], started: Callable[[], object]
) -> Callable[[], None]:
    """Let the processes record that the program starts from now on.

    Those of ``torch.multiprocessing.spawn`` are ranks. Others record from their first backward on, each into a folder of
    its own, if it is no rank by then.

    Args:
        recorded: Records a program with the options; children find it by its name.
        options: What to record.
        started: Called when a process starts that may record.

    Returns:
        What ends it.
    """
    spawning: Any = importlib.import_module("torch.multiprocessing.spawn")
    process: Any = multiprocessing.process.BaseProcess
    start_ranks, start_process = spawning.start_processes, process.start

    @functools.wraps(start_ranks)
    def start_processes(fn: Any, args: Any = (), nprocs: int = 1, *rest: Any, **named: Any) -> Any:
        started()
        rank = functools.partial(_rank, recorded, fn, options, nprocs)
        return start_ranks(rank, args, nprocs, *rest, **named)

    @functools.wraps(start_process)
    def start(self: Any) -> None:
        target = getattr(self, "_target", None)
        if target is not None and not _of_library(target):
            started()
            self._target = functools.partial(_process, recorded, target, options)
        start_process(self)

    spawning.start_processes, process.start = start_processes, start

    def undo() -> None:
        spawning.start_processes, process.start = start_ranks, start_process

    return undo


def _of_library(target: Any) -> bool:
    function = target.func if isinstance(target, functools.partial) else target
    return str(getattr(function, "__module__", "")).partition(".")[0] in _LIBRARIES


def _rank(recorded: _Recording, fn: Any, options: dict[str, Any], count: int, rank: int, *args: Any) -> None:
    """One of several processes that torch spawns, recorded."""
    os.environ["PROFKIT_RANK"] = f"{rank}/{count}"
    with recorded(options):
        fn(rank, *args)


def _process(recorded: _Recording, target: Any, options: dict[str, Any], *args: Any, **kwargs: Any) -> None:
    """One process of the program, recorded if it trains."""
    with _once_it_trains(recorded, options):
        target(*args, **kwargs)


@contextmanager
def _once_it_trains(recorded: _Recording, options: dict[str, Any]) -> Iterator[None]:
    torch = sys.modules.get("torch")
    if torch is None or torch.autograd.profiler._is_profiler_enabled:
        yield  # it was forked while its parent's profiler ran, which does not survive that
        return
    forget_listeners()  # a fork has its parent's
    with ExitStack() as stack:
        first = _FirstBackward(lambda: stack.enter_context(recorded(options)))
        listen(first)
        stack.callback(unlisten, first)
        yield


class _FirstBackward:
    """Begins a recording where a process begins to train."""

    kinds: tuple[Kind, ...] = (Kind.BACKWARD,)

    def __init__(self, begin: Callable[[], object]) -> None:
        self._begin = begin

    def entered(self, kind: Kind, subject: Any) -> None:
        """The first one; it hears no more."""
        unlisten(self)
        self._begin()

    def left(self, kind: Kind, subject: Any, values: Any = None) -> None:
        """Nothing is left to do."""
