"""Sampled hardware metrics, device memory events, and Python frames of calls."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model import UNKNOWN, MemoryEvents, Samples
from profkit.readers.nsys.actors import process_ids
from profkit.readers.nsys.clock import Clock
from profkit.readers.nsys.columns import NULL, Columns, Integers, distinct, distinct_pairs
from profkit.readers.nsys.database import Database, integer, text
from profkit.readers.nsys.devices import Devices
from profkit.readers.nsys.strings import StringIds
from profkit.readers.strings import Strings

__all__ = ["python_frames", "read_memory", "read_samples"]

_GPU_BITS = 0xFF
_FREED = 1
_HOST_MEMORY = (0, 1)
"""Pageable and pinned, in ENUM_CUDA_MEM_KIND."""
_LINE = re.compile(r"\.py\W{1,3}(?:line )?(\d{1,9})")
_BEFORE_FILE = re.compile(r"[\\/\s:<>]")
_LONGEST_PLACE = 1024
"""Characters of a call chain's module and symbol that are looked at."""
_LIBRARY = re.compile(r"(site|dist)-packages|[\\/]lib[\\/]python\d|<frozen")


def read_samples(database: Database, strings: Strings, devices: Devices, clock: Clock) -> Samples:
    """Metric samples of the devices that ran something, from the tables of either generation."""
    samples = _current_samples(database, strings, devices, clock)
    return samples if samples is not None else _early_samples(database, strings, devices, clock)


def read_memory(database: Database, devices: Devices, clock: Clock) -> MemoryEvents:
    """Allocations of device memory by the driver: the segments of a caching allocator, not its tensors."""
    table = database.table("CUDA_GPU_MEMORY_USAGE_EVENTS")
    if table is None:
        return MemoryEvents.empty()
    columns = {"start": NULL, "globalPid": NULL, "deviceId": 0, "address": -1, "bytes": 0, "memKind": -1}
    rows = table.integers({**columns, "memoryOperationType": -1})
    rows = clock.credible(Columns(len(rows), {**rows.values, "end": rows["start"]}), ranges=True)
    device = devices.index(process_ids(rows["globalPid"]), rows["deviceId"])
    host = np.isin(rows["memKind"], _HOST_MEMORY)
    rows, device, host = (
        rows.take(host | (device >= 0)),
        device[host | (device >= 0)],
        host[host | (device >= 0)],
    )
    size = np.abs(np.clip(rows["bytes"], -(1 << 62), 1 << 62))
    return MemoryEvents.of(
        len(rows),
        time_ns=clock.session_ns(rows["start"]),
        device=np.where(host, UNKNOWN, device),
        bytes=np.where(rows["memoryOperationType"] == _FREED, -size, size),
        address=rows["address"],
    )


def python_frames(database: Database, string_ids: StringIds, strings: Strings) -> dict[int, int]:
    """The Python frame that made a call, ``file.py:12``, by the id of its call chain.

    That is the innermost frame of the user's own code; a frame of an installed package where there is no other.
    """
    table = database.table("CUDA_CALLCHAINS")
    rows = table.rows("id", "symbol", "module", "stackDepth") if table else []
    best: dict[int, tuple[bool, int, str]] = {}
    for chain, symbol, module, depth in rows:
        texts = (string_ids.text(integer(module)), string_ids.text(integer(symbol)))
        place = " ".join(text[:_LONGEST_PLACE] for text in texts)
        frame = _frame_in(place)
        number = integer(chain)
        if frame and number is not None:
            rank = (bool(_LIBRARY.search(place)), integer(depth) or 0, frame)
            best[number] = min(rank, best.get(number, rank))
    return {chain: strings.add(frame) for chain, (_, _, frame) in best.items()}


def _frame_in(place: str) -> str | None:
    """``train.py:12`` of a text that names a Python file and a line."""
    for line in _LINE.finditer(place):
        stem = _BEFORE_FILE.split(place[: line.start()])[-1]
        if stem:
            return f"{stem}.py:{line[1]}"
    return None


def _current_samples(database: Database, strings: Strings, devices: Devices, clock: Clock) -> Samples | None:
    table, names = database.table("GPU_METRICS"), database.table("TARGET_INFO_GPU_METRICS")
    if table is None or names is None:
        return None
    metrics = {
        (integer(type_id), integer(metric)): text(name)
        for type_id, metric, name in names.rows("typeId", "metricId", "metricName")
    }
    rows = table.integers({"timestamp": NULL, "rawTimestamp": NULL, "typeId": 0, "metricId": -1, "value": 0})
    if not len(rows):
        return None
    time = np.where(rows["timestamp"] == NULL, rows["rawTimestamp"], rows["timestamp"])
    pairs, places = distinct_pairs(rows["typeId"], rows["metricId"])
    texts = (metrics.get(pair) for pair in pairs)
    metric = np.array([strings.add(name) if name else UNKNOWN for name in texts], np.int32)[places]
    types, type_places = distinct(rows["typeId"])
    device = _devices(types, devices)[type_places]
    return _samples(time, device, metric, rows["value"].astype(np.float64), clock)


def _early_samples(database: Database, strings: Strings, devices: Devices, clock: Clock) -> Samples:
    """Exports up to 2022 keep each sample as JSON with texts for numbers, among other generic events."""
    table = database.table("GENERIC_EVENTS")
    rows = table.rows("timestamp", "rawTimestamp", "typeId", "data") if table else []
    times: list[int] = []
    types: list[int] = []
    names: list[int] = []
    values: list[float] = []
    decoder = msgspec.json.Decoder(dict[str, str | float | None])
    for timestamp, raw_timestamp, type_id, data in rows:
        time = integer(timestamp if timestamp is not None else raw_timestamp)
        for name, value in _decoded(decoder, data).items() if time is not None else ():
            if _is_metric(name):
                times.append(_bounded(time))
                types.append(_bounded(integer(type_id)))
                names.append(strings.add(name))
                values.append(_number(value))
    type_values, places = distinct(np.array(types, np.int64))
    device = _devices(type_values, devices)[places]
    return _samples(np.array(times, np.int64), device, np.array(names, np.int32), np.array(values), clock)


def _is_metric(name: str) -> bool:
    """``SM Active [Throughput %]``: a name, then its unit in brackets."""
    title, _, unit = name.removesuffix("]").rpartition(" [")
    return name.endswith("]") and bool(title and unit) and "]" not in unit


def _decoded(decoder: msgspec.json.Decoder[dict[str, Any]], data: object) -> dict[str, Any]:
    try:
        return decoder.decode(data if isinstance(data, bytes) else text(data))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _devices(types: Integers, devices: Devices) -> NDArray[np.int32]:
    """A type id ends with nsys' number of the GPU; where one GPU is sampled and one ran, they are the same."""
    if len(types) == 1 and len(devices.devices) == 1:
        return np.zeros(1, np.int32)
    return np.array([devices.of_gpu(type_id & _GPU_BITS) for type_id in types.tolist()], np.int32)


def _samples(
    time: Integers,
    device: NDArray[np.int32],
    metric: NDArray[np.int32],
    value: NDArray[np.float64],
    clock: Clock,
) -> Samples:
    rows = Columns(
        len(time), {"start": time, "end": time, "device": device, "metric": metric, "value": value}
    )
    rows = clock.credible(rows.take((device >= 0) & (metric >= 0)), ranges=True)
    return Samples.of(
        len(rows),
        time_ns=clock.session_ns(rows["start"]),
        device=rows["device"],
        metric=rows["metric"],
        value=rows["value"],
    )


def _number(value: object) -> float:
    try:
        return float(text(value))
    except ValueError:
        return float("nan")


def _bounded(number: int | None) -> int:
    return max(NULL, min(number or 0, -NULL - 1))
