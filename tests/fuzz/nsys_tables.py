"""Tables of nsys that the recordings lack: of other cards, older and newer releases, other options, and other tools."""

from __future__ import annotations

import json
import sqlite3
from random import Random
from typing import Any

from tests.fuzz.damage import NUMBERS, TEXTS

TABLES: dict[str, tuple[str, ...]] = {
    "NVTX_EVENTS": ("start", "end", "eventType", "text", "textId", "globalTid", "domainId"),
    "GPU_METRICS": ("timestamp", "rawTimestamp", "typeId", "metricId", "value"),
    "TARGET_INFO_GPU_METRICS": ("typeId", "metricId", "metricName"),
    "GENERIC_EVENTS": ("timestamp", "rawTimestamp", "typeId", "data"),
    "CUDA_CALLCHAINS": ("id", "symbol", "module", "stackDepth"),
    "PROFKIT_PYTHON_SAMPLES": ("timestamp", "globalTid", "callchainId"),
    "PROFKIT_PYTHON_CALLCHAINS": ("id", "symbol", "module", "line", "stackDepth"),
    "CUDA_GPU_MEMORY_USAGE_EVENTS": (
        "start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType",
    ),
    "CUPTI_ACTIVITY_KIND_DRIVER": ("start", "end", "globalTid", "correlationId", "nameId", "callchainId"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        "start", "end", "deviceId", "streamId", "correlationId", "bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId",
        "dstDeviceId",
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("start", "end", "globalPid", "deviceId", "streamId", "correlationId", "bytes"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": ("start", "end", "deviceId", "streamId", "correlationId", "graphId"),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ("start", "end", "globalPid", "contextId", "streamId", "syncType"),
    "CUPTI_ACTIVITY_KIND_OVERHEAD": ("start", "end", "globalTid", "nameId", "overheadType"),
    "THREADNAMES": ("globalTid", "nameId"),
    "DIAGNOSTIC_EVENT": ("text", "globalPid"),
    "EXPORT_META_DATA": ("name", "value"),
    "META_DATA_CAPTURE": ("name", "value"),
    "TARGET_INFO_SYSTEM_ENV": ("name", "value"),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid", "uuid", "numMultiprocessors"),
    "TARGET_INFO_CUDA_GPU": ("id", "name", "memoryBandwidth", "smCount", "computeMajor", "computeMinor"),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs",),
    "ANALYSIS_DETAILS": ("duration", "startTime", "stopTime"),
    "OSRT_API": ("start", "end", "globalTid", "nameId"),
    "STRINGTABLE": ("id", "value"),
    "ops": ("name", "start"),
    "dlprof_iterations": ("start",),
}  # fmt: skip
_METRICS = (
    "SMs Active [Throughput %]",
    "DRAM Read Bandwidth [Throughput %]",
    "PCIe",
    "GPC Clock Frequency [MHz]",
)
_MESSAGES = (
    "Not all CUDA events might have been collected.", "Not all NVTX events might have been collected.", "0 events were dropped",
    "Buffer overflow: 12 events lost in /home/someone/secret/report.nsys-rep", "CPU context switches: dropped",
)  # fmt: skip
_MARKS = (
    "aten::mm, seq = 12, op_id = 3, sizes = [[8, 16], [16, 4]]", "aten::mm, seq = 13, op_id = 4, sizes = [[8, 16], [16, 4]]",
    "aten::add_, op_id = 5, sizes = [[], [[2], [3]]], input_op_ids = [(0,-1)]", "aten::relu, seq = 5", "aten::mm, op_id = x",
    "profkit::forward", "forward", "autograd::engine::evaluate_function: MmBackward0, seq = 12, op_id = 9", "a\x1fb",
)  # fmt: skip
_EVENT_TYPES = (59, 60, 70, 71, 34, 39, 75, 5, -1)
"""Push and pop, start and end (and those of imported texts), marks, names of threads, domains, others."""
_FACTS = (
    ("EXPORT_SCHEMA_VERSION", "99.7.1"), ("EXPORT_SCHEMA_VERSION", "2.4"), ("EXPORT_CONFIG_TIME_SHIFT", "1000000000"),
    ("ENVIRONMENT_VARIABLE", "A=1;RANK=3;PASSWORD=x"), ("PROCESS_7:DeviceEnvironment", 'OMPI_COMM_WORLD_RANK="999999"'),
    ("CudaDriverVersion", "12080"), ("CpuCores", "64"), ("PROCESS_12:RUN_DURATION_MS", "1500"), ("NvDriverVersion", "580.1"),
    ("CUDA_GRAPH_TRACE_OPTIONS:MODE", "graph"), ("EXPORT_PRODUCT_VERSION", "2020.1.1"),
)  # fmt: skip
_TIMES = ("start", "end", "timestamp", "rawTimestamp")
_CHOICES: dict[str, tuple[Any, ...]] = {
    "metricName": _METRICS, "text": (*_MESSAGES, *_MARKS, *_MARKS, None), "uuid": ("GPU-1", "GPU-2"), "eventType": _EVENT_TYPES,
    "domainId": (0, 0, 0, 1, 2), "textId": (None, None, 1, 2, 7),
}  # fmt: skip
_LARGE = (0, 512, 1 << 21, 10**9, 3 * 10**12, 1_700_000_000 * 10**9)
_SMALL = (0, 0, 1, 1, 2, 3, 7, 8, 13)


def add_table(database: sqlite3.Connection, random: Random) -> None:
    """Make one of the tables, or fill up the one that is there, with rows that mostly could be true.

    Raises:
        sqlite3.Error: A table of that name has other columns.
    """
    name = random.choice(list(TABLES))
    columns = TABLES[name]
    base, threads = _known(database)
    database.execute(f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(columns)})")
    if name == "GPU_METRICS":
        for number, metric in enumerate(_METRICS):
            names = "TARGET_INFO_GPU_METRICS"
            database.execute(f"CREATE TABLE IF NOT EXISTS {names} (typeId, metricId, metricName)")
            database.execute(f"INSERT INTO {names} VALUES (?, ?, ?)", (random.choice(_SMALL), number, metric))
    sql = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for _ in range(random.choice([1, 2, 6, 25])):
        start = base + random.randrange(10**7)
        row = {column: _cell(column, start, threads, random) for column in columns}
        if "value" in row and "name" in row:
            row["name"], row["value"] = random.choice(_FACTS)
        if random.random() < 0.15:
            row[random.choice(columns)] = _odd(random)
        database.execute(sql, list(row.values()))


def _known(database: sqlite3.Connection) -> tuple[int, list[int]]:
    """A time inside the recording, and threads."""
    try:
        found = database.execute(
            "SELECT start, globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 9"
        ).fetchall()
    except sqlite3.Error:
        found = []
    whole = [(start, tid) for start, tid in found if type(start) is int and type(tid) is int]
    return (whole[0][0] if whole else 10**9), [tid for _, tid in whole] or [0x1000007000007]


def _cell(column: str, start: int, threads: list[int], random: Random) -> Any:
    if column in _TIMES:
        return start + (random.randrange(10**5) if column == "end" else 0)
    if column == "globalTid":
        return random.choice(threads)
    if column == "globalPid":
        return random.choice(threads) & ~0xFFFFFF
    if column == "data":
        return _generic(random)
    if column in _CHOICES:
        return random.choice(_CHOICES[column])
    if column in ("duration", "bytes", "address", "memoryBandwidth", "utcEpochNs"):
        return random.choice(_LARGE)
    return random.choice(_SMALL)


def _generic(random: Random) -> str | bytes:
    """What the generic events of old exports hold."""
    values = {metric: random.choice(["12.5", "", None, 7, "nan"]) for metric in _METRICS}
    made = json.dumps(values)
    return random.choice([made, made.encode(), made[:-5], b"\xff" + made.encode()])


def _odd(random: Random) -> Any:
    number = random.choice(NUMBERS)
    fits = isinstance(number, float) or abs(number) < 2**63
    return random.choice([None, number if fits else float(number), random.choice(TEXTS), b"\xff\x00"])


def keep_few(database: sqlite3.Connection, names: list[str], random: Random) -> None:
    """Drop most tables: exports of little, and databases of other tools."""
    for name in names:
        if random.random() < 0.8:
            quoted = name.replace('"', '""')
            database.execute(f'DROP TABLE "{quoted}"')
