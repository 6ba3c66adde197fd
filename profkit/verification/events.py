"""A recording as a person would write it down: one object an event, whole nanoseconds, nothing clever."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["Call", "Op", "Recording", "Span", "UnreadError"]

Thread = tuple[int, int]
"""Process, thread."""


class UnreadError(Exception):
    """Plain means do not read this file; the message says why."""

    def __init__(self, problem: str, role: str | None = None) -> None:
        super().__init__(problem)
        self.role = role
        """What such a recording is for, where that is known (`profkit.readers.registry.Role`)."""


@dataclass(slots=True)
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
    """0 is none."""
    shape: tuple[int, ...] = ()
    """grid and block"""
    stream: int = 0
    """The tool's number for it, within the process and device."""

    @property
    def length(self) -> int:
        """In ns."""
        return self.end - self.start


@dataclass(slots=True)
class Call:
    """A call of the CUDA runtime or driver."""

    name: str
    start: int
    end: int
    thread: Thread
    correlation: int
    driver: bool = False


@dataclass(slots=True)
class Span:
    """A named stretch of host time."""

    name: str
    start: int
    end: int
    thread: Thread
    kind: str
    """annotation, start_end, operator, python or overhead"""
    domain: str | None = None


@dataclass
class Recording:
    """All that is counted. Spans that nobody asks for are only remembered by their times."""

    ops: list[Op] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    thread_names: dict[Thread, list[str]] = field(default_factory=dict)
    processes: list[int] = field(default_factory=list)
    """In the order of the report; the first has the most to say."""
    devices: list[int] = field(default_factory=list)
    """In the order of the report, also those that ran nothing."""
    origin: int | None = None
    """What makes Unix times of its times, where the file says it."""
    resumed: list[int] = field(default_factory=list)
    """When recording began anew."""
    only_gives_operators: bool = False
    """Whether it only gives shapes and operators where there is another timeline, as a profiler trace does."""
    others_of: dict[Thread, array[int]] = field(default_factory=dict)
    """The same by thread."""
    autograd: set[Thread] = field(default_factory=set)
    """Threads with ranges of the autograd engine."""
    others: array[int] = field(default_factory=lambda: array("q"))
    """Starts and ends, in turn, of spans that were not kept."""

    def add_span(self, span: Span, keep: Callable[[Span], bool]) -> None:
        """Keep a span, or only its times. The profiler's own are no part of the recording's length."""
        if span.kind == "operator" and span.name.startswith(("autograd::engine::", "torch::autograd::")):
            self.autograd.add(span.thread)
        if keep(span):
            self.spans.append(span)
        elif span.kind != "overhead":
            self.others.extend((span.start, span.end))
            self.others_of.setdefault(span.thread, array("q")).extend((span.start, span.end))

    def events(self) -> Iterator[Op | Call | Span]:
        """Everything that was kept."""
        yield from self.ops
        yield from self.calls
        yield from self.spans

    def edges(self) -> tuple[int, int]:
        """From the first to the last event of host or device; zeros where there are none."""
        counted = [
            event for event in self.events() if not (isinstance(event, Span) and event.kind == "overhead")
        ]
        starts = [event.start for event in counted]
        ends = [event.end for event in counted]
        if self.others:
            starts.append(min(self.others[0::2]))
            ends.append(max(self.others[1::2]))
        return min(starts, default=0), max(ends, default=0)
