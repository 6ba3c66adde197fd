"""Traces of several ranks in one file: a merge writes the rank into each pid, ``[TP00] 4242``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import UNKNOWN
from profkit.readers.kineto.fields import opaque
from profkit.readers.kineto.text import Event

__all__ = ["MergedRanks", "labelled"]

_LABELLED: Final = re.compile(r"\s*\[([^\[\]]{1,64})\]\s*(-?\d{1,18})\s*")

_FIRST_LABELLED: Final = 1 << 62
"""Beyond any pid."""


def labelled(pid: Any) -> tuple[str, int] | None:
    """Label and number of a pid that a merge of several ranks' traces wrote: ``[TP00] 4242``; None for any other."""
    match = _LABELLED.fullmatch(pid) if isinstance(pid, str) else None
    return (match[1], int(match[2])) if match else None


class MergedRanks:
    """The ranks that a merged trace names in its pids, ``[TP00] 4242``: each has devices and ids of its own."""

    def __init__(self) -> None:
        self.labels: dict[str, int] = {}
        self.processes: list[tuple[int, int]] = []
        """Label and pid of each process that has a label."""
        self._known: dict[tuple[int, int], int] = {}

    def label(self, pid: Any) -> int:
        """The number of a pid's label, or -1."""
        found = labelled(pid)
        return UNKNOWN if found is None else self.labels.setdefault(found[0], len(self.labels))

    def labels_of(self, events: Sequence[Event]) -> NDArray[np.int64]:
        """The numbers of the labels of the events' pids."""
        known = {pid: self.label(pid) for pid in dict.fromkeys(event.pid for event in events)}
        return np.array([known[event.pid] for event in events], np.int64)

    def process(self, pid: Any) -> int:
        """A pid as a number: that of the process it belongs to, where it has a label."""
        found = labelled(pid)
        if found is None:
            return opaque(pid)
        key = self.label(pid), found[1]
        if key not in self._known:
            self._known[key] = _FIRST_LABELLED + len(self.processes)
            self.processes.append(key)
        return self._known[key]

    def label_of(self, process: int) -> int:
        """The label of a process, or -1."""
        return self._of(process)[0]

    def pid_of(self, process: int) -> int:
        """What the operating system calls a process."""
        return self._of(process)[1]

    def rank_of(self, process: int) -> int | None:
        """The rank that a process' label tells, where it has one number."""
        names = list(self.labels)
        label = self.label_of(process)
        numbers = re.findall(r"\d{1,9}", names[label]) if label >= 0 else []
        return int(numbers[0]) if len(numbers) == 1 else None

    def _of(self, process: int) -> tuple[int, int]:
        at = process - _FIRST_LABELLED
        return self.processes[at] if 0 <= at < len(self.processes) else (UNKNOWN, process)
