"""What one device says for a comparison of ranks: its collectives and its window, small enough to send around."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind
from profkit.model.names import Shares
from profkit.model.report import DeviceRow
from profkit.model.states import State
from profkit.ranks.collective_table import Described, describe_communication
from profkit.ranks.point_to_point import find_messages
from profkit.timeline.grouping import group_rows
from profkit.timeline.intervals import Intervals
from profkit.timeline.view import Span, TraceView

__all__ = ["MESSAGE", "DeviceCollectives", "are_sends", "collectives_of", "of_kind", "partners_unknown"]

Column = NDArray[np.int64]
Key = tuple[str, ...]

MESSAGE: Final = "send_recv"
"""The collective of a key that is a message between two ranks."""

_UNKNOWN_PAIR: Final = ""

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
    shares: Shares
    exposed: Intervals
    """When the window's time is communication that nothing else hides."""
    start_ns: Column
    end_ns: Column
    key: Column
    """Index into ``keys``."""
    keys: Sequence[Key]
    """What must be the same on all ranks: group, collective, then its type and size or the two ranks of a message."""
    operation: Column
    """Which kernel of the device a row is of: a batch of sends and receives is one kernel and several rows."""
    step: Column
    """Index into ``steps``, or -1."""
    steps: Sequence[str]
    steps_named: bool
    """Whether the program named its steps: else their numbers count from where the recording began."""
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


def collectives_of(view: TraceView, file: int, devices: Sequence[DeviceRow]) -> list[DeviceCollectives]:
    """The collectives of each device of a trace.

    Args:
        view: The trace, with its window.
        file: Its number in the report.
        devices: The report's rows of its devices.
    """
    described = describe_communication(view)
    return [_of_device(view, file, at, row, described) for at, row in enumerate(devices)]


def _of_device(
    view: TraceView, file: int, at: int, device: DeviceRow, described: Described
) -> DeviceCollectives:
    operations = view.trace.operations
    chosen = (operations.device == at) & (operations.kind == OperationKind.KERNEL)
    chosen = (
        chosen[described.rows]
        & np.array([k[0] != "other" for k in described.keys] or [False])[described.kind]
    )
    place, key, keys = _keyed(view, described, device.rank)
    order = np.flatnonzero(chosen[place])
    order = order[
        np.lexsort((described.rows[place[order]], operations.start_ns[described.rows[place[order]]]))
    ]
    place, key = place[order], key[order]
    mine = described.rows[place]
    return DeviceCollectives(
        file=file,
        device=device.id,
        rank=device.rank,
        epoch_ns=view.trace.unix_epoch_ns,
        span=view.span,
        window_ns=device.window_ns,
        step_ns=_step_ns(view, at),
        shares=device.shares,
        exposed=view.window_segments(at).in_state(State.COMMUNICATION),
        start_ns=operations.start_ns[mine].astype(np.int64),
        end_ns=operations.end_ns[mine].astype(np.int64),
        key=key,
        keys=keys,
        operation=mine,
        step=view.step_of_operation[mine],
        steps=view.steps.names,
        steps_named=view.steps.named,
        sequence=np.where(
            np.array([k[1] == MESSAGE for k in keys] or [False])[key], -1, described.sequence[place]
        ),
        kept=view.kept[mine],
        table_row=described.kind[place],
        table_keys=[(*k, size) for k, size in zip(described.keys, described.sizes, strict=True)],
    )


def _keyed(view: TraceView, described: Described, rank: int | None) -> tuple[Column, Column, list[Key]]:
    """The rows that can be matched: the place of each in ``described``, its key, and the keys.

    A kernel that carries messages is a row for each of them.
    """
    messages = find_messages(view, described, rank)
    plain = np.ones(len(described.rows), bool)
    plain[messages.row] = False
    keys = [_matched_by(k, size) for k, size in zip(described.keys, described.sizes, strict=True)]
    pair, example = group_rows(messages.group, messages.sends, messages.peer)
    for row in example.tolist():
        group = view.trace.strings[messages.group[row]] if messages.group[row] >= 0 else None
        ends = [str(rank), str(messages.peer[row])]
        keys.append((str(group), MESSAGE, "->".join(ends if messages.sends[row] else ends[::-1]), ""))
    rest = np.flatnonzero(plain)
    place = np.concatenate((rest, messages.row))
    return place, np.concatenate((described.kind[rest], pair + len(described.keys))), keys


def _matched_by(key: tuple[Any, ...], size: int | None) -> Key:
    collective, group, dtype = key
    if collective == MESSAGE:
        return (str(group), collective, _UNKNOWN_PAIR, "")
    known = size is not None and collective not in _UNEVEN
    return (str(group), str(collective), str(dtype), str(size) if known else "")


def of_kind(devices: Sequence[DeviceCollectives], kinds: AbstractSet[str]) -> NDArray[np.bool_]:
    """Whether each row, of all devices one after the other, is one of these collectives."""
    return np.concatenate([np.array([k[1] in kinds for k in d.keys] or [False])[d.key] for d in devices])


def are_sends(devices: Sequence[DeviceCollectives]) -> NDArray[np.bool_]:
    """Whether each row, of all devices one after the other, is a message that goes out, as far as that is known."""
    return np.concatenate(
        [
            np.array([k[1] == MESSAGE and k[2].startswith(f"{d.rank}->") for k in d.keys] or [False])[d.key]
            for d in devices
        ]
    )


def partners_unknown(device: DeviceCollectives) -> DeviceCollectives:
    """The same, its messages with unknown partners unlike those of any other device."""
    keys = [
        (*k[:3], f"device {device.device}") if k[1:3] == (MESSAGE, _UNKNOWN_PAIR) else k for k in device.keys
    ]
    return replace(device, keys=keys)


def _step_ns(view: TraceView, device: int) -> list[int]:
    if not view.steps.count:
        return [view.windows[device].total_ns]
    tiles: list[int] = view.steps.tile_ns[device, view.kept_steps].tolist()
    return tiles
