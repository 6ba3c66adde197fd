"""The numbers of a report, worked out by hand: loops, dictionaries and lists of nanoseconds.

Written from the definitions alone (docs/numbers.md), without a look at profkit's analysis, and sharing no line
with it. Where profkit and this file disagree, the definition decides which of the two is wrong.
"""

import re
from dataclasses import dataclass, field

from tests.exactness.intervals_by_hand import Piece, length, united, without
from tests.exactness.plain_files import Call, Op, Recording, Span

Thread = tuple[int, int]

STEP = re.compile(r"ProfilerStep#\d+|(train(ing)?_?)?(step|iteration)", re.IGNORECASE)
LIBRARY = re.compile(
    r"nccl:|gloo:|Optimizer\.|DistributedDataParallel\.forward|FSDP::|enumerate\(DataLoader\)|Torch-Compiled|## Call "
)
WITHIN_DEVICE = ("memset", "DtoD", "AtoA", "AtoD", "DtoA")
COMMUNICATION, TRANSFER, MEMORY = "communication", "transfer", "memory"


def nature(op: Op) -> str:
    """What an operation is without a look at its bound: a kernel of any bound is a ``kernel``."""
    if op.kind == "PtoP" or (op.kind == "kernel" and re.match(r"(void )?(nccl|rccl)", op.name)):
        return COMMUNICATION
    if op.kind in ("kernel", "graph"):
        return "kernel"
    return MEMORY if op.kind in WITHIN_DEVICE else TRANSFER


@dataclass
class Step:
    """A step: where the host was in it, and its tile on every device."""

    name: str
    process: int
    start: int
    end: int
    tiles: dict[int, Piece] = field(default_factory=dict)
    kept: bool = True


class BruteForce:
    """All numbers of one recording.

    Args:
        recording: What a plain reader found.
        queue_latency: The calibrated Q, in ns: an input, not something to be checked here.
    """

    def __init__(self, recording: Recording, queue_latency: int) -> None:
        self.ops = recording.ops
        self.calls = recording.calls
        self.spans = recording.spans
        self.names = recording.thread_names
        self.queue_latency = queue_latency
        self.devices = sorted({op.device for op in self.ops})
        self.launch = self._launches()
        self.steps_by_process = self._host_steps()
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
        self.step_of = {id(op): self._step_index(op.process, self.launch.get(id(op))) for op in self.ops}
        self._tile()
        self._place_unlaunched()
        self._leave_out_warm_up()

    # launches, steps and phases

    def _launches(self) -> dict[int, Call]:
        by_id: dict[tuple[int, int], Call] = {}
        for call in self.calls:
            key = (call.thread[0], call.correlation)
            known = by_id.get(key)
            if known is None or (call.driver, call.start) < (known.driver, known.start):
                by_id[key] = call
        found = {}
        for op in self.ops:
            call = by_id.get((op.process, op.correlation))
            if op.correlation and call:
                found[id(op)] = call
        return found

    def _host_steps(self) -> dict[int, list[Step]]:
        steps: dict[int, list[Step]] = {}
        for span in sorted(self.spans, key=lambda span: span.start):
            if span.kind == "annotation" and span.domain is None and STEP.fullmatch(span.name):
                of_process = steps.setdefault(span.thread[0], [])
                of_process.append(Step(span.name, span.thread[0], span.start, span.end))
        return steps

    def is_phase(self, span: Span) -> bool:
        if span.kind != "annotation" or STEP.fullmatch(span.name):
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

    def _step_index(self, process: int, call: Call | Span | None) -> int | None:
        """The step that a call belongs to: the one it is in, between steps the next; outside all, none."""
        steps = self.steps_by_process.get(process, [])
        if call is None or not steps or call.start < steps[0].start:
            return None
        for number, step in enumerate(steps):
            if call.start < step.end:
                return number
        return None

    # device steps

    def processes_of(self, device: int) -> set[int]:
        return {op.process for op in self.ops if op.device == device}

    def _tile(self) -> None:
        self.steps: list[Step] = []
        for device in self.devices:
            for process in self.processes_of(device):
                steps = self.steps_by_process.get(process, [])
                self.steps += [step for step in steps if step not in self.steps]
                edge = steps[0].start if steps else 0
                for number, step in enumerate(steps):
                    mine = [
                        op.end for op in self.ops if op.device == device and self.step_of[id(op)] == number
                    ]
                    step.tiles[device] = (edge, max([edge, *mine]))
                    edge = step.tiles[device][1]
        self.number_of_steps = max([len(steps) for steps in self.steps_by_process.values()], default=0)

    def _place_unlaunched(self) -> None:
        """Operations whose launch is lost go by their end; those of the warm-up tail (before all others) nowhere."""
        for device in self.devices:
            mine = [op for op in self.ops if op.device == device]
            first = min((op.start for op in mine if id(op) in self.launch), default=None)
            for op in mine:
                tail = op.correlation and first is not None and op.start < first
                if id(op) in self.launch or tail or not self.number_of_steps:
                    continue
                for number in range(self.number_of_steps):
                    start, end = self.tiles(number)[device]
                    if start < op.end <= end:
                        self.step_of[id(op)] = number

    def tiles(self, number: int) -> dict[int, Piece]:
        """The tile of one step on every device."""
        found = {}
        for steps in self.steps_by_process.values():
            found.update(steps[number].tiles)
        return found

    def device_ns(self, number: int) -> int:
        return sum(end - start for start, end in self.tiles(number).values())

    def _leave_out_warm_up(self) -> None:
        self.first_kept = 0
        lengths = [self.device_ns(number) for number in range(self.number_of_steps)]
        while len(lengths) - self.first_kept > 2:
            later = sorted(lengths[self.first_kept + 1 :])
            middle = (later[(len(later) - 1) // 2] + later[len(later) // 2]) / 2
            if lengths[self.first_kept] <= 1.1 * middle:
                break
            self.first_kept += 1

    def window(self, device: int) -> Piece:
        """The kept steps of a device, or the whole recording where there are none."""
        if self.number_of_steps:
            first, last = self.tiles(self.first_kept)[device], self.tiles(self.number_of_steps - 1)[device]
            return first[0], last[1]
        return self.whole()

    def whole(self) -> Piece:
        """From the first to the last event of host or device; the profiler's own rows are none."""
        spans = [span for span in self.spans if span.kind != "overhead"]
        events = [*self.ops, *self.calls, *spans]
        return min(event.start for event in events), max(event.end for event in events)

    def in_window(self, op: Op) -> bool:
        """Whether an operation is counted: a kept step launched it."""
        return self.is_kept(self.step_of[id(op)])

    def is_kept(self, number: int | None) -> bool:
        return not self.number_of_steps or (number is not None and number >= self.first_kept)

    # totals of the whole file

    def kernels(self) -> list[Op]:
        return [op for op in self.ops if op.kind == "kernel"]

    def busy(self, device: int, ops: list[Op] | None = None) -> list[Piece]:
        """When a device does any of these operations."""
        chosen = self.ops if ops is None else ops
        return united([(op.start, op.end) for op in chosen if op.device == device])

    def summed_busy(self, ops: list[Op] | None = None) -> int:
        return sum(length(self.busy(device, ops)) for device in self.devices)

    def span(self) -> int:
        total = 0
        for device in self.devices:
            mine = [op for op in self.ops if op.device == device]
            total += max(op.end for op in mine) - min(op.start for op in mine)
        return total

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
            number = self._step_index(span.thread[0], span)
            if self.is_kept(number):
                outer = [
                    o for o in self._phases_of[span.thread] if o.start <= span.start and o.end >= span.end
                ]
                path = tuple(o.name for o in sorted(outer, key=lambda o: (o.start, -o.end)))
                counts[path] = counts.get(path, 0) + 1
        return counts


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
