"""Exports of nsys the plain way: `sqlite3`, a row at a time (docs/dev/reading-nsys.md has the rules)."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median_low
from typing import Any

from profkit.model.marks import PHASE_DOMAIN, PHASE_MARK
from profkit.verification.events import Call, Op, Recording, Span, UnreadError

__all__ = ["COPY_KINDS", "read_export"]

COPY_KINDS = {
    0: "unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
    9: "HtoH", 10: "PtoP", 11: "managed HtoD", 12: "managed DtoH", 13: "managed DtoD",
}  # fmt: skip
"""nsys' ENUM_CUDA_MEMCPY_OPER."""

_SIDES = {0: "H", 1: "H", 2: "D", 5: "D", 3: "A"}
"""nsys' ENUM_CUDA_MEM_KIND: pageable, pinned, device, static device memory, array."""
_WITHIN_DEVICE = ("unknown", "DtoD", "AtoA", "AtoD", "DtoA")
_WORK = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "memset",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
}
_CALLS = {"CUPTI_ACTIVITY_KIND_RUNTIME": False, "CUPTI_ACTIVITY_KIND_DRIVER": True}
_SHAPE = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_API_VERSION = re.compile(r"(?:_pt[sd][sz])?(?:_v\d+)?(?:_pt[sd][sz])?$")
_EMIT_SUFFIX = re.compile(r"^(.*?), (?:seq = -?\d+|op_id = -?\d+|sizes = \[|input_op_ids = \[)", re.DOTALL)
_OPERATORS = ("aten::", "autograd::", "torch::autograd::")
_PUSH_POP, _START_END = (59, 70), (60, 71)
_THREAD_NAME, _DOMAIN = 39, 75
_THREAD_BITS = 0xFFFFFF
_MARKS = ("start", "end", "eventType", "globalTid", "domainId", "textId")
_HOUR_NS = 3600 * 10**9
_YEARS_NS = 10**18
_UNNAMED = "<unnamed>"

Row = dict[str, Any]


def read_export(path: Path, keep: Callable[[Span], bool]) -> Recording:
    """An SQLite export of nsys.

    Args:
        path: The database; it is only read.
        keep: Which spans are wanted; of the others only the times are kept.

    Raises:
        UnreadError: SQLite cannot read all of its tables.
    """
    # immutable: nothing is locked, and nothing appears beside the input
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.text_factory = bytes
        return _Reading(connection, keep).done()
    except sqlite3.Error as error:
        raise UnreadError(f"SQLite cannot read all of it ({error})") from None
    finally:
        connection.close()


class _Reading:
    """One export."""

    def __init__(self, connection: sqlite3.Connection, keep: Callable[[Span], bool]) -> None:
        self.connection = connection
        self.keep = keep
        self.found = Recording()
        schema = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        real = [_text(name) for name, sql in schema if _text(sql).lstrip().upper().startswith("CREATE TABLE")]
        self.tables = {name.upper(): name for name in real}
        self.zero_is_open = self._must_be_filled_in("NVTX_EVENTS", "end")
        texts = self.rows("STRINGIDS", ("id",), ("value",))
        self.strings = {row["id"]: row["value"] for row in texts if row["id"] is not None}

    def done(self) -> Recording:
        """The recording, without what cannot be true."""
        callers = self._calls()
        self._work(callers)
        credible = self._credible()
        self.found.ops = [op for op in self.found.ops if credible(op.start, op.end)]
        self.found.calls = [call for call in self.found.calls if credible(call.start, call.end)]
        self._devices()
        self._spans(credible)
        for row in self.rows("THREADNAMES", ("globalTid", "nameId")):
            self.found.thread_names.setdefault(_thread(row["globalTid"]), []).append(
                self.string(row["nameId"])
            )
        hosts = {call.thread[0] for call in self.found.calls} | {span.thread[0] for span in self.found.spans}
        self.found.processes += sorted(hosts - set(self.found.processes))
        return self.found

    def rows(self, table: str, integers: tuple[str, ...], texts: tuple[str, ...] = ()) -> Iterator[Row]:
        """The rows of a table; a column that is absent is None, an integer is one whatever was written."""
        name = self._table(table)
        if name is None:
            return
        quoted = '"' + name.replace('"', '""') + '"'
        present = {_text(row[1]).upper() for row in self.connection.execute(f"PRAGMA table_info({quoted})")}
        wanted = [f'CAST("{c}" AS INTEGER)' if c.upper() in present else "NULL" for c in integers]
        wanted += [f'CAST("{c}" AS TEXT)' if c.upper() in present else "NULL" for c in texts]
        for row in self.connection.execute(f"SELECT {', '.join(wanted)} FROM {quoted}"):
            yield dict(zip((*integers, *texts), row, strict=True))

    def _table(self, name: str) -> str | None:
        suffixed = {
            int(m[1]): real
            for upper, real in self.tables.items()
            if (m := re.fullmatch(name + r"_V(\d{1,9})", upper))
        }
        return self.tables.get(name) or (suffixed[max(suffixed)] if suffixed else None)

    def _must_be_filled_in(self, table: str, column: str) -> bool:
        """Whether a column cannot be NULL: the oldest exports write 0 for a missing value."""
        name = self._table(table)
        quoted = '"' + (name or "").replace('"', '""') + '"'
        info = self.connection.execute(f"PRAGMA table_info({quoted})") if name else ()
        return any(row[3] for row in info if _text(row[1]).lower() == column)

    def string(self, number: int | None) -> str:
        """A numbered text; empty when there is none."""
        return _text(self.strings.get(number))

    def _calls(self) -> Counter[int]:
        callers: Counter[int] = Counter()
        for table, driver in _CALLS.items():
            for row in self.rows(
                table, ("start", "end", "globalTid", "correlationId", "nameId", "eventClass")
            ):
                thread = _thread(row["globalTid"])
                callers[thread[0]] += 1
                name = _API_VERSION.sub("", self.string(row["nameId"]))
                is_driver = driver or row["eventClass"] == 1
                self.found.calls.append(
                    Call(name, row["start"], row["end"], thread, row["correlationId"] or 0, is_driver)
                )
        return callers

    def _work(self, callers: Counter[int]) -> None:
        owner = max(sorted(callers), key=lambda process: callers[process], default=0)
        columns = ("start", "end", "globalPid", "deviceId", "correlationId", "streamId")
        more = {
            "kernel": ("demangledName", "shortName", "mangledName", *_SHAPE),
            "copy": ("copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId"),
        }
        for table, kind in _WORK.items():
            for row in self.rows(table, (*columns, *more.get(kind, ()))):
                process = owner if row["globalPid"] is None else _process(row["globalPid"])
                place, correlation = row["deviceId"] or 0, row["correlationId"] or 0
                what, name, shape = kind, "", ()
                if kind == "kernel":
                    names = (self.string(row[c]) for c in ("demangledName", "shortName", "mangledName"))
                    name, shape = next(filter(None, names), _UNNAMED), tuple(row[c] for c in _SHAPE)
                elif kind == "copy":
                    what = _direction(row)
                times = row["start"], row["end"]
                if what != "HtoH":
                    self.found.ops.append(
                        Op(what, name, *times, place, process, correlation, shape, row["streamId"] or 0)
                    )

    def _credible(self) -> Callable[[int | None, int | None], bool]:
        """Which times can be true: near the middle of the recording, in order, and not both zero."""
        facts: Row = {}
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            for row in self.rows(table, (), ("name", "value")):
                facts.setdefault(_text(row["name"]), _text(row["value"]))
        starts = [event.start for event in self.found.events() if _is_ordered(event.start, event.end)]
        if not self.found.ops and not self.found.calls:
            events = self.rows("NVTX_EVENTS", ("start", "end", "eventType"))
            starts = [
                r["start"]
                for r in events
                if r["eventType"] in (*_PUSH_POP, *_START_END) and _is_ordered(r["start"], r["end"])
            ]
        middle = median_low(starts) if starts else 0
        spread = median_low(abs(start - middle) for start in starts) if starts else 0
        shift = _number(facts.get("EXPORT_CONFIG_TIME_SHIFT"))
        shift = shift if abs(shift) < 1 << 62 else 0
        sessions = [row["utcEpochNs"] for row in self.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))]
        began = sessions[0] if sessions and 0 < (sessions[0] or 0) < 1 << 62 else None
        if middle - shift > _YEARS_NS:
            shift = began if began is not None else middle
            began = shift
        self.found.origin = None if began is None else began - shift
        stated = max(
            (row["duration"] or 0 for row in self.rows("ANALYSIS_DETAILS", ("duration",))), default=0
        )
        reach = 2 * stated + 60 * 10**9 if stated else max(_HOUR_NS, 20 * spread)
        reach = min(reach, 30 * 24 * _HOUR_NS)

        def credible(start: int | None, end: int | None, lead: int = 0) -> bool:
            if start is None or end is None or end < start or (start == end and start in (0, shift)):
                return False
            return middle - reach - lead <= start and end <= middle + reach + lead

        return credible

    def _spans(self, credible: Callable[..., bool]) -> None:
        domains = self._domains()
        last = max((event.end for event in self.found.events()), default=None)
        doubled, has_own = [], False
        for row in self.rows("PROFILER_OVERHEAD", ("start", "end", "globalTid", "nameId")):
            if credible(row["start"], row["end"]):
                times, thread = (row["start"], row["end"]), _thread(row["globalTid"])
                self.found.add_span(Span(self.string(row["nameId"]), *times, thread, "overhead"), self.keep)
        for row in self.rows("NVTX_EVENTS", _MARKS, ("text",)):
            span = self._span(row, domains, last)
            if span is None or not credible(span.start, span.end, 24 * _HOUR_NS):
                continue
            has_own |= span.domain == PHASE_DOMAIN
            if span.domain is None and span.name.startswith(PHASE_MARK):
                span.name, span.domain = span.name.removeprefix(PHASE_MARK), PHASE_DOMAIN
                doubled.append(id(span))
            self.found.add_span(span, self.keep)
        if has_own:
            # a phase under both nsys and emit_nvtx leaves two ranges; only the one of its own domain counts
            for span in self.found.spans:
                span.kind = "operator" if id(span) in doubled else span.kind

    def _domains(self) -> dict[tuple[int, int], str]:
        """Names of domains by process and number; names of threads are noted on the way."""
        domains: dict[tuple[int, int], str] = {}
        for row in self.rows("NVTX_EVENTS", _MARKS, ("text",)):
            name = _text(row["text"]) or self.string(row["textId"])
            if row["eventType"] == _DOMAIN and name:
                domains.setdefault((_thread(row["globalTid"])[0], row["domainId"] or 0), name)
            elif row["eventType"] == _THREAD_NAME:
                self.found.thread_names.setdefault(_thread(row["globalTid"]), []).append(name)
        return domains

    def _span(self, row: Row, domains: dict[tuple[int, int], str], last: int | None) -> Span | None:
        """A row of the NVTX table; None for what is no range. One that is still open ends with the last event."""
        kind, start, end = row["eventType"], row["start"], row["end"]
        kind = _PUSH_POP[0] if kind is None else kind
        if kind not in (*_PUSH_POP, *_START_END) or start is None:
            return None
        if end is None or (end == 0 and start > 0 and self.zero_is_open):
            end = start if last is None else max(last, start)
        thread, number = _thread(row["globalTid"]), row["domainId"] or 0
        domain = domains.get((thread[0], number), f"domain {number}") if number else None
        name = _text(row["text"]) or self.string(row["textId"]) or _UNNAMED
        what = "start_end" if kind in _START_END else "annotation"
        suffixed = _EMIT_SUFFIX.match(name)
        if domain is None and what == "annotation" and (suffixed or name.startswith(_OPERATORS)):
            name = suffixed[1] if suffixed else name
            what = "annotation" if name.startswith(PHASE_MARK) else "operator"
        return Span(name, start, end, thread, what, domain)

    def _devices(self) -> None:
        """Number the devices: an ordinal is a process's own, and may be another GPU in each."""
        pairs = sorted({(op.device, op.process) for op in self.found.ops})
        columns = ("gpuId", "cudaId", "pid")
        visible = [
            row
            for row in self.rows("TARGET_INFO_CUDA_DEVICE", columns, ("uuid",))
            if row["gpuId"] is not None
        ]
        seen = {pair: _gpu(visible, *pair) for pair in pairs}
        unseen = [ordinal for ordinal, process in pairs if seen[ordinal, process] is None]
        separate = len(set(unseen)) < len(unseen) and self._gpus() >= len(unseen)
        number: dict[Any, int] = {}
        place = {}
        for ordinal, process in pairs:
            gpu = seen[ordinal, process]
            key: Any = ("gpu", *gpu) if gpu else ((ordinal, process) if separate else ordinal)
            place[ordinal, process] = number.setdefault(key, len(number))
        for op in self.found.ops:
            op.device = place[op.device, op.process]
        self.found.devices = list(number.values())
        first = {place[pair]: pair[1] for pair in reversed(pairs)}
        self.found.processes = list(
            dict.fromkeys([first[d] for d in self.found.devices] + [p for _, p in pairs])
        )

    def _gpus(self) -> int:
        name = "TARGET_INFO_GPU" if self._table("TARGET_INFO_GPU") else "TARGET_INFO_CUDA_GPU"
        rows = list(self.rows(name, ("smCount",)))
        stated = [row for row in rows if row["smCount"] is not None]
        return sum((row["smCount"] or 0) > 0 for row in rows) if stated else len(rows)


def _gpu(visible: list[Row], ordinal: int, process: int) -> tuple[Any, Any] | None:
    """The GPU that a process saw under an ordinal, or that all processes saw under it."""
    rows = [row for row in visible if row["cudaId"] == ordinal]
    own = [row for row in rows if (row["pid"] or 0) & _THREAD_BITS == process >> 24 & _THREAD_BITS]
    gpus = {(row["gpuId"], row["uuid"]) for row in rows}
    if own:
        return own[0]["gpuId"], own[0]["uuid"]
    return gpus.pop() if len(gpus) == 1 else None


def _direction(row: Row) -> str:
    """As written, else by the kinds of memory; between two devices it is a peer copy."""
    kind = COPY_KINDS.get(row["copyKind"], "unknown")
    source, target = _SIDES.get(row["srcKind"]), _SIDES.get(row["dstKind"])
    if kind == "unknown" and source and target:
        kind = f"{source}to{target}"
    devices = row["srcDeviceId"], row["dstDeviceId"]
    known = all(device is not None and device >= 0 for device in devices)
    return "PtoP" if known and devices[0] != devices[1] and kind in _WITHIN_DEVICE else kind


def _is_ordered(start: int | None, end: int | None) -> bool:
    if start is None or abs(start) >= 1 << 61 or start == end == 0:
        return False
    return end is None or end >= start


def _process(global_id: int) -> int:
    return global_id & ~_THREAD_BITS


def _thread(global_id: int | None) -> tuple[int, int]:
    return (0, -1) if global_id is None else (_process(global_id), global_id & _THREAD_BITS)


def _number(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
