"""Kineto traces made up from real ones: slices of recordings, with damage of every kind that JSON allows."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from random import Random
from typing import Any

from tests.fuzz.damage import Made, damaged, odd_value
from tests.shared import DATA

_RECORDINGS = (
    "sync_item",
    "big_gemm_bf16",
    "convnet_fp16_channels_last",
    "elementwise_chain",
    "sync_item_stack",
)
_CATEGORIES = (
    "kernel", "cuda_runtime", "cuda_driver", "cpu_op", "user_annotation", "gpu_user_annotation", "gpu_memcpy",
    "gpu_memset", "overhead", "python_function", "cuda_sync", "cpu_instant_event", "ac2g", "Trace", "", "KERNEL",
)  # fmt: skip
_PHASES = ("X", "B", "E", "i", "I", "s", "f", "t", "M", "C", "b", "e", "n", "", "XX")
_DEEP = "deep "
"""A text that is replaced by as many nested lists as follow it: more than Python's own writer can write."""
_SHIFTS = (-1e6, 1e6, 0.001, -0.0005, -5, 5, 1e12, -1e15)

_HEADER_VALUES: dict[str, Any] = {
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 8 << 30, "numSms": 132, "warpSize": 32},
                         {"id": 2, "name": "AMD Instinct MI300X", "totalGlobalMem": 8 << 30, "warpSize": 64}],
    "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 1, "nccl_version": "2.21.5"},
    "cuda_driver_version": 12080, "hip_runtime_version": 60342134, "roctracer_version": 4.1, "profile_memory": 1, "with_stack": True,
    "record_shapes": "0", "baseTimeNanoseconds": 1_700_000_000 * 10**9, "displayTimeUnit": "ms", "schemaVersion": 1,
}  # fmt: skip
_FOREIGN: list[dict[str, Any]] = [
    {"nodes": [], "schema": "1.1"}, {"workload_graph": {}}, {"rocprofiler-sdk-tool": []}, {"segments": [], "device_traces": []},
    {"log": {}}, {"nbformat": 4}, {"verdict": {}, "schema": "profkit.report/1"}, {"shared": {}, "profiles": []}, {}, {"a": 1},
]  # fmt: skip
"""Other people's JSON."""
_MORE_ARGS: list[dict[str, Any]] = [
    {"Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": 8, "dtype": "BFloat16",
     "Process Group Name": "0", "Process Group Description": "default_pg", "Seq": 4},
    {"Input Dims": [[8, 16], [16, 4], []], "Input type": ["float", "c10::BFloat16", ""], "Input Strides": [[16, 1], [4, 1], []],
     "Concrete Inputs": ["", "", "1"], "Sequence number": 7, "Fwd thread id": 2},
    {"Input dims": [[8, [2]], "x"], "Call stack": "a.py(3): f;b.py(4): g"},
    {"fromDevice": 0, "inDevice": 1, "toDevice": 1, "bytes": 4096, "kind": "PtoP"},
    {"graph node id": 12, "correlation": 0, "stream": "stream 7", "device": "1"},
    {"Python id": 3, "Python parent id": 2, "Python module id": 1},
    {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 5},
]  # fmt: skip
"""Arguments that the recordings lack: collectives, shapes, peer copies, nodes of graphs."""

Event = Any


@cache
def sources() -> list[dict[str, Any]]:
    """Decoded traces: recordings, and the cases that are whole."""
    found = [
        json.loads(gzip.decompress((DATA / f"kineto/{name}.json.gz").read_bytes())) for name in _RECORDINGS
    ]
    for file in sorted((DATA / "cases").glob("*.json")):
        try:
            case = json.loads(file.read_bytes())
        except ValueError:
            continue
        if isinstance(case, dict) and case.get("traceEvents"):
            found.append(case)
    return found


def make(random: Random) -> Made:
    """One trace, different for every state of ``random``."""
    source = random.choice(sources())
    events = _slice(source["traceEvents"], random)
    for _ in range(random.choice([0, 1, 2, 5, 12, 25])):
        if events:
            _change(events, random)
    if random.random() < 0.2:
        random.shuffle(events)
    header = {key: value for key, value in source.items() if key != "traceEvents" and random.random() > 0.1}
    if header and random.random() < 0.3:
        _change_header(header, random)
    items = [*header.items(), ("traceEvents", events)]
    if random.random() < 0.02:
        items = list(random.choice(_FOREIGN).items())
    random.shuffle(items)
    kernels = sum(isinstance(event, dict) and str(event.get("cat")).lower() == "kernel" for event in events)
    return _written(dict(items), events, kernels, random)


def _change_header(header: dict[str, Any], random: Random) -> None:
    key = random.choice([*header, *_HEADER_VALUES])
    value = header.get(key, _HEADER_VALUES.get(key))
    if isinstance(value, list) and value and isinstance(value[0], dict) and random.random() < 0.7:
        first = {**value[0], random.choice(list(value[0])): odd_value(random)}  # one device of many
        header[key] = [first, *value[1:]] if random.random() < 0.5 else [*value, first]
    elif isinstance(value, dict) and value and random.random() < 0.7:
        header[key] = {**value, random.choice(list(value)): odd_value(random)}
    elif key in _HEADER_VALUES and random.random() < 0.7:
        header[key] = _HEADER_VALUES[key]
    else:
        header[key] = odd_value(random)


def _slice(events: list[Event], random: Random) -> list[Event]:
    size = min(len(events), random.choice([3, 10, 20, 40, 80, 250]))
    start = random.randint(0, len(events) - size)
    return [_copy(event) for event in events[start : start + size]]


def _copy(event: Event) -> Event:
    if not isinstance(event, dict):
        return event
    copied = dict(event)
    if isinstance(event.get("args"), dict):
        copied["args"] = dict(event["args"])
    return copied


def _change(events: list[Event], random: Random) -> None:
    place = random.randrange(len(events))
    event = events[place]
    kind = random.random()
    if not isinstance(event, dict) or kind < 0.03:
        events[place] = odd_value(random)
    elif kind < 0.07:
        events.insert(random.randrange(len(events)), _copy(event))
    elif kind < 0.13:
        del events[place]
    elif kind < 0.17:
        events.insert(place, _memory_event(event, random))
    else:
        _change_event(event, random.choice(events), random)


def _change_event(event: Event, other: Event, random: Random) -> None:
    kind = random.random()
    if kind < 0.25:
        event[random.choice([*event, "ts", "dur", "pid", "tid", "name"])] = odd_value(random)
    elif kind < 0.45 and isinstance(event.get("args"), dict):
        event["args"][random.choice([*event["args"], "stream", "device", "correlation", "grid"])] = odd_value(
            random
        )
    elif kind < 0.55 and event:
        del event[random.choice(list(event))]
    elif kind < 0.7 and type(event.get("ts")) in (int, float):
        event[random.choice(["ts", "dur"])] = event["ts"] + random.choice(_SHIFTS)
    elif kind < 0.86:
        event["cat"] = random.choice(_CATEGORIES)
    elif kind < 0.9:
        event["ph"] = random.choice(_PHASES)
    elif kind < 0.92:
        event["args"] = f"{_DEEP}{random.choice([2, 30, 3000])}"
    elif kind < 0.96:
        args = event.get("args")
        event["args"] = {**(args if isinstance(args, dict) else {}), **random.choice(_MORE_ARGS)}
    else:
        _exchange(event, other, random)


def _memory_event(near: Event, random: Random) -> Event:
    """An allocation at the time of another event."""
    size = random.choice([512, -512, 1 << 21, 0, -(2**60)])
    args = {"Device Type": random.choice([0, 1, 1, 1]), "Device Id": random.choice([0, 0, 1, 5, -1]), "Bytes": size,
            "Addr": random.choice([4096, 8192, 2**63]), "Total Allocated": abs(size), "Total Reserved": 1 << 21}  # fmt: skip
    where = {key: near.get(key) for key in ("pid", "tid", "ts")}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "s": "t", "args": args, **where}


def _exchange(event: Event, other: Event, random: Random) -> None:
    """Two events swap a field: ids clash, names meet the wrong kind."""
    if isinstance(other, dict) and (common := sorted(event.keys() & other.keys())):
        key = random.choice(common)
        event[key], other[key] = other[key], event[key]


def _deep(match: re.Match[str]) -> str:
    depth = int(match[1])
    return "[" * depth + "]" * depth


def _written(trace: dict[str, Any], events: list[Event], kernels: int, random: Random) -> Made:
    content: Any = events if random.random() < 0.05 else trace
    text = json.dumps(
        content,
        ensure_ascii=random.random() < 0.7,
        indent=random.choice([None, None, 1]),
        separators=random.choice([None, (",", ":")]),
    )
    text = re.sub(rf'"{_DEEP}(\d+)"', _deep, text)
    data = text.encode("utf-8", "replace")
    way = random.random()
    if way < 0.05:  # every key of an object twice, the first one wrong
        data = data.replace(b'"ts":', b'"ts": 5, "ts":').replace(b'"name":', b'"name": null, "name":')
    elif way < 0.25:
        return Made(damaged(data, random), ".json")
    elif way < 0.28:
        data = text.encode("utf-16" if random.random() < 0.5 else "utf-8-sig", "replace")
    elif way < 0.31:
        return Made(damaged(gzip.compress(data, 1), random), ".json.gz")
    elif way < 0.34:
        return Made(data.replace(b"\\\\", b"\\").replace(b"/", b"\\"), ".json")
    return Made(data, ".json", kernels)
