"""Launches, steps, windows and busy time of one plain recording, by loops and dictionaries.

Written from the definitions alone (docs/numbers.md), without a look at profkit's analysis, and sharing no line
with it. Where the two disagree, the definition decides which of them is wrong.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from profkit.verification.events import Call, Op, Recording, Span
from profkit.verification.intervals import Piece, length, near, united, within

__all__ = ["Step", "Timeline", "is_step", "warm_up"]

_PROFILER_STEP: Final = re.compile(r"ProfilerStep#\d+")
_STEP: Final = re.compile(
    r"(global|train|training|optimi[sz]er)?[ _\-.]?(step|iteration|iter)[ _\-#:.]*\d*", re.IGNORECASE
)
_LONGEST_STEP_NAME: Final = 64


def is_step(span: Span, name: str | None = None) -> bool:
    """Whether a span may be a step: by the name that was asked for, else by the usual ones."""
    if span.kind not in ("annotation", "start_end"):
        return False
    if name is not None:
        return span.name == name
    plain = span.name.strip()
    return (
        bool(plain)
        and len(span.name) < _LONGEST_STEP_NAME
        and bool(_PROFILER_STEP.fullmatch(plain) or _STEP.fullmatch(plain))
    )


def warm_up(lengths: Sequence[int]) -> int:
    """How many leading steps are left out: while the first exceeds 1.1 times the median of the later ones."""
    first = 0
    while len(lengths) - first > 2:
        later = sorted(lengths[first + 1 :])
        middle = (later[(len(later) - 1) // 2] + later[len(later) // 2]) / 2
        if lengths[first] <= 1.1 * middle:
            break
        first += 1
    return first


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

    ``first_kept`` is the report's: it is decided over all of its recordings.
    """

    recording: Recording
    step_name: str | None = None
    first_kept: int = 0
    launch: dict[int, Call] = field(default_factory=dict)
    """By the `id` of an operation."""
    steps: dict[int, list[Step]] = field(default_factory=dict)
    """By process; all have equally many."""
    step_of: dict[int, int | None] = field(default_factory=dict)
    """By the `id` of an operation: the number of the step that launched it."""
    borders: dict[int, list[int]] = field(default_factory=dict)
    """By device: step *k* is from the *k*-th to the next one."""

    def __post_init__(self) -> None:
        self.ops = self.recording.ops
        self.devices = self.recording.devices or sorted({op.device for op in self.ops})
        self.by_device: dict[int, list[Op]] = {device: [] for device in self.devices}
        for op in self.ops:
            self.by_device[op.device].append(op)
        self._busy: dict[int, list[Piece]] = {}
        self.launch = self._launches()
        self._find_steps()
        self._tile()
        self._place_unlaunched()
        self.first_kept = warm_up(self.lengths())

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
        spans = [span for span in self.recording.spans if is_step(span, self.step_name)]
        if self.step_name is None:
            spans = [span for span in spans if _PROFILER_STEP.fullmatch(span.name)] or spans
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
        for op in self.ops:
            self.step_of[id(op)] = self.step_index(op.process, self.launch.get(id(op)))

    def step_index(self, process: int, event: Call | Span | None) -> int | None:
        """The step that an event belongs to: the one it begins in, between steps the next; outside all, none."""
        steps = self.steps.get(process, [])
        if event is None or not steps or event.start < steps[0].start:
            return None
        number = bisect_right(self._ends[process], event.start)
        return number if number < len(steps) else None

    def _tile(self) -> None:
        if not self.number_of_steps:
            return
        for device, ops in self.by_device.items():
            owners = {op.process for op in ops} or set(self.steps)
            edges = [min(self.steps[process][0].start for process in owners)] * (self.number_of_steps + 1)
            for op in ops:
                number = self.step_of[id(op)]
                if number is not None:
                    edges[number + 1] = max(edges[number + 1], op.end)
            for number in range(1, len(edges)):
                edges[number] = max(edges[number - 1], edges[number])
            self.borders[device] = edges

    def _place_unlaunched(self) -> None:
        """Operations whose launch is lost go by their end; those of the warm-up tail (before all others) nowhere."""
        for device, ops in self.by_device.items() if self.number_of_steps else ():
            first = min((op.start for op in ops if id(op) in self.launch), default=None)
            for op in ops:
                tail = op.correlation and first is not None and op.start < first
                if id(op) not in self.launch and not tail:
                    for number in range(self.number_of_steps):
                        if self.borders[device][number] < op.end <= self.borders[device][number + 1]:
                            self.step_of[id(op)] = number

    def lengths(self) -> list[int]:
        """The device time of each step, over all devices."""
        return [
            sum(edges[number + 1] - edges[number] for edges in self.borders.values())
            for number in range(self.number_of_steps)
        ]

    def tiles(self, number: int) -> dict[int, Piece]:
        """The tile of one step on every device."""
        return {device: (edges[number], edges[number + 1]) for device, edges in self.borders.items()}

    def device_ns(self, number: int) -> int:
        """The length of one step, over all devices."""
        return sum(end - start for start, end in self.tiles(number).values())

    def window(self, device: int) -> Piece:
        """The kept steps of a device, or the whole recording where there are none."""
        if self.number_of_steps:
            return self.borders[device][self.first_kept], self.borders[device][-1]
        return self.recording.edges()

    def is_kept(self, number: int | None) -> bool:
        """Whether what belongs to a step is counted."""
        return not self.number_of_steps or (number is not None and number >= self.first_kept)

    def in_window(self, op: Op) -> bool:
        """Whether an operation is counted: a kept step launched it."""
        return self.is_kept(self.step_of[id(op)])

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
