"""What host threads did, a second time: by thread, as lists of stretches for each reason to launch late."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import median
from typing import Final

from profkit.model.marks import PHASE_DOMAIN
from profkit.verification import host_rules as rules
from profkit.verification.events import Call, Op, Recording, Span, Thread
from profkit.verification.intervals import Piece, united, without
from profkit.verification.timeline import Timeline

__all__ = ["REASONS", "Host", "wanted"]

REASONS: Final = (
    "dependency",
    "initialisation",
    "capture",
    "allocation",
    "compilation",
    "profiler",
    "input",
)
"""Why a launch was late: the first that applies, then waits, then the program's own work, then launching."""
_LONG_CALL_NS: Final = 1_000_000
_SLOW_FREE_NS: Final = 100_000_000
_LONG_WORK_NS: Final = 500_000
_FULL: Final = 1_000
_FEW: Final = 10
_STANDS_NS: Final = 20_000
_LONGEST_NAME: Final = 1_000


def wanted(span: Span) -> bool:
    """Whether a span may explain idle time; of all others only the times count."""
    return span.kind in ("annotation", "python", "overhead") or rules.compiles(span) or _loads_code(span)


def _loads_code(span: Span) -> bool:
    return span.kind != "python" and ("Lazy Function Loading" in span.name or "Module Loading" in span.name)


class Host:
    """The host of one recording."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.recording: Recording = timeline.recording
        self.calls: dict[Thread, list[Call]] = defaultdict(list)
        for call in sorted(self.recording.calls, key=lambda call: call.start):
            self.calls[call.thread].append(call)
        self.first_op: dict[int, Op] = {}
        for op in self.recording.ops:
            launch = timeline.launch.get(id(op))
            if launch is not None:
                known = self.first_op.setdefault(id(launch), op)
                if op.start < known.start:
                    self.first_op[id(launch)] = op
        self._find_queued()
        self._find_blocked()
        self.first_calls = self._first_calls()
        self.spans: dict[Thread, list[Span]] = defaultdict(list)
        for span in self.recording.spans:
            self.spans[span.thread].append(span)
        self.phases = self._phases()
        self.work = self._work()
        self.waits = self._waits()
        self._doing: dict[Thread, dict[str, list[Piece]]] = {}
        self._recorded: dict[Thread, list[Piece]] = {}
        self._waiting: dict[Thread, list[Piece]] = {}
        self._opened: dict[Thread, list[Span]] = defaultdict(list)
        for span in sorted(self.phases, key=lambda span: (span.start, -span.end)):
            self._opened[span.thread].append(span)
        self.autograd = self._autograd_threads()

    # --- the queue

    def _find_queued(self) -> None:
        """How many launches were issued and not begun when each call started: of its stream, else of its process."""
        issued: dict[object, list[int]] = defaultdict(list)
        begun: dict[object, list[int]] = defaultdict(list)
        self.stream_begins: dict[object, int] = {}
        for call in self.recording.calls:
            op = self.first_op.get(id(call))
            if op is not None:
                stream = _stream(op)
                for key in (call.thread[0], stream):
                    issued[key].append(call.start)
                    begun[key].append(max(op.start, call.start + 1))
                self.stream_begins[stream] = min(self.stream_begins.get(stream, op.start), op.start)
        for times in (*issued.values(), *begun.values()):
            times.sort()
        self.queued: dict[int, int] = {}
        for call in self.recording.calls:
            op = self.first_op.get(id(call))
            key = call.thread[0] if op is None else _stream(op)
            self.queued[id(call)] = bisect_left(issued[key], call.start) - bisect_right(
                begun[key], call.start
            )

    def is_launch(self, call: Call) -> bool:
        """By what it launched, else by its name; copies are none."""
        op = self.first_op.get(id(call))
        return rules.launches(call.name) if op is None else op.kind in ("kernel", "memset", "graph")

    def _find_blocked(self) -> None:
        calls = [call for call in self.recording.calls if self.is_launch(call)]
        room = [call.end - call.start for call in calls if self.queued[id(call)] < _FULL]
        usual = median(room or [call.end - call.start for call in calls] or [0])
        self.blocked = set()
        for call in calls:
            if call.end - call.start <= 5 * usual:
                continue
            op = self.first_op.get(id(call))
            if self.queued[id(call)] >= _FULL:
                self.blocked.add(id(call))
            elif op is not None and call.start < self.stream_begins[_stream(op)]:
                busy = self.timeline.busy_ns(op.device, call.start, call.end)
                if 4 * busy >= 3 * (call.end - call.start):
                    self.blocked.add(id(call))
        self.held_until: dict[int, int] = {}
        by_stream: dict[object, list[Op]] = defaultdict(list)
        for op in sorted(self.recording.ops, key=lambda op: op.start):
            by_stream[_stream(op)].append(op)
        ends = {stream: _running_maximum(op.end for op in ops) for stream, ops in by_stream.items()}
        starts = {stream: [op.start for op in ops] for stream, ops in by_stream.items()}
        for call in self.recording.calls:
            op = self.first_op.get(id(call))
            if op is None or op.kind in ("kernel", "memset", "graph"):
                continue
            stream = _stream(op)
            before = bisect_left(starts[stream], op.start) - 1
            free = min(ends[stream][before] if before >= 0 else call.start, op.start)
            if call.start <= op.start < call.end and free - call.start > _STANDS_NS:
                self.held_until[id(call)] = free

    # --- ranges

    def _phases(self) -> list[Span]:
        """The ranges that are phases: of the domain of profkit where a process has any, else the program's own."""
        steps = self.timeline.step_spans
        marks = [span for span in self.recording.spans if span.kind == "annotation" and id(span) not in steps]
        own = {span.thread[0] for span in marks if span.domain == PHASE_DOMAIN}
        found = []
        for span in marks:
            plain = span.domain is None and span.thread[0] not in own
            named = rules.named_by_library(span.name) or rules.named_by_operator(span.name)
            if span.domain == PHASE_DOMAIN or (plain and not named):
                found.append(span)
        return found

    def _work(self) -> list[Span]:
        """The program's own work: long ranges in which nothing is launched, of a name that never launches."""
        launched: dict[int, list[int]] = defaultdict(list)
        for call in self.recording.calls:
            if rules.launches(call.name):
                launched[call.thread[0]].append(call.start)
        for times in launched.values():
            times.sort()

        def launches(span: Span) -> bool:
            times = launched[span.thread[0]]
            return bisect_left(times, span.end) > bisect_left(times, span.start)

        steps = self.timeline.step_spans
        candidates = [
            span
            for span in self.recording.spans
            if span.kind == "python"
            or (span.kind == "annotation" and id(span) not in steps and not rules.library_domain(span.domain))
        ]
        busy = {span.name for span in candidates if launches(span)}
        return [
            span
            for span in candidates
            if span.end - span.start > _LONG_WORK_NS
            and span.name not in busy
            and len(span.name) <= _LONGEST_NAME
            and not _of_torch(span)
        ]

    def _waits(self) -> list[Call]:
        """The calls that block, without those inside another one of their thread."""
        found = []
        for calls in self.calls.values():
            reach: int | None = None
            for call in sorted(calls, key=lambda call: (call.start, -call.end)):
                if rules.blocks(call.name) and (reach is None or call.end > reach):
                    found.append(call)
                    reach = call.end
        return found

    # --- threads

    def doing(self, thread: Thread, other: Thread) -> dict[str, list[Piece]]:
        """What a thread did, by reason; where it did nothing recorded, what the other did."""
        own = self._of(thread)
        if other == thread:
            return own
        silent, theirs = self.recorded(thread), self._of(other)
        return {reason: united(own[reason] + without(theirs[reason], silent)) for reason in own}

    def blocked_in(self, thread: Thread, other: Thread) -> list[Piece]:
        """When a thread was blocked, or the other while it did nothing recorded itself."""
        own = self.waiting(thread)
        return own if other == thread else united(own + without(self.waiting(other), self.recorded(thread)))

    def phase_of(self, op: Op) -> tuple[Span | None, Thread]:
        """The phase of an operation that has a launch, and the thread that has it open."""
        launch = self.timeline.launch[id(op)]
        found = self.open_phase(launch.thread, launch.start)
        if found is None and launch.thread in self.autograd:
            process = launch.thread[0]
            opened = [
                (span, thread)
                for thread in self._opened
                if thread[0] == process and (span := self.open_phase(thread, launch.start)) is not None
            ]
            if len(opened) == 1:
                return opened[0]
        return found, launch.thread

    def open_phase(self, thread: Thread, time: int) -> Span | None:
        """The phase that started last of those that a thread has open."""
        spans = self._opened.get(thread, [])
        at = bisect_right(spans, time, key=lambda span: span.start) - 1
        while at >= 0 and spans[at].end <= time:
            at -= 1
        return spans[at] if at >= 0 else None

    def _autograd_threads(self) -> set[Thread]:
        named = {
            thread
            for thread, names in self.recording.thread_names.items()
            if any(name.startswith("pt_autograd_") for name in names)
        }
        launching = {
            launch.thread
            for op in self.recording.ops
            if op.kind in ("kernel", "graph") and (launch := self.timeline.launch.get(id(op))) is not None
        }
        nameless = {
            thread
            for thread in launching
            if thread not in self._opened and not self.recording.thread_names.get(thread)
        }
        return (named | self.recording.autograd | nameless) & (launching | named)

    def _of(self, thread: Thread) -> dict[str, list[Piece]]:
        if thread not in self._doing:
            self._doing[thread] = self._of_thread(thread)
        return self._doing[thread]

    def _of_thread(self, thread: Thread) -> dict[str, list[Piece]]:
        calls = self.calls.get(thread, [])
        spans = self.spans.get(thread, [])
        overhead = [
            span
            for span in self.recording.spans
            if span.kind == "overhead"
            and (span.thread == thread or (span.thread not in self.calls and span.thread[0] == thread[0]))
        ]
        phases = {id(span) for span in self.phases}
        fetching = [
            span
            for span in spans
            if rules.fetches(span.name)
            and (
                id(span) in phases
                or (span.name.startswith("enumerate(DataLoader)#") and span.kind != "python")
            )
        ]
        found = {
            "dependency": [
                (call.start, call.end if id(call) in self.blocked else self.held_until[id(call)])
                for call in calls
                if id(call) in self.blocked or id(call) in self.held_until
            ],
            "initialisation": _pieces(calls, self._sets_up) + _pieces(spans, _loads_code),
            "capture": _captures(calls),
            "allocation": _pieces(calls, lambda call: rules.allocates(call.name)),
            "compilation": _pieces(calls, lambda call: rules.builds(call.name))
            + _pieces(spans, rules.compiles),
            "profiler": _pieces(calls, lambda call: rules.profiles(call.name)) + _pieces(overhead, _is_cost),
            "input": [(span.start, span.end) for span in fetching],
        }
        own = [(span.start, span.end) for span in self.work if span.thread == thread]
        found["host_work"] = without(own, self.waiting(thread))
        return {reason: united(pieces) for reason, pieces in found.items()}

    def waiting(self, thread: Thread) -> list[Piece]:
        """When a thread was blocked."""
        if thread not in self._waiting:
            pieces = [(call.start, call.end) for call in self.waits if call.thread == thread]
            self._waiting[thread] = united(pieces)
        return self._waiting[thread]

    def recorded(self, thread: Thread) -> list[Piece]:
        """When a thread did anything that was recorded."""
        if thread not in self._recorded:
            pieces = [(call.start, call.end) for call in self.calls.get(thread, [])]
            pieces += [(span.start, span.end) for span in self.spans.get(thread, [])]
            rest = self.recording.others_of.get(thread, array("q"))
            self._recorded[thread] = united(pieces + list(zip(rest[0::2], rest[1::2], strict=True)))
        return self._recorded[thread]

    def _first_calls(self) -> set[int]:
        """The first call of each process before which none of its operations had begun."""
        first: dict[int, Call] = {}
        ran: dict[int, int] = {}
        for call in self.recording.calls:
            known = first.setdefault(call.thread[0], call)
            if call.start < known.start:
                first[call.thread[0]] = call
        for op in self.recording.ops:
            ran[op.process] = min(ran.get(op.process, op.start), op.start)
        return {id(call) for process, call in first.items() if ran.get(process, call.start) >= call.start}

    def _sets_up(self, call: Call) -> bool:
        if rules.loads(call.name):
            return True
        if call.end - call.start <= _LONG_CALL_NS:
            return False
        if "Free" in call.name and rules.allocates(call.name) and call.end - call.start > _SLOW_FREE_NS:
            return True
        queued, launch = self.queued[id(call)], self.is_launch(call)
        if launch and "GraphLaunch" not in call.name and id(call) not in self.blocked and queued < _FEW:
            return True
        if not launch and queued < _FULL and rules.sets_up(call.name):
            return True
        return id(call) in self.first_calls


def _stream(op: Op) -> tuple[int, int, int]:
    return op.process, op.device, op.stream


def _running_maximum(values: Iterable[int]) -> list[int]:
    found: list[int] = []
    for value in values:
        found.append(max(value, found[-1]) if found else value)
    return found


def _pieces(events: Iterable[Call] | Iterable[Span], test: Callable[..., bool]) -> list[Piece]:
    return [(event.start, event.end) for event in events if test(event)]


def _is_cost(span: Span) -> bool:
    return not (rules.compiles(span) or _loads_code(span) or span.name == "Command Buffer Full")


def _of_torch(span: Span) -> bool:
    if span.kind == "python":
        return rules.is_torch_frame(span.name)
    return not span.name or rules.named_by_library(span.name) or rules.named_by_operator(span.name)


def _captures(calls: list[Call]) -> list[Piece]:
    found, ends = [], [call for call in calls if "StreamEndCapture" in call.name]
    last = max((call.end for call in calls), default=0)
    for call in calls:
        if "StreamBeginCapture" in call.name:
            found.append((call.start, next((end.end for end in ends if end.start >= call.start), last)))
    return found
