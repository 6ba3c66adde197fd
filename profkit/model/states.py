"""What a device does at an instant, and which share of the window that is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from profkit.model.names import IDLE_CAUSES, IdleCause, ShareName

__all__ = ["BUSY_STATES", "CAUSE_OF_STATE", "SHARE_OF_STATE", "State"]


class State(IntEnum):
    """The state of a device; of several that hold at once, the lowest counts."""

    COMPUTE = 0
    MEMORY = 1
    SMALL_KERNELS = 2
    UNCLASSIFIED = 3
    COMMUNICATION = 4
    TRANSFER = 5
    INPUT = 6
    SYNC = 7
    HOST = 8
    HOST_WORK = 9
    QUEUE = 10
    INITIALISATION = 11
    ALLOCATION = 12
    COMPILATION = 13
    CAPTURE = 14
    PROFILER = 15
    DEPENDENCY = 16
    TAIL = 17
    UNKNOWN = 18


BUSY_STATES: Final = tuple(State(s) for s in range(State.INPUT))
"""The states in which the device runs something."""

CAUSE_OF_STATE: Final[Mapping[State, IdleCause]] = {State[cause.upper()]: cause for cause in IDLE_CAUSES}
"""The idle causes by the names of the report."""

SHARE_OF_STATE: Final[Mapping[State, ShareName]] = {
    State.COMPUTE: "compute",
    State.MEMORY: "memory",
    State.SMALL_KERNELS: "launch",
    State.UNCLASSIFIED: "unclassified",
    State.COMMUNICATION: "communication",
    State.TRANSFER: "transfer",
    State.INPUT: "input",
    State.SYNC: "sync",
    State.HOST: "launch",
    State.HOST_WORK: "host_work",
    State.QUEUE: "launch",
    State.INITIALISATION: "other",
    State.ALLOCATION: "other",
    State.COMPILATION: "other",
    State.CAPTURE: "other",
    State.PROFILER: "other",
    State.DEPENDENCY: "other",
    State.TAIL: "other",
    State.UNKNOWN: "other",
}
