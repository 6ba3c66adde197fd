"""Recordings read the plain way: `sqlite3`, `json` and whole numbers, one object an event.

Nothing of profkit is used here. These readers know our own recordings, not every file in the world, and they
are slow on purpose: a person can follow them with a pencil.
"""

import gzip
import json
import re
import sqlite3
import tempfile
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any


@dataclass
class Op:
    """Something that a device did."""

    kind: str
    """kernel, memset, graph, or the direction of a copy: HtoD, DtoH, DtoD, PtoP..."""
    name: str
    start: int
    end: int
    device: int
    process: int
    correlation: int
    shape: tuple[int, ...] = ()
    """grid and block"""

    @property
    def length(self) -> int:
        return self.end - self.start


@dataclass
class Call:
    """A call of the CUDA runtime or driver."""

    name: str
    start: int
    end: int
    thread: tuple[int, int]
    """process, thread"""
    correlation: int
    driver: bool = False


@dataclass
class Span:
    """A named stretch of host time."""

    name: str
    start: int
    end: int
    thread: tuple[int, int]
    kind: str
    """annotation, operator, python or overhead"""
    domain: str | None = None


@dataclass
class Recording:
    """All that the brute force looks at."""

    ops: list[Op] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    thread_names: dict[tuple[int, int], list[str]] = field(default_factory=dict)


EMIT_SUFFIX = re.compile(r"^(.*?), (?:seq = -?\d+|op_id = -?\d+|sizes = \[|input_op_ids = \[)", re.DOTALL)
COPY_KINDS = {
    0: "unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
    9: "HtoH", 10: "PtoP", 11: "managed HtoD", 12: "managed DtoH", 13: "managed DtoD",
}  # fmt: skip


def read_plainly(path: Path) -> Recording:
    """One of our recordings, by its name: nsys (`.sqlite`) or torch.profiler (`.json`), gzipped or not."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return nsys(data) if ".sqlite" in path.name else kineto(data)


def nsys(data: bytes) -> Recording:
    """An export of nsys 2023.4 with its full tables."""
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        file.write(data)
        file.flush()
        connection = sqlite3.connect(f"file:{file.name}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        try:
            return _nsys(connection)
        finally:
            connection.close()


def _nsys(connection: sqlite3.Connection) -> Recording:
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def rows(table: str) -> list[sqlite3.Row]:
        return connection.execute(f'SELECT * FROM "{table}"').fetchall() if table in tables else []

    text = {row["id"]: row["value"] for row in rows("StringIds")}
    found = Recording()
    for row in rows("CUPTI_ACTIVITY_KIND_KERNEL"):
        shape = (row["gridX"], row["gridY"], row["gridZ"], row["blockX"], row["blockY"], row["blockZ"])
        found.ops.append(_nsys_op("kernel", text[row["demangledName"]], row, shape))
    for row in rows("CUPTI_ACTIVITY_KIND_MEMSET"):
        found.ops.append(_nsys_op("memset", "Memset", row))
    for row in rows("CUPTI_ACTIVITY_KIND_MEMCPY"):
        kind = COPY_KINDS[row["copyKind"]]
        if kind != "HtoH":
            found.ops.append(_nsys_op(kind, f"Memcpy {kind}", row))
    for row in rows("CUPTI_ACTIVITY_KIND_RUNTIME"):
        name = re.sub(r"_v\d+(_ptsz|_ptds)?$", "", text[row["nameId"]])
        thread = _nsys_thread(row["globalTid"])
        driver = row["eventClass"] == 1
        found.calls.append(Call(name, row["start"], row["end"], thread, row["correlationId"] or 0, driver))
    for row in rows("PROFILER_OVERHEAD"):
        thread = _nsys_thread(row["globalTid"])
        found.spans.append(Span(text[row["nameId"]], row["start"], row["end"], thread, "overhead"))
    for row in rows("ThreadNames"):
        found.thread_names.setdefault(_nsys_thread(row["globalTid"]), []).append(text[row["nameId"]])
    found.spans += _nvtx_spans(rows("NVTX_EVENTS"), text)
    return found


def _nvtx_spans(marks: list[sqlite3.Row], text: dict[int, str]) -> list[Span]:
    domains = {
        (_nsys_thread(row["globalTid"])[0], row["domainId"]): row["text"]
        for row in marks
        if row["eventType"] == 75
    }
    found = []
    for row in marks:
        if row["eventType"] != 59:
            continue
        thread = _nsys_thread(row["globalTid"])
        name = row["text"] if row["text"] is not None else text[row["textId"]]
        domain = domains.get((thread[0], row["domainId"]))
        suffixed = EMIT_SUFFIX.match(name)
        is_op = suffixed or name.startswith(("aten::", "autograd::", "torch::autograd::"))
        kind = "operator" if is_op and domain is None else "annotation"
        found.append(Span(suffixed[1] if suffixed else name, row["start"], row["end"], thread, kind, domain))
    return found


def _nsys_thread(global_id: int) -> tuple[int, int]:
    return (global_id >> 24) & 0xFFFFFF, global_id & 0xFFFFFF


def _nsys_op(kind: str, name: str, row: sqlite3.Row, shape: tuple[int, ...] = ()) -> Op:
    process = (row["globalPid"] >> 24) & 0xFFFFFF
    return Op(
        kind, name, row["start"], row["end"], row["deviceId"], process, row["correlationId"] or 0, shape
    )


def kineto(data: bytes) -> Recording:
    """A trace of torch 2.4 and later: microseconds with three digits after the point."""
    events: list[dict[str, Any]] = json.loads(data, parse_float=Decimal)["traceEvents"]
    found = Recording()
    calls = [event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    host = {event["pid"] for event in events if event.get("cat") in ("cpu_op", "user_annotation")}
    assert len(host) <= 1, "our traces hold one process"
    process = host.pop() if host else 0
    for event in calls:
        args = event["args"]
        start, end = _times(event)
        thread = (event["pid"], event["tid"])
        driver = event["cat"] == "cuda_driver"
        name = event["name"]
        found.calls.append(Call(name, start, end, thread, args.get("correlation", 0), driver))
    for event in events:
        category = event.get("cat")
        if event["ph"] == "M" and event["name"] == "thread_name":
            key = (event["pid"], event["tid"])
            found.thread_names.setdefault(key, []).append(event["args"]["name"])
        if event["ph"] != "X":
            continue
        start, end = _times(event)
        if category in ("kernel", "gpu_memcpy", "gpu_memset"):
            args = event["args"]
            kind = {"kernel": "kernel", "gpu_memset": "memset"}.get(category) or event["name"].split()[1]
            shape = (*args.get("grid", ()), *args.get("block", ()))
            correlation = args.get("correlation", 0)
            found.ops.append(Op(kind, event["name"], start, end, args["device"], process, correlation, shape))
        elif category in ("cpu_op", "user_annotation", "python_function", "overhead"):
            kind = {"cpu_op": "operator", "user_annotation": "annotation", "python_function": "python"}
            thread = (event["pid"], event["tid"])
            found.spans.append(Span(event["name"], start, end, thread, kind.get(category, "overhead")))
    return found


def _times(event: dict[str, Any]) -> tuple[int, int]:
    start = _ns(event["ts"])
    return start, start + _ns(event.get("dur", 0))


def _ns(microseconds: Decimal | int) -> int:
    ns = Decimal(microseconds) * 1000
    assert ns == int(ns), "our traces are exact to the nanosecond"
    return int(ns)
