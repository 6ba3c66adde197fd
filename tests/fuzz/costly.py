"""Files of at most 2 MB that are made to cost much: long and many for each text field of each format.

What they hold is small once compressed, since it repeats; one seed and one number make one file.
"""

from __future__ import annotations

import gzip
import json
import pickle
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.fuzz.damage import Made
from tests.fuzz.grown import grown, name_of

MOST_BYTES = 2_000_000
"""Of a file as it is given; 400 times as much may be in it."""

_UNITS = (
    "a", "A", "0", "_", " ", "<", "(", "[", "{", "[[", "a_", "a.", "a::", "a ", "1x", ", ", "/a", "torch/", "\\a", "a.py:1 ",
    "tp_", "tensor_parallel", "gc.", "collect ", "Functor", "_kernel_cuda", "complex", "cudnn", "winograd", "nccl_", "amax",
    "exp", "rsqrt_", "softmax_warp_<", "fmhaSm100Qkv", "lambda(", "std::array<char *, ", "not all ", "0 lost ", "Wait\n", "step ",
    "Module Loading", "enumerate(DataLoader)#", "Optimizer.", "execute_context_", "key=", "sizes = [", ", seq = 1", "SM [",
    "gpu [%] ", "optimizer ", "backward.", "site-packages/", "ProfilerStep#", "thread 1 (", "é", "\u202e", "\U0001f600",
)  # fmt: skip
"""What patterns look for, begun and never ended."""
_SIZES = (
    (1, 1_000_000),
    (10, 300_000),
    (100, 30_000),
    (2_000, 3_000),
    (20_000, 300),
    (100_000, 30),
    (300_000, 8),
)
"""How many texts, and how long each is."""

KINETO_FIELDS = (
    "kernel", "operator", "annotation", "python", "runtime", "thread_name", "process_name", "cat", "ph", "pid", "tid", "shapes",
    "dtypes", "scalars", "stream", "group", "collective", "module", "device_name", "key", "memcpy", "ts", "unclosed", "header",
)  # fmt: skip
NSYS_FIELDS = (
    "kernel", "range", "range_text", "domain", "thread", "metric", "early_metric", "symbol", "module", "api", "diagnostic", "gpu",
    "environment", "capture", "process",
)  # fmt: skip
SNAPSHOT_FIELDS = ("frame", "file", "user", "stack", "segment")
NCU_FIELDS = ("kernel", "column", "value", "cell")
FIELDS = tuple(
    (format_, field)
    for format_, fields in (
        ("kineto", KINETO_FIELDS),
        ("nsys", NSYS_FIELDS),
        ("snapshot", SNAPSHOT_FIELDS),
        ("ncu", NCU_FIELDS),
    )
    for field in fields
)


def costly(seed: int, number: int) -> tuple[str, Made]:
    """The file of one number, and the field that it tries: fields take turns, texts and sizes are drawn."""
    random = Random(f"{seed} {number}")
    if number % 3:
        at = number // 3 * 2 + number % 3 - 1
        return name_of(at), grown(random.choice(_UNITS), at, random)
    format_, field = FIELDS[number // 3 % len(FIELDS)]
    count, length = random.choice(_SIZES)
    while True:
        made = made_of(format_, field, random.choice(_UNITS), count, length)
        if len(made.data) <= MOST_BYTES:
            return f"{format_}/{field}", made
        count, length = count - count // 2, length - length // 4


def made_of(format_: str, field: str, unit: str, count: int, length: int) -> Made:
    """A file of one format with ``count`` texts of ``length`` characters in one field."""
    texts = _texts(unit, count, length)
    if format_ == "kineto":
        return Made(_packed(_kineto(field, texts)), f".{field}.json.gz")
    if format_ == "nsys":
        return Made(_packed(_nsys(field, list(texts))), f".{field}.sqlite.gz")
    if format_ == "snapshot":
        return Made(_packed(_snapshot(field, list(texts))), f".{field}.pickle.gz")
    return Made(_packed(_ncu(field, list(texts))), f".{field}.csv.gz")


def _texts(unit: str, count: int, length: int) -> Iterator[str]:
    body = (unit * (length // len(unit) + 1))[:length]
    return (f"{body}{number}" if count > 1 else body for number in range(count))


def _packed(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def _event(cat: str, name: str, ts: float, dur: float, **args: object) -> dict[str, object]:
    tid = args.pop("tid", 1)
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


_CATEGORIES = {
    "operator": "cpu_op",
    "annotation": "user_annotation",
    "python": "python_function",
    "runtime": "cuda_runtime",
}
_ARGUMENTS = {
    "shapes": "Input Dims",
    "dtypes": "Input type",
    "scalars": "Concrete Inputs",
}
_KERNEL_ARGUMENTS = {
    "stream": "stream",
    "group": "Process Group Name",
    "collective": "Collective name",
    "module": "module_fqn",
}


def _kineto_event(field: str, text: str, at: float) -> dict[str, object]:
    kernel = _event("kernel", "k", at, 1, device=0, stream=7, correlation=int(at))
    if field == "kernel":
        return kernel | {"name": text}
    if field in _CATEGORIES:
        return _event(_CATEGORIES[field], text, at, 1, correlation=int(at))
    if field in _ARGUMENTS:
        return _event("cpu_op", "aten::mm", at, 1, **{_ARGUMENTS[field]: [text, [text], [[1, 2]]]})
    if field in _KERNEL_ARGUMENTS:
        args = {"device": 0, "stream": 7, "correlation": int(at), _KERNEL_ARGUMENTS[field]: text}
        return kernel | {"args": args, "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)"}
    if field in ("thread_name", "process_name"):
        return {"ph": "M", "name": field, "pid": int(at) % 997, "tid": int(at), "args": {"name": text}}
    if field == "key":
        return kernel | {"args": {text: 1, "device": 0, "stream": 7}}
    if field == "memcpy":
        return _event("gpu_memcpy", f"Memcpy {text}", at, 1, device=0, stream=7, kind=text)
    if field == "unclosed":
        return {"ph": "B", "cat": "user_annotation", "name": text, "pid": 1, "tid": 1, "ts": at}
    return kernel | {field: text}


def _kineto(field: str, texts: Iterator[str]) -> bytes:
    header: dict[str, object] = {"schemaVersion": 1}
    events = [_event("kernel", "k", 10.0 * n, 5, device=0, stream=7, correlation=n) for n in range(1, 4)]
    if field == "header":
        header |= {text: text for text in texts}
    elif field == "device_name":
        header["deviceProperties"] = [{"id": n, "name": text} for n, text in enumerate(texts)]
    else:
        events += [_kineto_event(field, text, 40.0 + 2 * n) for n, text in enumerate(texts)]
    return json.dumps(header | {"traceEvents": events}).encode()


_TABLES = """
create table StringIds (id integer, value text);
create table CUPTI_ACTIVITY_KIND_KERNEL (start integer, end integer, deviceId integer, contextId integer, streamId integer,
  correlationId integer, globalPid integer, demangledName integer, shortName integer, gridX integer, gridY integer, gridZ integer,
  blockX integer, blockY integer, blockZ integer);
create table CUPTI_ACTIVITY_KIND_RUNTIME (start integer, end integer, eventClass integer, globalTid integer,
  correlationId integer, nameId integer, returnValue integer, callchainId integer);
create table NVTX_EVENTS (start integer, end integer, eventType integer, rangeId integer, category integer, color integer,
  text text, globalTid integer, endGlobalTid integer, textId integer, domainId integer);
create table CUDA_CALLCHAINS (id integer, symbol integer, module integer, unresolved integer, stackDepth integer);
create table GPU_METRICS (timestamp integer, typeId integer, metricId integer, value integer);
create table TARGET_INFO_GPU_METRICS (typeId integer, sourceId integer, metricId integer, metricName text);
create table GENERIC_EVENTS (rawTimestamp integer, timestamp integer, typeId integer, data text);
create table DIAGNOSTIC_EVENT (timestamp integer, source integer, severity integer, text text, globalPid integer);
create table TARGET_INFO_GPU (id integer, name text, smCount integer, memoryBandwidth integer, totalMemory integer, cuDevice integer);
create table TARGET_INFO_SYSTEM_ENV (globalVid integer, devStateName text, name text, nameEnum integer, value text);
create table META_DATA_CAPTURE (name text, value text);
create table ThreadNames (nameId integer, priority integer, globalTid integer);
create table PROCESSES (globalPid integer, pid integer, name text);
"""
_PROCESS = 1 << 48 | 4242 << 24
_THREAD = _PROCESS | 4242
_INSERTS = {
    "range_text": "insert into NVTX_EVENTS values (:at, :at + 50, 59, null, null, null, :text, {thread}, null, null, 0)",
    "domain": "insert into NVTX_EVENTS values (:at, null, 75, null, null, null, :text, {thread}, null, null, :number)",
    "metric": "insert into TARGET_INFO_GPU_METRICS values (:number % 300, 0, :number, :text)",
    "early_metric": "insert into GENERIC_EVENTS values (:at, :at, :number, json_object(:text, '1', :text || ' [%]', '2'))",
    "diagnostic": "insert into DIAGNOSTIC_EVENT values (:at, 0, 1, :text, {process})",
    "gpu": "insert into TARGET_INFO_GPU values (:number, :text, 132, 1, 1, :number)",
    "environment": "insert into TARGET_INFO_SYSTEM_ENV values (0, 'x', :text, 0, :text)",
    "capture": "insert into META_DATA_CAPTURE values ('CAPTURE:' || :text, :text)",
    "process": "insert into PROCESSES values ({process} + (:number << 24), :number, :text)",
    "kernel": "insert into CUPTI_ACTIVITY_KIND_KERNEL values (:at, :at + 50, 0, 1, 7, :number, {process}, :number, :number, 1, 1, 1, 32, 1, 1)",
    "range": "insert into NVTX_EVENTS values (:at, :at + 50, 59, null, null, null, null, {thread}, null, :number, 0)",
    "thread": "insert into ThreadNames values (:number, 0, {thread} + :number)",
    "symbol": "insert into CUDA_CALLCHAINS values (:number % 1000, :number, 1, 0, :number)",
    "module": "insert into CUDA_CALLCHAINS values (:number % 1000, 1, :number, 0, :number)",
    "api": "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (:at, :at + 9, 0, {thread}, :number, :number, 0, :number % 1000)",
}
_SAMPLE = "insert into GPU_METRICS values (:at, :number % 300, :number, 50)"


def _nsys(field: str, texts: list[str]) -> bytes:
    first = 10
    texts_of = [*enumerate(texts, first), *((number, "k") for number in range(1, first))]
    rows = [{"text": text, "number": number, "at": 1000 + 100 * number} for number, text in texts_of]
    fill = {"process": _PROCESS, "thread": _THREAD}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.sqlite"
        database = sqlite3.connect(path)
        database.executescript(_TABLES)
        if field in ("kernel", "range", "thread", "symbol", "module", "api"):
            database.executemany("insert into StringIds values (:number, :text)", rows)
        database.executemany(_INSERTS[field].format(**fill), rows)
        if field == "metric":
            database.executemany(_SAMPLE, rows)
        if field != "gpu":
            database.execute("insert into TARGET_INFO_GPU values (0, 'NVIDIA H100', 132, 1, 1, 0)")
        if field != "kernel":
            database.executemany(_INSERTS["kernel"].format(**fill), rows[-3:])
        database.commit()
        database.close()
        return path.read_bytes()


def _snapshot(field: str, texts: list[str]) -> bytes:
    def frame(text: str) -> dict[str, object]:
        return {
            "filename": text if field == "file" else "train.py",
            "name": text if field in ("frame", "stack") else "step",
            "line": 1,
        }

    frames = [[frame(text)] for text in texts]
    if field == "stack":
        frames = [[each[0] for each in frames]]
    trace = [
        {
            "action": "alloc",
            "addr": 4096 * number,
            "size": 512,
            "stream": 0,
            "time_us": number,
            "frames": each,
            "user_metadata": texts[number % len(texts)] if field == "user" else "",
        }
        for number, each in enumerate(frames, 1)
    ]
    segments = [
        {
            "device": 0,
            "address": 4096 * number,
            "total_size": 2 << 20,
            "allocated_size": 512,
            "active_size": 512,
            "stream": 0,
            "segment_type": text if field == "segment" else "small",
            "blocks": [{"size": 512, "state": "active_allocated", "address": 4096 * number, "frames": each}],
            "frames": [],
        }
        for number, (text, each) in enumerate(zip(texts, frames, strict=False), 1)
    ]
    return pickle.dumps({"segments": segments, "device_traces": [trace], "allocator_settings": {}}, 4)


def _ncu(field: str, texts: list[str]) -> bytes:
    columns = [
        "ID",
        "Process ID",
        "Process Name",
        "Kernel Name",
        "Context",
        "Stream",
        "Block Size",
        "Grid Size",
        "Device",
        "CC",
    ]
    columns += ["gpu__time_duration.sum"]
    units = [""] * 10 + ["ns"]
    row = ["0", "1", "python", "k", "1", "7", "(32, 1, 1)", "(1, 1, 1)", "0", "9.0", "1000"]
    rows = [row]
    if field == "column":
        columns, units, rows = columns + texts, units + [""] * len(texts), [row + ["1"] * len(texts)]
    else:
        place = {"kernel": 3, "value": 10, "cell": 6}[field]
        rows += [[*row[:place], text, *row[place + 1 :]] for text in texts]
    return "\n".join(",".join(json.dumps(cell) for cell in line) for line in [columns, units, *rows]).encode()
