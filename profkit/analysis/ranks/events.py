"""What one device says for a comparison of ranks: its collectives and its window, small enough to send around."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.analysis.intervals import Intervals
from profkit.analysis.result import Row
from profkit.analysis.states import State
from profkit.analysis.tables.communication import Described, describe_communication
from profkit.analysis.view import Span, TraceView
from profkit.model import OperationKind

__all__ = ["DeviceCollectives", "collectives_of"]

Column = NDArray[np.int64]
Key = tuple[str, ...]

_PAIRED: Final = frozenset({"send_recv", "other"})
"""Not matched by their order: one rank of a pipeline has other partners, and more of them, than the next."""

_UNEVEN: Final = frozenset({"all_to_all", "gather", "scatter", "all_gather", "reduce_scatter"})
"""Collectives in which the sizes may differ between the ranks."""


@dataclass(frozen=True, eq=False)
class DeviceCollectives:
    """The collectives of one device, on the clock of its file; rows are in order of their start."""

    file: int
    """Which file of the report it is in: devices of one file share a clock."""
    device: int
    """The report's id of the device."""
    rank: int | None
    epoch_ns: int | None
    """The Unix time of the file's time zero."""
    span: Span
    """From the first to the last event of its file."""
    window_ns: int
    step_ns: Sequence[int]
    """The tiles of the kept steps; without steps, the window."""
    shares: Mapping[str, int]
    exposed: Intervals
    """When the window's time is communication that nothing else hides."""
    start_ns: Column
    end_ns: Column
    key: Column
    """Index into ``keys``."""
    keys: Sequence[Key]
    """What must be the same on all ranks: group, collective, and where it is known its size."""
    step: Column
    """Index into ``steps``, or -1."""
    steps: Sequence[str]
    sequence: Column
    """The number of the collective in its group as the file has it, or -1."""
    kept: NDArray[np.bool_]
    """Whether it counts for the window."""
    table_row: Column
    """Index into ``table_keys``."""
    table_keys: Sequence[tuple[Any, ...]]
    """Rows of the communication table and their sizes: (collective, group, type, bytes of one)."""

    def __len__(self) -> int:
        return len(self.start_ns)


def collectives_of(view: TraceView, file: int, devices: Sequence[Row]) -> list[DeviceCollectives]:
    """The collectives of each device of a trace.

    Args:
        view: The trace, with its window.
        file: Its number in the report.
        devices: The report's rows of its devices.
    """
    described = describe_communication(view)
    return [_of_device(view, file, at, row, described) for at, row in enumerate(devices)]


def _of_device(view: TraceView, file: int, at: int, device: Row, described: Described) -> DeviceCollectives:
    operations, rows = view.trace.operations, described.rows
    chosen = (operations.device[rows] == at) & (operations.kind[rows] == OperationKind.KERNEL)
    chosen &= np.array([k[0] not in _PAIRED for k in described.keys] or [False])[described.kind]
    place = np.flatnonzero(chosen)
    place = place[np.lexsort((rows[place], operations.start_ns[rows[place]]))]
    mine, key = rows[place], described.kind[place]
    names = [_matched_by(k, size) for k, size in zip(described.keys, described.sizes, strict=True)]
    segments = view.window_segments(at)
    return DeviceCollectives(
        file=file,
        device=device["id"],
        rank=device["rank"],
        epoch_ns=view.trace.unix_epoch_ns,
        span=view.span,
        window_ns=device["window_ns"],
        step_ns=_step_ns(view, at),
        shares=device["shares"],
        exposed=segments.in_state(State.COMMUNICATION),
        start_ns=operations.start_ns[mine].astype(np.int64),
        end_ns=operations.end_ns[mine].astype(np.int64),
        key=key,
        keys=names,
        step=view.step_of_operation[mine],
        steps=view.steps.names,
        sequence=described.sequence[place],
        kept=view.kept[mine],
        table_row=key,
        table_keys=[(*k, size) for k, size in zip(described.keys, described.sizes, strict=True)],
    )


def _matched_by(key: tuple[Any, ...], size: int | None) -> Key:
    collective, group, dtype = key
    known = size is not None and collective not in _UNEVEN
    return (str(group), str(collective), str(dtype), str(size) if known else "")


def _step_ns(view: TraceView, device: int) -> list[int]:
    if not view.steps.count:
        return [view.windows[device][1] - view.windows[device][0]]
    tiles: list[int] = np.diff(view.steps.border_ns[device])[view.first_kept :].tolist()
    return tiles
