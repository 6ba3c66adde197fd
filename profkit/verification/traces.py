"""Profiler traces the plain way: Python's JSON, decimals, one object an event (docs/dev/reading.md has the rules)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from math import floor
from typing import Any

from profkit.model.marks import PHASE_DOMAIN, PHASE_MARK
from profkit.verification.events import Call, Op, Recording, Span, UnreadError
from profkit.verification.json_values import events_of

__all__ = ["read_trace"]

_MONTH_NS = 30 * 24 * 3600 * 10**9
_MILLISECOND_NS = 10**6
_LARGEST_US = 9 * 10**15
_DIRECTION = re.compile(
    r"\b(?:Copy)?(host|device|array|peer|[hdap])to(host|device|array|peer|[hdap])\b", re.IGNORECASE
)
_TORCH_ANNOTATION = re.compile(
    r"ProfilerStep#\d+|Optimizer\.(?:step|zero_grad)#.*|enumerate\(DataLoader\)#.*", re.DOTALL
)
_MERGED = re.compile(r"\s*\[([^\[\]]{1,64})\]\s*(-?\d{1,18})\s*")
"""A pid in a merge of several ranks' traces: each counts devices and ids for itself."""
_NUMBERED = re.compile(r"\s*(?:stream\s+)?(-?\d{1,40})\b.*", re.IGNORECASE | re.DOTALL)
_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")
_SPANS = {
    "cpu_op": "operator", "operator": "operator", "user_annotation": "annotation", "user": "annotation",
    "python_function": "python", "overhead": "overhead",
}  # fmt: skip
_DEVICE_WORK = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "memset",
    "memset": "memset",
}
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})\b')
_NOWHERE = -1
_RANKS_APART = 1 << 32
"""Devices of merged ranks are numbered apart by this."""
_BEYOND_PIDS = 1 << 62


def read_trace(data: bytes | bytearray | memoryview, keep: Callable[[Span], bool]) -> Recording:
    """A trace of torch.profiler.

    Args:
        data: Its text.
        keep: Which spans are wanted; of the others only the times are kept.

    Raises:
        UnreadError: It is damaged in a way that plain means do not mend.
    """
    reading = _Reading(keep)
    for event in events_of(data):
        if isinstance(event, dict):
            reading.add(event)
    found = reading.done()
    base = _BASE.search(data)
    found.origin = int(base[1]) if base else None
    return found


class _Reading:
    """Events as they come; what is credible is decided when all are known."""

    def __init__(self, keep: Callable[[Span], bool]) -> None:
        self.found = Recording()
        self.keep = keep
        self.starts: list[int] = []
        """Of events that are neither operations, calls nor kept spans."""
        self.callers: Counter[int] = Counter()
        self.placed: Counter[int] = Counter()
        self.memory: list[tuple[int, int]] = []
        """Start and device of memory events."""
        self.external: list[tuple[Op | Call, object]] = []
        self.labels: list[str] = []
        """Of merged ranks, as they come."""
        self.pids: dict[tuple[str, int], int] = {}
        """Of merged ranks: their processes, which several ranks may call by one number."""

    def add(self, event: dict[str, Any]) -> None:
        """Take one event for what its phase and category say."""
        phase, category = str(event.get("ph") or ""), str(event.get("cat") or "").lower()
        if phase == "M":
            self._name_thread(event)
        elif (
            phase in ("i", "I") and event.get("name") == "[memory]" and category in ("", "cpu_instant_event")
        ):
            self._add_memory(event)
        elif phase != "X":
            return
        elif category in _DEVICE_WORK:
            self._add_work(event, _DEVICE_WORK[category])
        elif category.endswith(("_runtime", "_driver")) or category == "runtime":
            self._add_call(event, driver=category.endswith("_driver"))
        elif category in _SPANS:
            self._add_span(event, _SPANS[category])
        elif category == "cuda_sync":
            times = _times(event)
            if times:
                self.starts.append(times[0])

    def _pid(self, event: dict[str, Any]) -> int:
        """The process of a host event, with a number of its own where it is one of merged ranks."""
        merged = _MERGED.fullmatch(str(event.get("pid")))
        if merged is None:
            return int(_id(event.get("pid")))
        self._rank(event)
        return self.pids.setdefault((merged[1], int(merged[2])), _BEYOND_PIDS + len(self.pids))

    def _rank(self, event: dict[str, Any]) -> int:
        """The place of an event's rank among merged ones; 0 where there are none."""
        merged = _MERGED.fullmatch(str(event.get("pid")))
        if merged is None:
            return 0
        if merged[1] not in self.labels:
            self.labels.append(merged[1])
        return self.labels.index(merged[1]) + 1

    def _rank_of(self, pid: int) -> int:
        names = [self.labels.index(label) + 1 for (label, _), own in self.pids.items() if own == pid]
        return names[0] if names else 0

    def done(self) -> Recording:
        """The recording, without what cannot be true."""
        found = self.found
        self._link_by_external_ids()
        self._drop_lost()
        starts = [*self.starts, *found.others[0::2]]
        starts += [event.start for event in found.events()]
        middle = sorted(starts)[len(starts) // 2] if starts else 0
        near = range(middle - _MONTH_NS, middle + _MONTH_NS + 1)
        found.ops = [op for op in found.ops if op.start in near]
        found.calls = [call for call in found.calls if call.start in near]
        found.spans = [span for span in found.spans if span.start in near]
        times = iter(found.others)
        kept = [(start, end) for start, end in zip(times, times, strict=True) if start in near]
        self.memory = [(start, device) for start, device in self.memory if start in near]
        del found.others[:]
        for pair in kept:
            found.others.extend(pair)
        self._find_processes()
        self._find_devices()
        self._end_with_the_profiler()
        return found

    def _end_with_the_profiler(self) -> None:
        """The profiler stops where the last of its own steps ends: what of a mark or operator comes after is its time."""
        stops: dict[int, int] = {}
        for span in self.found.spans:
            if span.kind == "annotation" and span.name.startswith("ProfilerStep#"):
                stops[span.thread[0]] = max(stops.get(span.thread[0], span.end), span.end)
        for span in self.found.spans:
            stop = stops.get(span.thread[0], span.end)
            if span.kind in ("annotation", "operator") and span.start < stop:
                span.end = min(span.end, stop)

    def _name_thread(self, event: dict[str, Any]) -> None:
        args = _args(event)
        if event.get("name") == "thread_name" and isinstance(args.get("name"), str):
            thread = self._pid(event), _id(event.get("tid"))
            self.found.thread_names.setdefault(thread, []).append(args["name"])

    def _add_memory(self, event: dict[str, Any]) -> None:
        args, start = _args(event), _ns(event.get("ts"))
        device = args.get("Device Id")
        if start is not None:
            self.starts.append(start)
            if args.get("Device Type") != 0 and type(device) is int and device >= 0:
                self._pid(event)
                self.memory.append((start, self._rank(event) * _RANKS_APART + device))

    def _add_work(self, event: dict[str, Any], kind: str) -> None:
        args, times, name = _args(event), _times(event), _text(event.get("name"))
        if kind == "copy":
            match = _DIRECTION.search(name) or _DIRECTION.search(_text(args.get("kind")))
            kind = f"{match[1][0].upper()}to{match[2][0].upper()}" if match else "unknown"
        if times is None or kind == "HtoH":
            return
        device = args.get("device")
        if kind not in ("kernel", "memset") and type(args.get("inDevice")) is int and args["inDevice"] != -1:
            device = args["inDevice"]
        device = device if isinstance(device, int | str | Decimal) else None
        if isinstance(device, str) and not _NUMBERED.fullmatch(device):
            raise UnreadError("the id of a device is not a number")
        merged = _MERGED.fullmatch(str(event.get("pid")))
        place = _id((merged[2] if merged else event.get("pid")) if device is None else device)
        if abs(place) >= 1 << 63:
            raise UnreadError("the id of a device has more than 64 bits")
        if merged and place >= 0:
            place += self._rank(event) * _RANKS_APART
        shape = tuple(_shape(args.get("grid")) + _shape(args.get("block")))
        stream = _id(event.get("tid") if args.get("stream") is None else args["stream"])
        correlation = _id(args.get("correlation") or 0)
        op = Op(kind, name, *times, place, _NOWHERE, correlation, shape, stream)
        self.found.ops.append(op)
        self.external.append((op, args.get("External id") or 0))

    def _add_call(self, event: dict[str, Any], driver: bool) -> None:
        times, thread = _times(event), (self._pid(event), _id(event.get("tid")))
        if times:
            self.callers[thread[0]] += 1
            name = _VERSION.sub("", _text(event.get("name")))
            args = _args(event)
            call = Call(name, *times, thread, _id(args.get("correlation") or 0), driver)
            self.found.calls.append(call)
            self.external.append((call, args.get("External id") or 0))

    def _add_span(self, event: dict[str, Any], kind: str) -> None:
        times, name, domain = _times(event), _text(event.get("name")), None
        on_device = kind == "annotation" and str(event.get("tid")).startswith("stream")
        if times is None or on_device:
            return
        if kind == "operator" and _TORCH_ANNOTATION.fullmatch(name):
            kind = "annotation"
        if name.startswith(PHASE_MARK):
            name, domain = name.removeprefix(PHASE_MARK), PHASE_DOMAIN
            kind = "annotation" if kind == "operator" else kind
        thread = (self._pid(event), _id(event.get("tid")))
        if kind in ("operator", "annotation"):
            self.placed[thread[0]] += 1
        if kind == "overhead":
            self.starts.append(times[0])
        self.found.add_span(Span(name, *times, thread, kind, domain), self.keep)

    def _link_by_external_ids(self) -> None:
        """Old traces of AMD's GPUs have no other ids; those of newer ones tell the operator instead."""
        if any(each.correlation for each, _ in self.external):
            return
        called = {_id(name) for each, name in self.external if isinstance(each, Call)}
        for each, name in self.external:
            each.correlation = _id(name) if isinstance(each, Call) or _id(name) in called else 0

    def _drop_lost(self) -> None:
        """Device events written with time and duration 0, long before what launched them, lost their times."""
        found = self.found
        if not any(op.start == op.end == 0 for op in found.ops):
            return
        starts = [*self.starts, *found.others[0::2], *(event.start for event in found.events())]
        earliest = min((start for start in starts if start > 0), default=0)
        launched = {call.correlation: call.start for call in reversed(_runtime_first(found.calls))}
        found.ops = [
            op
            for op in found.ops
            if op.start
            or op.end
            or (launched.get(op.correlation, earliest) if op.correlation else earliest) <= _MILLISECOND_NS
        ]

    def _find_processes(self) -> None:
        """Those that make calls, then those with operators or annotations; what has no place is of the first."""
        found = self.found
        known = [pid for count in (self.callers, self.placed) for pid, _ in count.most_common() if pid >= 0]
        found.processes = list(dict.fromkeys(known)) or [0]
        first = found.processes[0]
        hosts: list[Call | Span] = [*found.calls, *found.spans]
        for event in hosts:
            if event.thread[0] not in found.processes:
                event.thread = (first, event.thread[1])
        ranks = {pid: self._rank_of(pid) for pid in found.processes}
        firsts = {rank: pid for pid, rank in reversed(ranks.items())}
        caller = {
            (ranks[call.thread[0]] if self.labels else 0, call.correlation): call.thread[0]
            for call in reversed(_runtime_first(found.calls))
        }
        for op in found.ops:
            rank = max(op.device, 0) // _RANKS_APART if self.labels else 0
            own = firsts.get(rank, first)
            op.process = caller.get((rank, op.correlation), own) if op.correlation else own

    def _find_devices(self) -> None:
        found, used = self.found, {op.device for op in self.found.ops if op.device >= 0}
        seen = {device for _, device in self.memory}
        # AMD: kernels are numbered by the machine's devices, memory by the visible ones.
        found.devices = sorted(used if len(used) == len(seen) else used | seen)
        if any(op.device < 0 for op in found.ops):
            found.devices = found.devices or [0]
            for op in found.ops:
                op.device = op.device if op.device >= 0 else found.devices[0]


def _runtime_first(calls: list[Call]) -> list[Call]:
    return sorted(calls, key=lambda call: call.driver)


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _text(value: Any) -> str:
    """A name as valid Unicode: halves of characters are replaced."""
    if isinstance(value, Decimal):
        value = float(value)
    text = "" if value is None else value if isinstance(value, str) else str(value)
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _shape(value: Any) -> list[int]:
    return value if isinstance(value, list) and len(value) == 3 else []


def _id(value: Any) -> Any:
    """An id: numbers in texts are numbers, what is missing is -1."""
    if isinstance(value, str):
        match = _NUMBERED.fullmatch(value)
        return int(match[1]) if match else -abs(hash(value)) - 2
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else -2
    return value if isinstance(value, int) else -1


def _times(event: dict[str, Any]) -> tuple[int, int] | None:
    """Start and end in ns; None where they are missing or cannot be."""
    start, length = _ns(event.get("ts")), _ns(event.get("dur"))
    if start is None or length is None or not 0 <= length <= _MONTH_NS:
        return None
    return start, start + length


def _ns(value: Any) -> int | None:
    """Microseconds, a number or a text, to whole nanoseconds."""
    if isinstance(value, bool):
        return None
    try:
        microseconds = Decimal(value.strip() if isinstance(value, str) else value)
        if not abs(microseconds) <= _LARGEST_US:
            return None
    except (InvalidOperation, OverflowError, TypeError, ValueError):
        return None
    if abs(microseconds) < 1 << 43:
        whole = floor(float(microseconds))
        if whole * 1000 + round((float(microseconds) - whole) * 1000) != round(microseconds * 1000):
            raise UnreadError("one of its times lies halfway between two nanoseconds")
    return round(microseconds * 1000)
