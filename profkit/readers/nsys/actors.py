"""Processes and threads behind nsys' global ids.

A global id is ``hardware << 56 | vm << 48 | pid << 24 | tid``; that of a process has no thread bits. The top
bit may be set, so ids may be negative (reference: the export's schema page of the Nsight Systems user guide).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.model import Process, Thread
from profkit.readers.nsys.columns import NULL, Integers, distinct, positions
from profkit.readers.nsys.database import Database, integer
from profkit.readers.nsys.strings import StringIds

__all__ = ["Actors", "pid_of", "process_ids", "thread_names"]

_THREAD_BITS = 0xFFFFFF


def process_ids(global_ids: Integers) -> Integers:
    """Global ids of threads to those of their processes."""
    return np.where(global_ids == NULL, NULL, global_ids & ~np.int64(_THREAD_BITS))


def pid_of(global_id: int) -> int:
    """The operating system's number of a process, its lowest 24 bits."""
    return global_id >> 24 & _THREAD_BITS


@dataclass(frozen=True)
class Actors:
    """The recorded processes and threads, and how global ids find them."""

    processes: tuple[Process, ...]
    threads: tuple[Thread, ...]
    _process_numbers: Mapping[int, int]
    _thread_numbers: Mapping[int, int]

    @classmethod
    def of(
        cls,
        on_device: Iterable[int],
        others: Iterable[int],
        thread_ids: Iterable[Integers],
        names: Mapping[int, tuple[str, ...]],
        rank: int | None = None,
    ) -> Actors:
        """Number them: processes with device work first, in the order of their devices.

        Args:
            on_device: Global ids of the processes with device work, in the order of their devices.
            others: Global ids of more processes.
            thread_ids: Columns of global thread ids.
            names: Names of threads by global thread id.
            rank: What the recording says of the rank of its only process with device work.
        """
        seen: dict[int, None] = {}
        for column in thread_ids:
            seen.update(dict.fromkeys(distinct(column)[0].tolist()))
        threads = sorted(seen)
        working = list(dict.fromkeys(on_device))
        idle = sorted({*others, *(_process(thread) for thread in threads)} - set(working))
        numbers = {process: place for place, process in enumerate([*working, *idle])}
        ranks = dict(enumerate(range(len(working)) if len(working) > 1 else [rank]))
        return cls(
            processes=tuple(
                Process(
                    pid_of(process) if process != NULL else -1,
                    ranks.get(place) if place < len(working) else None,
                )
                for process, place in numbers.items()
            ),
            threads=tuple(
                Thread(
                    numbers[_process(thread)],
                    thread & _THREAD_BITS if thread != NULL else -1,
                    names.get(thread, ()),
                )
                for thread in threads
            ),
            _process_numbers=numbers,
            _thread_numbers={thread: place for place, thread in enumerate(threads)},
        )

    def process(self, global_ids: Integers) -> NDArray[np.int32]:
        """Column of global process ids to indices of processes."""
        return positions(self._process_numbers, global_ids)

    def thread(self, global_ids: Integers) -> NDArray[np.int32]:
        """Column of global thread ids to indices of threads."""
        return positions(self._thread_numbers, global_ids)


def _process(thread: int) -> int:
    return NULL if thread == NULL else thread & ~_THREAD_BITS


def thread_names(
    database: Database, string_ids: StringIds, given: Mapping[int, str]
) -> dict[int, tuple[str, ...]]:
    """Names of threads: those that NVTX gave, then those of the operating system, each once."""
    names: dict[int, dict[str, None]] = {thread: {name: None} for thread, name in given.items() if name}
    table = database.table("THREADNAMES")
    for thread, name_id in table.rows("globalTid", "nameId") if table else []:
        number, name = integer(thread), string_ids.text(integer(name_id))
        if number is not None and name:
            names.setdefault(number, {})[name] = None
    return {thread: tuple(each) for thread, each in names.items()}
