"""The numbers of a report, worked out by hand: loops, dictionaries and lists of nanoseconds.

Written from the definitions alone (docs/numbers.md), without a look at profkit's analysis, and sharing no line
with it. Where profkit and this file disagree, the definition decides which of the two is wrong. Launches, steps
and windows are `profkit.verification`'s, which users run as ``--verify``; phases are here.
"""

import re
from statistics import median

from profkit.verification.intervals import Piece, length, united, without
from profkit.verification.step_names import is_step
from profkit.verification.timeline import Timeline
from tests.exactness.plain_files import Call, Op, Recording, Span

Thread = tuple[int, int]

LIBRARY = re.compile(
    r"nccl:|gloo:|Optimizer\.|DistributedDataParallel\.forward|FSDP::|enumerate\(DataLoader\)|Torch-Compiled|## Call "
)
LAUNCH = re.compile(r"\w*(LaunchKernel|LaunchCooperativeKernel|GraphLaunch|ExtLaunch)\w*")
WITHIN_DEVICE = ("memset", "DtoD", "AtoA", "AtoD", "DtoA")
COMMUNICATION, TRANSFER, MEMORY = "communication", "transfer", "memory"


def nature(op: Op) -> str:
    """What an operation is without a look at its bound: a kernel of any bound is a ``kernel``."""
    if op.kind == "PtoP" or (op.kind == "kernel" and re.match(r"(void )?(nccl|rccl)", op.name)):
        return COMMUNICATION
    if op.kind in ("kernel", "graph"):
        return "kernel"
    return MEMORY if op.kind in WITHIN_DEVICE else TRANSFER


class BruteForce(Timeline):
    """All numbers of one recording.

    Args:
        recording: What a plain reader found.
        queue_latency: The calibrated Q, in ns: an input, not something to be checked here.
    """

    def __init__(self, recording: Recording, queue_latency: int) -> None:
        super().__init__(recording)
        if damaged := self.incomplete():
            super().__init__(recording, damaged=damaged)
        if len(self.left_out) == self.number_of_steps:
            self.left_out = self.left_out - {self.number_of_steps - 1}  # one step is always kept
        self.calls = recording.calls
        self.spans = recording.spans
        self.names = recording.thread_names
        self.queue_latency = queue_latency
        self.marked = {span.thread[0] for span in self.spans if span.domain == "profkit"}
        self.phases = [span for span in self.spans if self.is_phase(span)]
        self._phases_of: dict[Thread, list[Span]] = {}
        for span in self.phases:
            self._phases_of.setdefault(span.thread, []).append(span)
        self.calling = {call.thread for call in self.calls}
        self.autograd = {thread for thread in self.calling if self.is_autograd(thread)}
        self.path: dict[int, tuple[str, ...]] = {}
        self.lender: dict[int, Thread] = {}
        for op in self.ops:
            self._place(op)

    # steps of which records are missing

    def incomplete(self) -> set[int]:
        """The steps that lost more than others of their kind, or have too few kernels for their time on the host."""
        found: set[int] = set()
        for kind in set(self.kinds()):
            alike = [number for number, other in enumerate(self.kinds()) if other == kind]
            found |= self._incomplete_of(alike) if len(alike) > 1 else set()
        return found

    def _incomplete_of(self, numbers: list[int]) -> set[int]:
        kernels = {n: sum(self._inside(n, *at) for at in self._kernels_launched()) for n in numbers}
        lost = {n: sum(self._inside(n, *at) for at in self._launches_lost()) for n in numbers}
        most = max(kernels.values())
        if not most:
            return set()
        host = {n: max(steps[n].end - steps[n].start for steps in self.steps.values()) for n in numbers}
        usual = median(host[n] for n in numbers if 4 * kernels[n] >= 3 * most)
        share = {n: lost[n] / max(lost[n] + kernels[n], 1) for n in numbers}
        least = min(share.values()) + 0.05
        short = {n for n in numbers if 4 * kernels[n] < 3 * most and host[n] >= 0.75 * usual}
        return {n for n in numbers if share[n] > least} | (short if most >= 10 else set())

    def _inside(self, number: int, process: int, time: int) -> bool:
        steps = self.steps.get(process)
        return steps is not None and steps[number].start <= time < steps[number].end

    def _kernels_launched(self) -> list[tuple[int, int]]:
        """(Process, time) of the launches of kernels and graphs."""
        kernels = [op for op in self.ops if op.kind in ("kernel", "graph") and id(op) in self.launch]
        return [(op.process, self.launch[id(op)].start) for op in kernels]

    def _launches_lost(self) -> list[tuple[int, int]]:
        """(Process, time) of launch calls without an operation, of several with one id the first."""
        known = {(op.process, op.correlation) for op in self.ops}
        lost: dict[tuple[int, int], int] = {}
        for call in sorted(self.recording.calls, key=lambda call: call.start):
            key = (call.thread[0], call.correlation)
            if call.correlation and key not in known and LAUNCH.fullmatch(call.name):
                lost.setdefault(key, call.start)
        capturing = captures(self.recording.calls)
        return [
            (process, time)
            for (process, _), time in lost.items()
            if not any(thread[0] == process and start <= time < end for thread, start, end in capturing)
        ]

    def is_phase(self, span: Span) -> bool:
        if span.kind != "annotation" or is_step(span):
            return False
        if span.thread[0] in self.marked:
            return span.domain == "profkit"
        return span.domain is None and not LIBRARY.match(span.name)

    def is_autograd(self, thread: Thread) -> bool:
        names = self.names.get(thread, [])
        if any(name.startswith("pt_autograd_") for name in names):
            return True
        if any(span.name.startswith("autograd::") for span in self.spans if span.thread == thread):
            return True
        kernels = {
            id(self.launch[id(op)]) for op in self.ops if op.kind == "kernel" and id(op) in self.launch
        }
        launches = any(id(call) in kernels for call in self.calls if call.thread == thread)
        return not names and launches and thread not in self._phases_of

    def open_phases(self, thread: Thread, time: int) -> list[Span]:
        """The phases that are open on a thread, outermost first."""
        found = [span for span in self._phases_of.get(thread, []) if span.start <= time < span.end]
        return sorted(found, key=lambda span: (span.start, -span.end))

    def _place(self, op: Op) -> None:
        self.path[id(op)] = ()
        call = self.launch.get(id(op))
        if call is None:
            return
        phases = self.open_phases(call.thread, call.start)
        if not phases and call.thread in self.autograd:
            others = [
                t for t in self._phases_of if t[0] == call.thread[0] and self.open_phases(t, call.start)
            ]
            if len(others) == 1:
                phases = self.open_phases(others[0], call.start)
                self.lender[id(op)] = others[0]
        self.path[id(op)] = tuple(span.name for span in phases)

    def processes_of(self, device: int) -> set[int]:
        return {op.process for op in self.ops if op.device == device}

    def whole(self) -> Piece:
        """From the first to the last event of host or device; the profiler's own rows are none."""
        return self.recording.edges()

    def layers(self, device: int) -> dict[str, list[Piece]]:
        """Busy time by what it is: work of any bound, then communication, then transfer alone."""
        by_nature: dict[str, list[Piece]] = {"kernel": [], MEMORY: [], COMMUNICATION: [], TRANSFER: []}
        for op in self.ops:
            if op.device == device:
                by_nature[nature(op)].append((op.start, op.end))
        work = by_nature["kernel"] + by_nature[MEMORY]
        exposed = without(by_nature[COMMUNICATION], work)
        moved = without(by_nature[TRANSFER], work + by_nature[COMMUNICATION])
        return {"work": united(work), COMMUNICATION: exposed, TRANSFER: moved}

    # phases

    def phase_rows(self) -> dict[str, dict[str, int | None]]:
        """Inclusive and exclusive GPU time and kernels of every phase path, for kept operations."""
        kept = [op for op in self.ops if self.in_window(op)]
        paths = {self.path[id(op)][:depth] for op in kept for depth in range(1, len(self.path[id(op)]) + 1)}
        paths |= set(self.entered())
        rows = {}
        for path in paths:
            inside = [op for op in kept if self.path[id(op)][: len(path)] == path]
            hidden = any(op.kind == "graph" for op in inside)
            own = [op for op in inside if self.path[id(op)] == path]
            rows["/".join(path)] = {
                "gpu_inclusive_ns": self.summed_busy(inside),
                "gpu_exclusive_ns": self.summed_busy(own),
                "kernel_count": None if hidden else sum(op.kind == "kernel" for op in inside),
                "count": self.entered().get(path, 0),
            }
        return rows

    def entered(self) -> dict[tuple[str, ...], int]:
        """How often each phase was entered in a kept step."""
        counts: dict[tuple[str, ...], int] = {}
        for span in self.phases:
            number = self.step_index(span.thread[0], span)
            if self.is_kept(number):
                outer = [
                    o for o in self._phases_of[span.thread] if o.start <= span.start and o.end >= span.end
                ]
                path = tuple(o.name for o in sorted(outer, key=lambda o: (o.start, -o.end)))
                counts[path] = counts.get(path, 0) + 1
        return counts


def captures(calls: list[Call]) -> list[tuple[Thread, int, int]]:
    """From each begin of a capture to the thread's next end: what is launched meanwhile goes into a graph."""
    found = []
    for begin in calls:
        if "StreamBeginCapture" in begin.name:
            own = [call for call in calls if call.thread == begin.thread]
            ends = [c for c in own if "StreamEndCapture" in c.name and c.start >= begin.start]
            last = min(ends, key=lambda call: call.start, default=None)
            found.append((begin.thread, begin.start, last.end if last else max(call.end for call in own)))
    return found


def operators(recording: Recording) -> dict[str, dict[str, int]]:
    """Host time of operators by name: total, and without the operators directly inside."""
    rows: dict[str, dict[str, int]] = {}
    for span in recording.spans:
        if span.kind != "operator":
            continue
        inner = [
            (other.start, other.end)
            for other in recording.spans
            if other is not span
            and other.kind == "operator"
            and other.thread == span.thread
            and span.start <= other.start
            and other.end <= span.end
        ]
        row = rows.setdefault(span.name, {"count": 0, "host_ns": 0, "host_self_ns": 0})
        row["count"] += 1
        row["host_ns"] += span.end - span.start
        row["host_self_ns"] += length(without([(span.start, span.end)], inner))
    return rows
