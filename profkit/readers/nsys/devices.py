"""The devices that ran something: which ordinals of which processes are one GPU, and what GPU it is."""

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
"""Bytes per second that a GPU's memory can reach; other values are mistakes of the export."""

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
    """nsys' own number for each device's GPU, where known."""
    _numbers: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @classmethod
    def of(cls, database: Database, users: Iterable[tuple[int, int]]) -> Devices:
        """Find the devices.

        Args:
            database: The export.
            users: Global process ids with the ordinals that they ran work on.
        """
        gpus = _gpus(database)
        visible = _visible(database)
        pairs = sorted(set(users), key=lambda pair: (pair[1], pair[0]))
        known = {pair: _seen_by(visible, *pair) for pair in pairs}
        split = _are_separate(database, [pair for pair in pairs if known[pair] is None], len(gpus))
        groups: dict[object, list[tuple[int, int]]] = {}
        for pair in pairs:
            seen = known[pair]
            key: object = ("gpu", seen["gpuId"], seen["uuid"]) if seen else (pair if split else pair[1])
            groups.setdefault(key, []).append(pair)
        found = [_device(gpus, members[0][1], known[members[0]]) for members in groups.values()]
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
        """The device that is nsys' GPU of that number; -1 for one that ran nothing."""
        if gpu_id in self.gpu_ids:
            return self.gpu_ids.index(gpu_id)
        return UNKNOWN


def _gpus(database: Database) -> list[Row]:
    """Rows of NVIDIA GPUs; the list may hold other display adapters, which have no multiprocessors."""
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
    """The GPU that a process saw under an ordinal, or that all processes saw under it."""
    rows = [row for row in visible if row["cudaId"] == ordinal and row["gpuId"] is not None]
    own = [row for row in rows if (row["pid"] or 0) & 0xFFFFFF == pid_of(process)]
    if own:
        return own[0]
    return rows[0] if len({(row["gpuId"], row["uuid"]) for row in rows}) == 1 else None


def _are_separate(database: Database, pairs: Sequence[tuple[int, int]], gpus: int) -> bool:
    """Whether processes that name the same ordinal are taken to have a GPU each.

    CUDA_VISIBLE_DEVICES renumbers ordinals, and exports before 2024 do not say which GPU was meant. Ranks
    with a GPU each are far more common than ranks that share one, and to unite two GPUs would hide idle time.
    """
    ordinals = [ordinal for _, ordinal in pairs]
    if len(set(ordinals)) == len(ordinals):
        return False
    separate = gpus >= len(pairs)
    database.note("devices-ambiguous", Severity.WARNING, processes=len(pairs), separate=separate)
    return separate


def _device(gpus: Sequence[Row], ordinal: int, seen: Row | None) -> tuple[Device, int | None]:
    """A device with what the export knows of its GPU, and nsys' number of that GPU."""
    gpu = _gpu(gpus, ordinal, seen)
    if gpu is None:
        return Device(ordinal, sm_count=_positive(seen["numMultiprocessors"]) if seen else None), None
    major = _positive(gpu["computeMajor"]) or _positive(gpu["smMajor"])
    minor = integer(gpu["computeMinor"] if _positive(gpu["computeMajor"]) else gpu["smMinor"])
    bandwidth = float(integer(gpu["memoryBandwidth"]) or 0)
    device = Device(
        ordinal=ordinal,
        name=text(gpu["name"]).strip() or None,
        # a MIG slice has fewer multiprocessors than its GPU
        sm_count=(_positive(seen["numMultiprocessors"]) if seen else None) or _positive(gpu["smCount"]),
        memory_bytes=_positive(gpu["totalMemory"]),
        bandwidth_bytes_per_s=bandwidth if _SLOWEST_BANDWIDTH <= bandwidth <= _FASTEST_BANDWIDTH else None,
        l2_bytes=_positive(gpu["l2CacheSize"]),
        compute_capability=(major, minor) if major and minor is not None and minor >= 0 else None,
        uuid=(seen["uuid"] if seen else "") or text(gpu["uuid"]) or None,
    )
    return device, integer(gpu["id"])


def _gpu(gpus: Sequence[Row], ordinal: int, seen: Row | None) -> Row | None:
    if len(gpus) == 1:
        return gpus[0]
    if seen is not None:
        named = [gpu for gpu in gpus if seen["uuid"] and text(gpu["uuid"]) == seen["uuid"]]
        return next(iter([*named, *(gpu for gpu in gpus if integer(gpu["id"]) == seen["gpuId"])]), None)
    for column in ("cuDevice", "deviceId", "id"):
        matches = [gpu for gpu in gpus if integer(gpu[column]) == ordinal]
        if len(matches) == 1:
            return matches[0]
    return None


def _numbered(device: Device, ordinal: int) -> Device:

    return device if device.ordinal == ordinal else replace(device, ordinal=ordinal)


def _positive(value: object) -> int | None:
    number = integer(value)
    return number if number is not None and number > 0 else None
