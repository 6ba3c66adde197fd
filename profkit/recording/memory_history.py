"""The CUDA memory history as a part of a recording: bounded, and kept when memory runs out."""

from __future__ import annotations

import inspect
import pickle
import weakref
from pathlib import Path
from typing import Any, Final

from profkit.recording.files import RunFolder, write_whole
from profkit.recording.notices import warn
from profkit.recording.stages import Stage

__all__ = ["MemoryHistory", "is_out_of_memory"]

MAX_ENTRIES: Final = 200_000
"""Allocations and frees that are kept; at several hundred bytes each, tens of MB of host memory."""

_MAX_OOM_SNAPSHOTS: Final = 3  # a program that tries smaller batches runs out of memory again and again

_PICKLE_PROTOCOL: Final = 4  # what torch's own viewer and every Python since 3.4 can read


class MemoryHistory:
    """Turns the history on from warm-up to the end, and writes ``memory*.pickle`` once per cycle.

    A history that is on already is used and left on: it belongs to someone else.

    Args:
        folder: Where the snapshots go.
        stacks: Keep C++ frames too.
    """

    name = "the memory history"

    def __init__(self, folder: RunFolder, *, stacks: bool) -> None:
        self._folder = folder
        self._stacks = "all" if stacks else "python"
        self._on = False
        self._foreign = False
        self.oom_files: list[str] = []

    def start(self, stage: Stage) -> None:
        """Watch for running out of memory, and begin the history if the first step is recorded."""
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("there is no CUDA device")
        torch.cuda.init()  # the history of a device that is not initialised cannot be turned on
        self._foreign = bool(torch._C._cuda_isHistoryEnabled())
        _watch_out_of_memory(self)
        if stage in (Stage.WARMUP, Stage.ACTIVE):
            self._begin()

    def step(self, step: int, stage: Stage, following: Stage) -> None:
        """Begin with the warm-up; write a snapshot when the recorded steps are over."""
        if following in (Stage.WARMUP, Stage.ACTIVE) and not self._on:
            self._begin()
        elif stage is Stage.ACTIVE and following is not Stage.ACTIVE:
            self._dump("memory")
            if following is not Stage.WARMUP:
                self._end()

    def leave_step(self) -> None:
        """The history has no steps."""

    def stop(self, stage: Stage) -> None:
        """Write what there is, and turn the history off."""
        if self._on and stage is Stage.ACTIVE:
            self._dump("memory")
        self._end()
        _listeners.discard(self)

    def out_of_memory(self) -> None:
        """Write a snapshot because an allocation failed; whether the program survives is its own affair."""
        if len(self.oom_files) < _MAX_OOM_SNAPSHOTS:
            self.oom_files.append(self._dump("memory_oom").name)

    def _begin(self) -> None:
        self._on = True
        if not self._foreign:
            turn_on(self._stacks)

    def _end(self) -> None:
        if self._on and not self._foreign:
            import torch

            torch.cuda.memory._record_memory_history(enabled=None)
        self._on = False

    def _dump(self, stem: str) -> Path:
        import torch

        snapshot = torch.cuda.memory._snapshot()
        path = self._folder.name(stem, ".pickle")
        write_whole(path, lambda sink: pickle.dump(snapshot, sink, protocol=_PICKLE_PROTOCOL))
        return self._folder.keep(path)


def turn_on(stacks: str) -> None:
    """Start the bounded history, with the names of phases where this torch can keep them."""
    import torch

    start = torch.cuda.memory._record_memory_history
    options: dict[str, Any] = {"max_entries": MAX_ENTRIES, "stacks": stacks, "clear_history": True}
    options["global_record_annotations"] = True
    known = inspect.signature(start).parameters
    start(enabled="all", **{name: value for name, value in options.items() if name in known})


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception is torch's out-of-memory error, by whatever name this torch has it."""
    return any(kind.__name__ == "OutOfMemoryError" for kind in type(error).__mro__)


_listeners: weakref.WeakSet[MemoryHistory] = weakref.WeakSet()
_observing = False


def _watch_out_of_memory(history: MemoryHistory) -> None:
    """Call `MemoryHistory.out_of_memory` while the tensors that fill the device are still alive."""
    global _observing
    import torch

    _listeners.add(history)
    if not _observing:
        _observing = True  # torch has no way to take an observer off again: one for the whole process
        torch._C._cuda_attach_out_of_memory_observer(_on_out_of_memory)


def _on_out_of_memory(device: int, requested: int, allocated: int, free: int) -> None:
    for history in list(_listeners):
        try:
            history.out_of_memory()
        except Exception as error:  # noqa: BLE001 - it would replace the program's own out-of-memory error
            warn(f"no snapshot was written when memory ran out: {error}")
