"""Why a device was idle, worked out by hand: gaps, their causes, and the credit of waits."""

import re
from dataclasses import dataclass, field
from functools import cache
from math import inf

from profkit.verification.intervals import Piece, common, length, near, united, within, without
from tests.exactness.brute_force import BruteForce, Thread
from tests.exactness.plain_files import Call, Op, Span

FETCH = re.compile(r"enumerate\(DataLoader\)#\w*\.__next__")
DATA_WORDS = {"data", "dataloader", "loader", "input", "fetch"}
WAIT = re.compile(
    r"(cuda|hip|cu)(Device|Stream|Event|Ctx|Thread)Synchronize|(cuda|hip|cu)Memcpy(?!.*Async)\w*"
)
ALLOCATION = re.compile(
    r"(cuda|hip)(Malloc|Free|Host(Alloc|Free))\w*|cuMem(Alloc|Free|Create|Release|Map|Unmap)\w*"
)
MODULE = re.compile(r"cu(da)?(Module|Library)Load\w*|nvrtc\w*|hipModuleLoad\w*")
HOST_CAUSES = ("allocation", "compilation", "profiler", "input", "sync", "host")
IDLE_CAUSES = (*HOST_CAUSES, "queue", "dependency", "tail", "unknown")


@dataclass
class Gap:
    """A stretch in which a device does nothing, and the operation that ends it (none: the tail)."""

    start: int
    end: int
    after: Op | None
    cause: str = ""
    """``late``, or the cause of the whole gap"""
    pieces: dict[str, list[Piece]] = field(default_factory=dict)
    """By cause, within the window."""


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
        low, high = self.window(device)
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
        reaching = [gap for gap in found if max(gap.start, low) < min(gap.end, high)]
        for gap in reaching:
            self._explain(gap, low, high)
        self._spend_credit(device, reaching)
        return reaching

    def _explain(self, gap: Gap, low: int, high: int) -> None:
        piece = within([(gap.start, gap.end)], low, high)
        call = self.launch.get(id(gap.after)) if gap.after else None
        if gap.after is None:
            gap.cause = "tail"
        elif call is None:
            gap.cause = "unknown"
        elif call.end > gap.start:
            gap.cause = "late"
            gap.pieces = self._host_pieces(gap.after, call.thread, piece)
            return
        else:
            gap.cause = "queue" if gap.end - gap.start <= self.queue_latency else "dependency"
        gap.pieces = {gap.cause: piece}

    def _host_pieces(self, op: Op, thread: Thread, left: list[Piece]) -> dict[str, list[Piece]]:
        start, end = left[0][0], left[-1][1]
        silent = without(left, near(self._recorded(thread), start, end))
        lender = self.lender.get(id(op))
        found: dict[str, list[Piece]] = {}
        for cause in ("allocation", "compilation", "profiler", "input", "waiting"):
            doing = common(left, near(self._doing(thread, cause), start, end))
            if lender:
                lent = near(self._doing(lender, cause), start, end)
                doing = united(doing + common(common(left, silent), lent))
            found[cause] = doing
            left = without(left, doing)
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
        if cause == "allocation":
            return united([(call.start, call.end) for call in calls if ALLOCATION.fullmatch(call.name)])
        if cause == "waiting":
            return united([(call.start, call.end) for call in calls if WAIT.fullmatch(call.name)])
        if cause == "compilation":
            loading = [(call.start, call.end) for call in calls if MODULE.fullmatch(call.name)]
            return united(loading + [(s.start, s.end) for s in spans if _is_loading(s)])
        if cause == "profiler":
            # What lies on no thread that makes calls is the profiler's own thread: the whole process paid for it.
            nobodys = [
                s for s in self.spans if s.thread not in self.calling and s.thread[0] in (thread[0], -1)
            ]
            return united(
                [(s.start, s.end) for s in spans + nobodys if s.kind == "overhead" and not _is_loading(s)]
            )
        return united([(span.start, span.end) for span in spans if self.is_input(span)])

    def is_input(self, span: Span) -> bool:
        if FETCH.fullmatch(span.name):
            return True
        words = re.findall(r"\w+", span.name.lower())
        return self.is_phase(span) and not DATA_WORDS.isdisjoint(words)

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
        return min([edge for edge in borders if edge >= time], default=self.whole()[1])

    def _spend_credit(self, device: int, gaps: list[Gap]) -> None:
        """Walk through the host's pieces in time and let each spend the oldest credit of its step."""
        waits = self.waits(device)
        for gap in gaps:
            if gap.cause != "late" or gap.after is None:
                continue
            host, waiting = gap.pieces["host"], gap.pieces.pop("waiting")
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
            gap.pieces["host"] = united(without(host, sync) + waiting)

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


def _is_loading(span: Span) -> bool:
    return span.kind == "overhead" and "Loading" in span.name
