"""The devices that ran something: which ordinals of which processes are one card, and what card it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import UNKNOWN, Device, Severity
from profkit.readers.nsys.actors import pid_of
from profkit.readers.nsys.columns import Integers, distinct_pairs
from profkit.readers.nsys.database import Database, integer, text

__all__ = ["Devices"]

_SLOWEST_BANDWIDTH, _FASTEST_BANDWIDTH = 1e10, 5e13
"""Bytes per second that a card's memory can reach; other values are mistakes of the export."""

_INFO_COLUMNS = (
    *(
        "id",
        "deviceId",
        "cuDevice",
        "name",
        "l2CacheSize",
        "totalMemory",
        "memoryBandwidth",
        "smCount",
        "uuid",
    ),
    *("computeMajor", "computeMinor", "smMajor", "smMinor"),
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Devices:
    """The devices of a trace, and how an operation finds its own."""

    devices: tuple[Device, ...] = ()
    gpu_ids: tuple[int | None, ...] = ()
    """nsys' own number for each device's card, where known."""
    _numbers: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def of(cls, database: Database, users: Iterable[tuple[int, int]]) -> Devices:
        """Find the devices.

        Args:
            database: The export.
            users: Global process ids with the ordinals that they ran work on.
        """
        cards = _cards(database)
        visible = _visible(database)
        pairs = sorted(set(users), key=lambda pair: (pair[1], pair[0]))
        known = {pair: _seen_by(visible, *pair) for pair in pairs}
        split = _are_separate(database, [pair for pair in pairs if known[pair] is None], len(cards))
        groups: dict[object, list[tuple[int, int]]] = {}
        for pair in pairs:
            seen = known[pair]
            key: object = ("card", seen["gpuId"], seen["uuid"]) if seen else (pair if split else pair[1])
            groups.setdefault(key, []).append(pair)
        found = [_device(cards, members[0][1], known[members[0]]) for members in groups.values()]
        ordinals = [members[0][1] for members in groups.values()]
        if len(set(ordinals)) < len(ordinals):
            ids = [gpu_id for _, gpu_id in found if gpu_id is not None]
            ordinals = ids if len(set(ids)) == len(found) else list(range(len(found)))
        return cls(
            devices=tuple(
                _numbered(device, ordinal) for (device, _), ordinal in zip(found, ordinals, strict=True)
            ),
            gpu_ids=tuple(gpu_id for _, gpu_id in found),
            _numbers={pair: place for place, members in enumerate(groups.values()) for pair in members},
        )

    def processes(self) -> list[int]:
        """Global ids of the processes with work, in the order of their devices."""
        return [process for process, _ in sorted(self._numbers, key=lambda pair: (self._numbers[pair], pair))]

    def index(self, processes: Integers, ordinals: Integers) -> NDArray[np.int32]:
        """Columns of global process ids and ordinals to indices of devices; -1 for a device that ran nothing."""
        pairs, places = distinct_pairs(processes, ordinals)
        return np.array([self._numbers.get(pair, UNKNOWN) for pair in pairs], np.int32)[places]

    def of_gpu(self, gpu_id: int) -> int:
        """The device that is nsys' card of that number; -1 for one that ran nothing."""
        if gpu_id in self.gpu_ids:
            return self.gpu_ids.index(gpu_id)
        return UNKNOWN


def _cards(database: Database) -> list[Row]:
    """Rows of NVIDIA cards; the list may hold other display adapters, which have no multiprocessors."""
    table = database.table("TARGET_INFO_GPU") or database.table("TARGET_INFO_CUDA_GPU")
    rows = [dict(zip(_INFO_COLUMNS, row, strict=True)) for row in table.rows(*_INFO_COLUMNS)] if table else []
    counted = table is not None and "smCount" in table
    return [row for row in rows if not counted or (integer(row["smCount"]) or 0) > 0]


def _visible(database: Database) -> list[dict[str, Any]]:
    table = database.table("TARGET_INFO_CUDA_DEVICE")
    columns = ("gpuId", "cudaId", "pid", "uuid", "numMultiprocessors")
    rows = table.rows(*columns) if table else []
    return [
        {
            name: text(value) if name == "uuid" else integer(value)
            for name, value in zip(columns, row, strict=True)
        }
        for row in rows
    ]


def _seen_by(visible: Sequence[Row], process: int, ordinal: int) -> Row | None:
    """The card that a process saw under an ordinal, or that all processes saw under it."""
    rows = [row for row in visible if row["cudaId"] == ordinal and row["gpuId"] is not None]
    own = [row for row in rows if (row["pid"] or 0) & 0xFFFFFF == pid_of(process)]
    if own:
        return own[0]
    return rows[0] if len({(row["gpuId"], row["uuid"]) for row in rows}) == 1 else None


def _are_separate(database: Database, pairs: Sequence[tuple[int, int]], cards: int) -> bool:
    """Whether processes that name the same ordinal are taken to have a card each.

    CUDA_VISIBLE_DEVICES renumbers ordinals, and exports before 2024 do not say which card was meant. Ranks
    with a card each are far more common than ranks that share one, and to unite two cards would hide idle time.
    """
    ordinals = [ordinal for _, ordinal in pairs]
    if len(set(ordinals)) == len(ordinals):
        return False
    separate = cards >= len(pairs)
    database.note("devices-ambiguous", Severity.WARNING, processes=len(pairs), separate=separate)
    return separate


def _device(cards: Sequence[Row], ordinal: int, seen: Row | None) -> tuple[Device, int | None]:
    """A device with what the export knows of its card, and nsys' number of that card."""
    card = _card(cards, ordinal, seen)
    if card is None:
        return Device(ordinal, sm_count=_positive(seen["numMultiprocessors"]) if seen else None), None
    major = _positive(card["computeMajor"]) or _positive(card["smMajor"])
    minor = integer(card["computeMinor"] if _positive(card["computeMajor"]) else card["smMinor"])
    bandwidth = float(integer(card["memoryBandwidth"]) or 0)
    device = Device(
        ordinal=ordinal,
        name=text(card["name"]).strip() or None,
        # a MIG slice has fewer multiprocessors than its card
        sm_count=(_positive(seen["numMultiprocessors"]) if seen else None) or _positive(card["smCount"]),
        memory_bytes=_positive(card["totalMemory"]),
        bandwidth_bytes_per_s=bandwidth if _SLOWEST_BANDWIDTH <= bandwidth <= _FASTEST_BANDWIDTH else None,
        l2_bytes=_positive(card["l2CacheSize"]),
        compute_capability=(major, minor) if major and minor is not None and minor >= 0 else None,
        uuid=(seen["uuid"] if seen else "") or text(card["uuid"]) or None,
    )
    return device, integer(card["id"])


def _card(cards: Sequence[Row], ordinal: int, seen: Row | None) -> Row | None:
    if len(cards) == 1:
        return cards[0]
    if seen is not None:
        named = [card for card in cards if seen["uuid"] and text(card["uuid"]) == seen["uuid"]]
        return next(iter([*named, *(card for card in cards if integer(card["id"]) == seen["gpuId"])]), None)
    for column in ("cuDevice", "deviceId", "id"):
        matches = [card for card in cards if integer(card[column]) == ordinal]
        if len(matches) == 1:
            return matches[0]
    return None


def _numbered(device: Device, ordinal: int) -> Device:

    return device if device.ordinal == ordinal else replace(device, ordinal=ordinal)


def _positive(value: object) -> int | None:
    number = integer(value)
    return number if number is not None and number > 0 else None
