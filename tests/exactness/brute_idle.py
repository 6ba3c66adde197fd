"""Why a device was idle, worked out by hand: gaps, their causes, and the credit of waits."""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import inf
from statistics import median

from profkit.verification.intervals import Piece, common, length, near, united, without
from profkit.verification.step_names import is_step
from tests.exactness.brute_force import LAUNCH, LIBRARY, BruteForce, Thread, captures
from tests.exactness.plain_files import Call, Op, Span

FETCH = re.compile(r"enumerate\(DataLoader\)#\w*\.__next__")
WAIT = re.compile(
    r"(cuda|hip|cu)(Device|Stream|Event|Ctx|Thread)Synchronize|(cuda|hip|cu)Memcpy(?!.*Async)\w*"
)
ALLOCATION = re.compile(
    r"(cuda|hip)(Malloc|Free|Host(Alloc|Free))\w*|cuMem(Alloc|Free|Create|Release|Map|Unmap)\w*"
)
MODULE = re.compile(r"(cu|cuda|hip)(Module|Library)(Load|Unload|Get)\w*")
COMPILER = re.compile(r"nvrtc\w*|\w*GraphInstantiate\w*")
OF_ANOTHER_KIND = re.compile(r"\w*(Memcpy|MemPrefetch|GraphLaunch|Capture|Profiler)\w*")
LIBRARY_DOMAIN = re.compile(r"(NCCL|CCCL|cu[A-Z]|TensorRT|torch)", re.IGNORECASE)
MICROSECOND, MILLISECOND = 1_000, 1_000_000
IDLE_CAUSES = (
    "input", "sync", "host", "host_work", "queue", "initialisation", "allocation", "compilation", "capture", "profiler",
    "dependency", "tail", "unknown",
)  # fmt: skip
PRECEDENCE = (
    "held up",
    "initialisation",
    "capture",
    "allocation",
    "compilation",
    "profiler",
    "input",
    "waiting",
    "host_work",
)


@dataclass
class Gap:
    """A stretch in which a device does nothing, and the operation that ends it (none: the tail)."""

    start: int
    end: int
    after: Op | None
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    """By cause, within the window."""

    @property
    def cause(self) -> str:
        """The cause of most of it; of equals the first."""
        return max(IDLE_CAUSES, key=lambda cause: length(self.pieces.get(cause, [])))


@dataclass
class Wait:
    """A blocking call, and what was spent of its credit."""

    call: Call
    phase: tuple[str, ...]
    lapses: int
    """The end of the device's step in which the wait returned."""
    left: int
    cost: int = 0


class BruteIdle(BruteForce):
    """All numbers of one recording, with the idle time explained."""

    @cache  # noqa: B019
    def gaps(self, device: int) -> list[Gap]:
        """The idle stretches of a device that reach into its window, whole."""
        window = self.window(device)
        high = window[-1][1] if window else 0
        # An operation without length fills no time, so it ends no gap; of several, the first launched does, a lost launch last.
        mine = [op for op in self.ops if op.device == device and op.length]
        mine.sort(key=lambda op: (op.start, self.launch[id(op)].end if id(op) in self.launch else inf))
        edge = self.whole()[0]
        found = []
        for op in mine:
            if op.start > edge:
                found.append(Gap(edge, op.start, op))
            edge = max(edge, op.end)
        if edge < high:
            found.append(Gap(edge, high, None))
        reaching = [gap for gap in found if common([(gap.start, gap.end)], window)]
        for gap in reaching:
            self._explain(gap, window)
        self._spend_credit(device, reaching)
        return reaching

    def _explain(self, gap: Gap, window: list[Piece]) -> None:
        """Cut a gap at the return of the launch that ends it, and after the queue's latency."""
        call = self.launch.get(id(gap.after)) if gap.after else None
        if gap.after is None or call is None:
            cause = "tail" if gap.after is None else "unknown"
            gap.pieces = {cause: common([(gap.start, gap.end)], window)}
            return
        returned = min(max(call.end, gap.start), gap.end)
        # A launch takes longer to reach an idle device than to follow a queued one.
        latency = max(self.queue_latency, 5_000) if returned > gap.start else self.queue_latency
        queued = min(returned + latency, gap.end)
        late = common([(gap.start, returned)], window)
        gap.pieces = self._host_pieces(gap.after, call.thread, late) if late else {}
        gap.pieces["queue"] = common([(returned, queued)], window)
        rest = "dependency" if self._followed_another_stream(gap) else "unknown"
        gap.pieces[rest] = gap.pieces.get(rest, []) + common([(queued, gap.end)], window)

    def _followed_another_stream(self, gap: Gap) -> bool:
        before = self._ended_at.get((gap.after.device, gap.start), []) if gap.after else []
        return any(stream_of(op) != stream_of(gap.after) for op in before if gap.after)

    @cached_property
    def _ended_at(self) -> dict[tuple[int, int], list[Op]]:
        found: dict[tuple[int, int], list[Op]] = {}
        for op in self.ops:
            if op.length:
                found.setdefault((op.device, op.end), []).append(op)
        return found

    def _host_pieces(self, op: Op, thread: Thread, left: list[Piece]) -> dict[str, list[Piece]]:
        start, end = left[0][0], left[-1][1]
        silent = without(left, near(self._recorded(thread), start, end))
        lender = self.lender.get(id(op))
        found: dict[str, list[Piece]] = {}
        for cause in PRECEDENCE:
            doing = common(left, near(self._doing(thread, cause), start, end))
            if lender:
                lent = near(self._doing(lender, cause), start, end)
                doing = united(doing + common(common(left, silent), lent))
            found[cause] = doing
            left = without(left, doing)
        found["dependency"] = found.pop("held up")
        # Idle time inside a wait is the host's, and no other wait's credit is spent on it.
        return {**found, "host": left}

    @cache  # noqa: B019 - as old as the recording
    def _recorded(self, thread: Thread) -> list[Piece]:
        return united(
            [(event.start, event.end) for event in [*self.calls, *self.spans] if event.thread == thread]
        )

    @cache  # noqa: B019
    def _doing(self, thread: Thread, cause: str) -> list[Piece]:
        """When a thread was doing what makes a gap of this cause."""
        calls = [call for call in self.calls if call.thread == thread]
        spans = [span for span in self.spans if span.thread == thread]
        if cause == "held up":
            return united([piece for call in calls for piece in self._held_up(call)])
        if cause == "initialisation":
            loaded = [(s.start, s.end) for s in spans if _is_loading(s)]
            return united(loaded + [(call.start, call.end) for call in calls if self._initialises(call)])
        if cause == "capture":
            return united([(start, end) for _, start, end in captures(calls)])
        if cause == "allocation":
            return united([(call.start, call.end) for call in calls if ALLOCATION.fullmatch(call.name)])
        if cause == "waiting":
            return united([(call.start, call.end) for call in calls if WAIT.fullmatch(call.name)])
        if cause == "compilation":
            compiling = [(s.start, s.end) for s in spans if "(dynamo_timed)" in s.name and s.kind != "python"]
            return united(
                compiling + [(call.start, call.end) for call in calls if COMPILER.fullmatch(call.name)]
            )
        if cause == "profiler":
            # What lies on no thread that makes calls is the profiler's own thread: the whole process paid for it.
            nobodys = [
                s for s in self.spans if s.thread not in self.calling and s.thread[0] in (thread[0], -1)
            ]
            own = [(call.start, call.end) for call in calls if "Profiler" in call.name]
            return united(
                own
                + [
                    (s.start, s.end)
                    for s in spans + nobodys
                    if s.kind == "overhead" and not _is_loading(s) and s.name != "Command Buffer Full"
                ]
            )
        if cause == "host_work":
            return united([(span.start, span.end) for span in spans if self.is_work(span)])
        return united([(span.start, span.end) for span in spans if self.is_input(span)])

    # the device's queue

    @cached_property
    def _first_op(self) -> dict[int, Op]:
        """The first operation of each call, by the call's `id`."""
        found: dict[int, Op] = {}
        for op in self.ops:
            call = self.launch.get(id(op))
            if call and (id(call) not in found or op.start < found[id(call)].start):
                found[id(call)] = op
        return found

    @cached_property
    def _launched(self) -> list[tuple[Call, Op]]:
        return [(call, self._first_op[id(call)]) for call in self.calls if id(call) in self._first_op]

    def _is_launch(self, call: Call) -> bool:
        op = self._first_op.get(id(call))
        return op.kind in ("kernel", "memset", "graph") if op else bool(LAUNCH.fullmatch(call.name))

    def _queued(self, call: Call) -> int:
        """Launches of the call's stream, or else of its process, that were issued and had not started."""
        own = self._first_op.get(id(call))
        return sum(
            other.start < call.start < op.start
            for other, op in self._launched
            if (stream_of(op) == stream_of(own) if own else op.process == call.thread[0])
        )

    @cached_property
    def _usual_launch(self) -> float:
        launches = [call for call in self.calls if self._is_launch(call)]
        with_room = [call for call in launches if self._queued(call) < 1000]
        return median([call.end - call.start for call in with_room or launches] or [0])

    @cache  # noqa: B019
    def _is_blocked(self, number: int) -> bool:
        call = self.calls[number]
        if not self._is_launch(call) or call.end - call.start <= 5 * self._usual_launch:
            return False
        if self._queued(call) >= 1000:
            return True
        own = self._first_op.get(id(call))
        if own is None or any(
            stream_of(op) == stream_of(own) and op.start <= call.start for _, op in self._launched
        ):
            return False
        return 4 * self.busy_ns(own.device, call.start, call.end) >= 3 * (call.end - call.start)

    @cached_property
    def _number(self) -> dict[int, int]:
        return {id(call): number for number, call in enumerate(self.calls)}

    def _held_up(self, call: Call) -> list[Piece]:
        """The part of a call in which the device held it up."""
        if self._is_blocked(self._number[id(call)]):
            return [(call.start, call.end)]
        copy = self._first_op.get(id(call))
        if copy is None or self._is_launch(call) or not call.start <= copy.start < call.end:
            return []
        before = [op.end for op in self._streams[stream_of(copy)] if op.start < copy.start]
        free = min(max(before, default=0), copy.start) if before else call.start
        return [(call.start, free)] if free - call.start > 20 * MICROSECOND else []

    @cached_property
    def _streams(self) -> dict[tuple[int, int, int], list[Op]]:
        found: dict[tuple[int, int, int], list[Op]] = {}
        for op in self.ops:
            found.setdefault(stream_of(op), []).append(op)
        return found

    def _initialises(self, call: Call) -> bool:
        """Whether a call sets the device up."""
        if MODULE.fullmatch(call.name):
            return True
        if call.end - call.start <= MILLISECOND:
            return False
        process = call.thread[0]
        if call is min((c for c in self.calls if c.thread[0] == process), key=lambda c: c.start) and not any(
            op.start < call.start for op in self.ops if op.process == process
        ):
            return True
        if self._is_launch(call):
            blocked = self._is_blocked(self._number[id(call)])
            return not blocked and "GraphLaunch" not in call.name and self._queued(call) < 10
        another = WAIT.fullmatch(call.name) or ALLOCATION.fullmatch(call.name)
        return not another and not OF_ANOTHER_KIND.fullmatch(call.name) and self._queued(call) < 1000

    # what ranges say

    def is_input(self, span: Span) -> bool:
        if FETCH.fullmatch(span.name):
            return True
        words = re.sub(r"([a-z])([A-Z])|([A-Z])(?=[A-Z][a-z])", r"\1\3 \2", span.name)
        tokens = set(re.split(r"[^a-z]+", words.lower()))
        fetches = tokens & {"dataloader", "dataloading", "loader", "collate", "tokenize", "fetch"}
        what = tokens & {"data", "input", "inputs", "batch"}
        how = tokens & {"get", "load", "loading", "next", "fetch", "fetching", "read", "prepare"}
        last = re.split(r"[/.]", span.name)[-1].strip().lower() in ("data", "input", "inputs")
        return self.is_phase(span) and bool(fetches or (what and how) or last)

    @cached_property
    def _launch_times(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for call in self.calls:
            if LAUNCH.fullmatch(call.name):
                found.setdefault(call.thread[0], []).append(call.start)
        return {process: sorted(times) for process, times in found.items()}

    def _launches_inside(self, span: Span) -> bool:
        times = self._launch_times.get(span.thread[0], [])
        at = bisect_left(times, span.start)
        return at < len(times) and times[at] < span.end

    @cached_property
    def _launching_names(self) -> set[str]:
        return {
            span.name
            for span in self.spans
            if (span.kind == "python" or _may_be_work(span)) and self._launches_inside(span)
        }

    def is_work(self, span: Span) -> bool:
        """The program's own work, during which nothing is launched."""
        if span.end - span.start <= MILLISECOND // 2 or span.name in self._launching_names:
            return False
        if span.kind == "python":
            torchs = re.match(r"<built-in |nn\.Module: ", span.name) or re.search(
                r"(^|/)torch/.*\(\d+\): ", span.name
            )
            return not torchs
        own = not LIBRARY.match(span.name) and not re.match(r"(aten|autograd|torch::autograd)::", span.name)
        return _may_be_work(span) and own

    # waits and what they cost

    @cache  # noqa: B019
    def waits(self, device: int) -> list[Wait]:
        """The blocking calls of the processes of a device, in the order of their return, the older first."""
        found = []
        for call in sorted(self.calls, key=lambda call: (call.end, call.start, call.thread)):
            if WAIT.fullmatch(call.name) and call.thread[0] in self.processes_of(device):
                path = tuple(span.name for span in self.open_phases(call.thread, call.start))
                found.append(Wait(call, path, self._next_border(device, call.end), call.end - call.start))
        return found

    def _next_border(self, device: int, time: int) -> int:
        borders = [edge for n in range(self.number_of_steps) for edge in self.tiles(n)[device]]
        if not self.number_of_steps:
            borders = [self.hull(device)[0]]
        return min([edge for edge in borders if edge >= time], default=self.whole()[1])

    def _spend_credit(self, device: int, gaps: list[Gap]) -> None:
        """Walk through the host's pieces in time and let each spend the oldest credit of its step."""
        waits = self.waits(device)
        for gap in gaps:
            if gap.after is None or "host" not in gap.pieces:
                continue
            work, waiting = gap.pieces["host_work"], gap.pieces.pop("waiting")
            host = united(gap.pieces["host"] + work)
            sync: list[Piece] = []
            for wait in waits:
                if wait.call.thread[0] != gap.after.process or not wait.left:
                    continue
                for start, end in without(host, sync):
                    if start >= wait.lapses or end <= wait.call.end:
                        continue
                    start = max(start, wait.call.end)
                    taken = min(wait.left, min(end, wait.lapses) - start)
                    wait.left -= taken
                    wait.cost += taken
                    sync.append((start, start + taken))
            gap.pieces["sync"] = united(sync)
            gap.pieces["host_work"] = without(work, sync)
            gap.pieces["host"] = united(without(without(host, work), sync) + waiting)

    def idle_of_phase(self, device: int, path: tuple[str, ...]) -> dict[str, int]:
        """Idle time before the operations of a phase and of those inside it, by cause."""
        total = dict.fromkeys(IDLE_CAUSES, 0)
        for gap in self.gaps(device):
            if gap.after is not None and self.path[id(gap.after)][: len(path)] == path:
                for cause, pieces in gap.pieces.items():
                    total[cause] += length(pieces)
        return total

    def idle(self, device: int) -> dict[str, int]:
        """Idle time of a device's window by cause."""
        total = dict.fromkeys(IDLE_CAUSES, 0)
        for gap in self.gaps(device):
            for cause, pieces in gap.pieces.items():
                total[cause] += length(pieces)
        return total


def stream_of(op: Op | None) -> tuple[int, int, int]:
    """Streams of two processes or devices are never one."""
    return (op.process, op.device, op.stream) if op else (-1, -1, -1)


def _is_loading(span: Span) -> bool:
    return span.kind == "overhead" and "Loading" in span.name


def _may_be_work(span: Span) -> bool:
    """A mark of the program that is no step."""
    of_library = span.domain is not None and LIBRARY_DOMAIN.match(span.domain)
    return span.kind == "annotation" and not is_step(span) and not of_library
