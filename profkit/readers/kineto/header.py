"""What a trace says of its machine and of its recording, beside the events."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from profkit.errors import ReadError
from profkit.model import Device
from profkit.readers.kineto.text import Header

__all__ = ["base_ns", "devices", "facts", "foreign", "rank", "torch_version"]

_FLAGS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
_VERSIONS = (
    "cuda_driver_version",
    "cuda_runtime_version",
    "cupti_version",
    "hip_driver_version",
    "hip_runtime_version",
)
_TOOLS = ("roctracer_version", "rocprofiler-sdk_version")
_RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_.]?(\d{1,6})", re.IGNORECASE)

_TORCH_BY_LINE = {
    1051: "1.9",
    1740: "2.5",
    1743: "2.6",
    1755: "2.7",
    1777: "2.8",
    1779: "2.9",
    1780: "2.10",
    1783: "2.11",
}
"""First line of ``Module._call_impl`` in torch/nn/modules/module.py, by version of torch."""
_CALL_IMPL = re.compile(r"(?:.*/)?torch/nn/modules/module\.py\((\d+)\): _call_impl")

_FOREIGN = (
    ({"nodes", "schema"}, "it is an execution trace (a graph of operators, without the times of the device)"),
    ({"workload_graph"}, "it is a Chakra workload graph, not a timeline"),
    ({"rocprofiler-sdk-tool"}, "it is a rocprofiler-sdk JSON file"),
    ({"segments"}, "it is a memory snapshot that was turned into JSON"),
    ({"log"}, "it is a HAR file or a log"),
    ({"nbformat"}, "it is a notebook"),
    ({"verdict", "schema"}, "it is a profkit report, not a recording"),
    ({"shared", "profiles"}, "it is a speedscope profile"),
)
WANTED = "Give the file that torch.profiler's export_chrome_trace() or tensorboard_trace_handler() wrote."


def foreign(header: Header, name: str) -> ReadError:
    """The error for a JSON object that has no list of events: what it is instead."""
    keys = set(header)
    for marks, what in _FOREIGN:
        if marks <= keys:
            return ReadError(name, what, WANTED)
    listed = ", ".join(sorted(keys)[:3])
    return ReadError(name, f"it is JSON without traceEvents (it has {listed or 'nothing'})", WANTED)


def base_ns(header: Header) -> int | None:
    """``baseTimeNanoseconds``, the Unix time of time zero."""
    value = _number(_value(header, "baseTimeNanoseconds"))
    return value if value is not None and 0 <= value < 2**63 else None


def rank(header: Header, name: str) -> int | None:
    """The rank in the file, else in its name."""
    info = _value(header, "distributedInfo")
    found = _number(info.get("rank")) if isinstance(info, dict) else None
    if found is None and (match := _RANK_IN_NAME.search(name)):
        found = int(match[1])
    return found if found is not None and 0 <= found < 2**31 else None


def facts(header: Header) -> dict[str, str]:
    """Versions and options that say nothing of who recorded, and where."""
    listed = _value(header, "deviceProperties")
    made: dict[str, str] = {"gpus": str(len(listed))} if isinstance(listed, list) else {}
    for key in _VERSIONS:
        number = _number(_value(header, key))
        if number is not None:
            is_cuda = key.startswith("cuda") and number < 10**6
            made[key] = f"{number // 1000}.{number % 1000 // 10}" if is_cuda else str(number)
    for key in _TOOLS:
        value = _value(header, key)
        if isinstance(value, str | int | float):
            made[key] = str(value)[:40]
    for key in _FLAGS:
        value = _value(header, key)
        if value is not None:
            made[key] = "on" if value in (1, True, "1", "true") else "off"
    info = _value(header, "distributedInfo")
    if isinstance(info, dict):
        for key in ("backend", "world_size", "nccl_version"):
            if isinstance(info.get(key), str | int):
                made[key] = str(info[key])[:80]
    return made


def torch_version(texts: list[str]) -> str | None:
    """The version of torch, from where its modules are called, when Python functions were recorded."""
    for text in texts:
        if match := _CALL_IMPL.fullmatch(text):
            return _TORCH_BY_LINE.get(int(match[1][:9]))
    return None


def devices(header: Header, ordinals: list[int]) -> list[Device]:
    """The devices with these ordinals, described by the file where it can be told which is which.

    In a container the ordinals of an AMD trace may be those of the machine (2, 5) while one device is
    described; all of the described ones being equal, it does not matter which is meant.
    """
    listed = _value(header, "deviceProperties")
    described = [d for d in listed if isinstance(d, dict)] if isinstance(listed, list) else []
    by_id = {_number(d.get("id")): d for d in described}
    alike = len({(d.get("name"), d.get("totalGlobalMem")) for d in described if _hashable(d)}) == 1
    return [_device(at, by_id.get(at) or (described[0] if alike else {})) for at in ordinals]


def _hashable(device: dict[str, Any]) -> bool:
    return not isinstance(device.get("name"), list | dict) and not isinstance(
        device.get("totalGlobalMem"), list | dict
    )


def _device(ordinal: int, found: dict[str, Any]) -> Device:
    name = found.get("name")
    major, minor = _number(found.get("computeMajor")), _number(found.get("computeMinor"))
    is_cuda = _number(found.get("warpSize")) != 64 and not str(name).startswith("AMD")
    return Device(
        ordinal,
        name=name if isinstance(name, str) and name.strip() else None,
        sm_count=_number(found.get("numSms")),
        memory_bytes=_number(found.get("totalGlobalMem")),
        compute_capability=(major, minor) if is_cuda and major is not None and minor is not None else None,
    )


def _value(header: Header, key: str) -> Any:
    try:
        return msgspec.json.decode(header[key]) if key in header else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _number(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value.strip()):
        return int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
