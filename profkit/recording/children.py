"""Processes that a recorded program starts: those that train are recorded too."""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import multiprocessing.process
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from profkit.recording.program_events import Kind, forget_listeners, listen, unlisten
from profkit.recording.recorder import running

__all__ = ["record_children", "record_this_program"]

_OPTIONS: Final = "PROFKIT_RECORD_CHILDREN"
"""The environment variable in which a program that is started finds what to record."""

_START: Final = Path(__file__).parent / "child_start"

_Recording = Callable[[dict[str, Any]], AbstractContextManager[object]]


def record_children(recorded: _Recording, options: dict[str, Any]) -> Callable[[], None]:
    """Let the processes record that the program starts from now on.

    Those of ``torch.multiprocessing.spawn`` are ranks. Others record from their first backward on, each into a folder of
    its own, if it is no rank by then: those of `multiprocessing`, and Python programs that keep the environment, however
    they are started.

    Args:
        recorded: Records a program with the options; children find it by its name.
        options: What to record.

    Returns:
        What ends it.
    """
    spawning: Any = importlib.import_module("torch.multiprocessing.spawn")
    process: Any = multiprocessing.process.BaseProcess
    start_ranks, start_process = spawning.start_processes, process.start

    @functools.wraps(start_ranks)
    def start_processes(fn: Any, args: Any = (), nprocs: int = 1, *rest: Any, **named: Any) -> Any:
        rank = functools.partial(_rank, recorded, fn, options, nprocs)
        return start_ranks(rank, args, nprocs, *rest, **named)

    @functools.wraps(start_process)
    def start(self: Any) -> None:
        target = getattr(self, "_target", None)
        if target is not None and not _of_torch(target):
            self._target = functools.partial(_process, recorded, target, options)
        start_process(self)

    spawning.start_processes, process.start = start_processes, start
    give_back = _tell_programs(options)
    _follow_forks()

    def undo() -> None:
        spawning.start_processes, process.start = start_ranks, start_process
        give_back()

    return undo


def _tell_programs(options: dict[str, Any]) -> Callable[[], None]:
    """Let Python find `child_start` in each program that is started from now on."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", _OPTIONS)}
    others = [entry for entry in (before["PYTHONPATH"] or "").split(os.pathsep) if entry != str(_START)]
    told = {
        "PYTHONPATH": os.pathsep.join([str(_START), *filter(None, others)]),
        _OPTIONS: json.dumps(options),
    }
    os.environ.update(told)

    def give_back() -> None:
        for name, value in before.items():
            if os.environ.get(name) == told[name]:
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    return give_back


@functools.cache
def _follow_forks() -> None:
    """Let a process record that the program becomes, as a daemon does; once, since nothing takes it back."""
    os.register_at_fork(after_in_child=record_this_program)


def record_this_program() -> None:
    """Record the program that has imported torch just now or was forked, if it trains and a recorded one started it."""
    options = json.loads(os.environ.get(_OPTIONS, "null"))
    if options is not None:
        recorded = importlib.import_module("profkit.recording.run_script").recorded
        stack = ExitStack()
        stack.enter_context(_once_it_trains(recorded, options))
        atexit.register(lambda: stack.__exit__(*_last_error()))


def _last_error() -> tuple[Any, Any, Any]:
    """What an uncaught exception has left behind."""
    error = getattr(sys, "last_value", None)
    return type(error) if error else None, error, None


def _of_torch(target: Any) -> bool:
    """Whether torch starts the process: it loads data or compiles."""
    function = target.func if isinstance(target, functools.partial) else target
    return str(getattr(function, "__module__", "")).partition(".")[0] == "torch"


def _rank(recorded: _Recording, fn: Any, options: dict[str, Any], count: int, rank: int, *args: Any) -> None:
    """One of several processes that torch spawns, recorded."""
    os.environ["PROFKIT_RANK"] = f"{rank}/{count}"
    forget_listeners()
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
    forget_listeners()  # a fork has its parent's, and a program that Python started has its own
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
        """The first one; it hears no more. A program that records by itself is left to it."""
        unlisten(self)
        if not running():
            self._begin()

    def left(self, kind: Kind, subject: Any, values: Any = None) -> None:
        """Nothing is left to do."""
