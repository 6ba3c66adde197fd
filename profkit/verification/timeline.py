"""Launches, steps, windows and busy time of one plain recording, by loops and dictionaries.

Written from the definitions alone (docs/numbers.md), without a look at profkit's analysis, and sharing no line
with it. Where the two disagree, the definition decides which of them is wrong.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Final

from profkit.verification.events import Call, Op, Recording, Span
from profkit.verification.intervals import Piece, length, near, united, within, without
from profkit.verification.step_names import chosen_steps, is_plain_step, kind, number_jumps

__all__ = ["Step", "Timeline", "left_out", "warm_up"]

_QUEUED_LONG_NS: Final = 1_000_000
"""From a launch to a stream's first operation: so long, with the device idle, only behind work of before the recording."""


def pauses(steps: Sequence[Piece], launched: Sequence[int], done: Sequence[Piece]) -> set[int]:
    """Steps before which there is an unusual pause that holds much of a step's work, or nothing that was recorded.

    Args:
        steps: Start and end of each on the host.
        launched: When operations were launched, in order.
        done: When host or device did anything.
    """
    waits = [b[0] - a[1] for a, b in pairwise(steps)]
    lengths = [end - start for start, end in steps]
    period = median(min(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(steps))
    least = max(3 * median(waits), 0.5 * median(lengths))

    def count(start: int, end: int) -> int:
        return bisect_left(launched, end) - bisect_left(launched, start)

    usual = median(count(*step) for step in steps)
    found = set()
    for number, wait in enumerate(waits, 1):
        since, until = steps[number - 1][1], steps[number][0]
        if wait <= least:
            continue
        if count(since, until) >= max(0.3 * usual, 1):
            found.add(number)
        elif wait > 10 * period:
            holes = without(
                [(since, until)], [piece for piece in done if piece[1] > since and piece[0] < until]
            )
            if max((end - start for start, end in holes), default=0) > 10 * period:
                found.add(number)
    return found


def warm_up(lengths: Sequence[int], kinds: Sequence[str]) -> int:
    """How many leading steps are left out: while the first exceeds 1.1 times the median of the later ones of its kind."""
    for first, length_ns in enumerate(lengths):
        later = [
            n for n, of in zip(lengths[first + 1 :], kinds[first + 1 :], strict=True) if of == kinds[first]
        ]
        if len(later) < 2 or length_ns <= 1.1 * median(later):
            return first
    return len(lengths)


def left_out(lengths: Sequence[int], kinds: Sequence[str], damaged: set[int]) -> set[int]:
    """The numbers of the steps that are in no window: damaged ones, and of the others those that are warm-up."""
    whole = [number for number in range(len(lengths)) if number not in damaged]
    leading = warm_up([lengths[number] for number in whole], [kinds[number] for number in whole])
    return damaged | set(whole[:leading])


@dataclass
class Step:
    """A step of one process: where the host was in it."""

    name: str
    process: int
    start: int
    end: int


@dataclass(eq=False)
class Timeline:
    """One recording with its launches, its steps and their tiles on every device.

    ``left_out`` are the steps that are in no window: that is decided over all recordings of a report.
    """

    recording: Recording
    step_name: str | None = None
    left_out: set[int] = field(default_factory=set)
    damaged: set[int] = field(default_factory=set)
    """The numbers of steps that lost records, as the report says."""
    launch: dict[int, Call] = field(default_factory=dict)
    """By the `id` of an operation."""
    steps: dict[int, list[Step]] = field(default_factory=dict)
    """By process; all have equally many."""
    step_of: dict[int, int | None] = field(default_factory=dict)
    """By the `id` of an operation: the number of the step that launched it."""
    anew: set[int] = field(default_factory=set)
    """The numbers of steps that begin anew: what lies before them is in no step."""
    edges: dict[int, list[Piece]] = field(default_factory=dict)
    """By device: the tile of each step."""

    def __post_init__(self) -> None:
        self.ops = self.recording.ops
        self.devices = self.recording.devices or sorted({op.device for op in self.ops})
        self.by_device: dict[int, list[Op]] = {device: [] for device in self.devices}
        for op in self.ops:
            self.by_device[op.device].append(op)
        self._busy: dict[int, list[Piece]] = {}
        self._hulls: dict[int, list[Piece]] = {}
        self.launch = self._launches()
        self._held = {device: self._held_until(device) for device in self.devices}
        self._find_steps()
        self._tile()
        self._place_unlaunched()
        self.left_out = left_out(self.lengths(), self.kinds(), self.damaged)

    def _launches(self) -> dict[int, Call]:
        """The call of an operation's process with its id: of several the runtime's, then the earliest."""
        by_id: dict[tuple[int, int], Call] = {}
        for call in self.recording.calls:
            key = (call.thread[0], call.correlation)
            known = by_id.get(key)
            if known is None or (call.driver, call.start) < (known.driver, known.start):
                by_id[key] = call
        found = {}
        for op in self.ops:
            key = (op.process, op.correlation)
            if op.correlation and key in by_id:
                found[id(op)] = by_id[key]
        return found

    def _find_steps(self) -> None:
        """Outermost step ranges by process; one without any has those of the first process that has some."""
        spans = chosen_steps(self.recording.spans, self.step_name)
        self.step_spans = {id(span) for span in spans} | self._steps_inside(spans)
        reach: dict[int, int] = {}
        for span in sorted(spans, key=lambda span: (span.start, -span.end)):
            process = span.thread[0]
            if span.start >= reach.get(process, span.start):
                self.steps.setdefault(process, []).append(Step(span.name, process, span.start, span.end))
            reach[process] = max(reach.get(process, span.end), span.end)
        self.number_of_steps = min(map(len, self.steps.values()), default=0)
        processes = [*self.recording.processes, *(op.process for op in self.ops)]
        order = [process for process in dict.fromkeys(processes) if process in self.steps]
        for process in dict.fromkeys(processes) if order else ():
            self.steps.setdefault(process, self.steps[order[0]])
        self.steps = {process: steps[: self.number_of_steps] for process, steps in self.steps.items()}
        self._ends = {process: [step.end for step in steps] for process, steps in self.steps.items()}
        self.names = [step.name for step in self.steps[order[0]]] if order else []
        self._find_breaks(dict.fromkeys(processes))
        for op in self.ops:
            held = op.start < self._held[op.device]
            self.step_of[id(op)] = None if held else self.step_index(op.process, self.launch.get(id(op)))

    def _steps_inside(self, spans: Sequence[Span]) -> set[int]:
        """Other ranges named like a step, one of a name in each of these: second marks of the same steps."""
        chosen = {id(span) for span in spans}
        inside: dict[str, list[tuple[int, int]]] = {}
        by_thread: dict[tuple[int, int], list[Span]] = {}
        for span in sorted(spans, key=lambda span: (span.start, -span.end)):
            by_thread.setdefault(span.thread, []).append(span)
        for span in self.recording.spans if spans else ():
            name = span.name.strip()
            named = is_plain_step(span.name) and name
            if (
                span.kind != "annotation"
                or id(span) in chosen
                or not named
                or name.lower().startswith("optim")
            ):
                continue
            outer = [each for each in by_thread.get(span.thread, []) if each.start <= span.start < each.end]
            if outer:
                inside.setdefault(span.name, []).append((id(outer[-1]), id(span)))
        return {
            inner
            for found in inside.values()
            if len({outer for outer, _ in found}) == len(found)
            for _, inner in found
        }

    def _find_breaks(self, processes: Iterable[int]) -> None:
        if not self.number_of_steps:
            return
        self.anew = {0, *number_jumps(self.names), *(number + 1 for number in self.damaged)}
        starts = [min(steps[n].start for steps in self.steps.values()) for n in range(self.number_of_steps)]
        self.anew |= {bisect_left(starts, again) for again in self.recording.resumed}
        for process in processes if self.number_of_steps > 1 else ():
            calls = [call for call in self.recording.calls if call.thread[0] == process]
            ops = [op for op in self.ops if op.process == process]
            done = [(call.start, call.end) for call in calls] + [(op.start, op.end) for op in ops]
            if not self.recording.calls:
                others = self.recording.others
                done += zip(others[0::2], others[1::2], strict=True)
            launched = sorted(self.launch[id(op)].start for op in ops if id(op) in self.launch)
            self.anew |= pauses([(s.start, s.end) for s in self.steps[process]], launched, done)

    def step_index(self, process: int, event: Call | Span | None) -> int | None:
        """The step that an event belongs to: the one it begins in, between steps the next; outside all, none."""
        steps = self.steps.get(process, [])
        if event is None or not steps:
            return None
        number = bisect_right(self._ends[process], event.start)
        if number == len(steps) or (number in self.anew and event.start < steps[number].start):
            return None
        return number

    def _tile(self) -> None:
        if not self.number_of_steps:
            return
        for device, ops in self.by_device.items():
            owners = {op.process for op in ops} or set(self.steps)
            end, tiles = None, []
            for number in range(self.number_of_steps):
                own = [op for op in ops if self.step_of[id(op)] == number]
                start = end
                if number in self.anew or end is None:
                    host = min(self.steps[process][number].start for process in owners)
                    start = max(self._fresh(device, own, host), host if end is None else end)
                assert start is not None
                end = max([start, *(op.end for op in own)])
                tiles.append((start, end))
            self.edges[device] = tiles

    def _fresh(self, device: int, own: Sequence[Op], host: int) -> int:
        """Where a tile begins after a break: leftovers of what came before are not in it."""
        if not own:
            return host
        ops = self.by_device[device]
        first = min(op.start for op in own)
        earlier = max((op.end for op in ops if op.start < first), default=host)
        return max(host, min(max(earlier, self._held[device]), first))

    def _held_until(self, device: int) -> int:
        """When work of before the recording let a device go, by the first operation of a stream that waited for it."""
        ran, streams = 0, set[tuple[int, int]]()
        for op in sorted(self.by_device[device], key=lambda op: op.start):
            launch = self.launch.get(id(op))
            if launch is not None and (op.process, op.stream) not in streams:
                waited = op.start - launch.end
                recorded_before = launch.start - self.recording.edges()[0]
                if waited > max(_QUEUED_LONG_NS, recorded_before) and 100 * ran <= waited:
                    return op.start
            streams.add((op.process, op.stream))
            ran += op.end - op.start
        return -(2**63)

    def _place_unlaunched(self) -> None:
        """Operations whose launch is lost go by their end; those of the warm-up tail (before all others) nowhere."""
        for device, ops in self.by_device.items() if self.number_of_steps else ():
            first: dict[int, int] = {}
            for op in ops:
                if id(op) in self.launch:
                    stretch = self._stretch(op)
                    first[stretch] = min(op.start, first.get(stretch, op.start))
            for op in ops:
                tail = op.correlation and op.start < first.get(self._stretch(op), op.start)
                if id(op) not in self.launch and not tail:
                    for number, (start, end) in enumerate(self.edges[device]):
                        if start < op.end <= end:
                            self.step_of[id(op)] = number

    def kinds(self) -> list[str]:
        """The kind of each step."""
        return [kind(name) for name in self.names]

    def lengths(self) -> list[int]:
        """The device time of each step, over all devices."""
        return [self.device_ns(number) for number in range(self.number_of_steps)]

    def tiles(self, number: int) -> dict[int, Piece]:
        """The tile of one step on every device."""
        return {device: tiles[number] for device, tiles in self.edges.items()}

    def device_ns(self, number: int) -> int:
        """The length of one step, over all devices."""
        return sum(end - start for start, end in self.tiles(number).values())

    def window(self, device: int) -> list[Piece]:
        """The kept steps of a device; where there are no steps, from its first operation to its last."""
        if self.number_of_steps:
            return united([tile for number, tile in enumerate(self.edges[device]) if self.is_kept(number)])
        if device not in self._hulls:
            ops, found = self.by_device[device], []
            since = self._first_work(ops) if ops else 0
            for stretch in sorted({self._stretch(op) for op in ops}):
                own = [op for op in ops if self._stretch(op) == stretch]
                begin, end = max(since, min(op.start for op in own)), max(op.end for op in own)
                found += [(begin, end)] if begin < end else []
            self._hulls[device] = united(found)
        return self._hulls[device]

    def _stretch(self, op: Op) -> int:
        """How often recording had begun anew when an operation started."""
        return bisect_right(self.recording.resumed, op.start)

    @staticmethod
    def _first_work(ops: Sequence[Op]) -> int:
        """The first operation; where ten copies to the device and three of four come before all kernels, the first kernel."""
        kernels = [op.start for op in ops if op.kind in ("kernel", "graph")]
        copies = [op.start for op in ops if op.kind == "HtoD"]
        begun = min(kernels, default=0)
        before = sum(start < begun for start in copies)
        moved = bool(kernels) and before >= max(10, 0.75 * len(copies))
        return begun if moved else min(op.start for op in ops)

    def hull(self, device: int) -> Piece:
        """From the start of a device's window to its end."""
        window = self.window(device) or [self.recording.edges()[:1] * 2]
        return window[0][0], window[-1][1]

    def is_kept(self, number: int | None) -> bool:
        """Whether what belongs to a step is counted."""
        return not self.number_of_steps or (number is not None and number not in self.left_out)

    def in_window(self, op: Op) -> bool:
        """Whether an operation is counted: a kept step launched it; without steps, it is no weight moved before."""
        if not self.number_of_steps:
            return op.start >= self.hull(op.device)[0]
        return self.is_kept(self.step_of[id(op)])

    def begun_in_window(self, span: Span | Call) -> bool:
        """Whether a range or call began in a kept step of its process."""
        return self.is_kept(self.step_index(span.thread[0], span))

    def kernels(self) -> list[Op]:
        """All kernels of the file."""
        return [op for op in self.ops if op.kind == "kernel"]

    def busy(self, device: int, ops: Iterable[Op] | None = None) -> list[Piece]:
        """When a device does any of some operations, or any at all."""
        if ops is not None:
            return united([(op.start, op.end) for op in ops if op.device == device])
        if device not in self._busy:
            self._busy[device] = united([(op.start, op.end) for op in self.by_device[device]])
        return self._busy[device]

    def busy_ns(self, device: int, start: int, end: int) -> int:
        """How long a device is busy in a stretch of time."""
        return length(within(near(self.busy(device), start, end), start, end))

    def summed_busy(self, ops: list[Op] | None = None) -> int:
        """Busy time, added up over devices."""
        return sum(length(self.busy(device, ops)) for device in self.devices)

    def span(self) -> int:
        """From a device's first operation to its last, added up over devices."""
        return sum(
            max(op.end for op in ops) - min(op.start for op in ops) for ops in self.by_device.values() if ops
        )
