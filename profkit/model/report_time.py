"""Rows of a report about time: devices, the window and its steps, phases, idle time, waits, the timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from profkit.model.names import IdleCause, IdleTimes, ShareBound, ShareName, Shares
from profkit.model.rows import Count, Instant, Ns, Row

__all__ = [
    "Bar",
    "DeviceTotals",
    "Excess",
    "GapActivity",
    "GapRow",
    "HostOperator",
    "HostTime",
    "Idle",
    "IdleRange",
    "KernelTotal",
    "Lane",
    "PartRow",
    "PhaseRow",
    "StepRow",
    "SyncRow",
    "Timeline",
    "Totals",
    "UtilisationRow",
    "Window",
]


class Excess(Row, frozen=True, kw_only=True):
    """Why a step is much longer than the median one."""

    ratio: float
    """By how much of the median step it is longer."""
    share: ShareName
    """The share that grew most."""
    more_ns: Ns
    """By how much that share grew."""


class StepRow(Row, frozen=True, kw_only=True):
    """One step, summed over the devices."""

    name: str
    """As the mark says it, e.g. ``ProfilerStep#7``."""
    kept: bool
    """Whether it is in the window; warm-up and damaged steps are not."""
    wall_ns: Ns | None
    """Host time from its start to its end."""
    device_ns: Ns
    """The time of the devices that the step owns, busy or idle."""
    gpu_busy_ns: Ns
    """The part of it in which the devices ran something."""
    shares: Shares
    """``device_ns`` by share."""
    start_ns: Instant
    """When its device time begins."""
    end_ns: Instant
    """When its device time ends."""
    bound: ShareBound
    """Its largest share."""
    excess: Excess | None = None
    """What made a kept step much longer than the median one; None for a usual step."""


class PartRow(Row, frozen=True, kw_only=True):
    """A part of the window's device time; all parts add up to it."""

    share: ShareName
    """The share that it belongs to."""
    cause: IdleCause | None
    """Why the device is idle; None where it is busy."""
    family: str | None
    """Of the kernel that runs, or ``memcpy``, ``memset``, ``graph``; None where the device is idle."""
    kernel: str | None
    """Its short name."""
    phase: str | None
    """Its path, or that of the operation that is waited for."""
    ns: Ns
    """Device time."""
    rest: bool = False
    """Whether this is many small parts, united by share, cause and family."""


class Window(Row, frozen=True, kw_only=True):
    """The stretch of time that the report is about: the kept steps, or the whole recording where there are none."""

    start_ns: Instant
    """When the first device's window begins."""
    end_ns: Instant
    """When the last device's window ends; with ``start_ns`` only a hull."""
    wall_ns: Ns
    """Host time from the first kept step to the last."""
    device_ns: Ns
    """The sum of ``devices[].window_ns``."""
    steps: Sequence[StepRow]
    """All steps in order, also those that are left out."""
    parts: Sequence[PartRow]
    """The window taken apart, longest first."""


class PhaseRow(Row, frozen=True, kw_only=True):
    """A marked part of the step, over all its occurrences in the window."""

    name: str
    """The last component of its path."""
    path: str
    """With the phases around it: ``forward/loss``."""
    count: Count
    """How often it was entered."""
    host_wall_ns: Ns
    """Host time inside it."""
    gpu_inclusive_ns: Ns
    """The time in which devices ran what it launched, or phases inside it did: a union."""
    gpu_exclusive_ns: Ns
    """The same without the phases inside it."""
    kernel_count: Count | None
    """Kernels that it launched; None where a graph hides them."""
    bound: ShareBound
    """Its largest share."""
    shares: Shares
    """The window's time that belongs to it, by share."""
    peak_allocated_bytes: Count | None
    """The most memory allocated inside it, where a memory section knows."""


class GapActivity(Row, frozen=True, kw_only=True):
    """Something that the launching thread was in during a gap."""

    kind: Literal["range", "frame", "operator", "call"]
    """A range of the program, a function of Python, an operator, a call of the CUDA API."""
    name: str
    """Its name; of a function with file and line: ``train.py:12 step``."""
    ns: Ns
    """How long, without what lies inside it of the same kind."""


class GapRow(Row, frozen=True, kw_only=True):
    """A stretch in which a device ran nothing; it belongs to the operation that ends it."""

    device: int
    """The report's id of the device."""
    start_ns: Instant
    """When it begins."""
    dur_ns: Ns
    """Its length."""
    cause: IdleCause
    """The cause of most of it."""
    before: str | None
    """The operation before it."""
    after: str | None
    """The operation that ends it."""
    phase: str | None
    """The path of the phase of the operation that ends it."""
    operator: str | None
    """The operator that launched the operation that ends it."""
    where: str | None
    """The line of the program that did: ``train.py:12 step``."""
    range: str | None = None
    """The range or phase that kept the host busy, for input and host work."""
    doing: Sequence[GapActivity] = ()
    """What the launching thread did until the launch that ends the gap, longest first."""


class HostOperator(Row, frozen=True, kw_only=True):
    """An operator during which devices waited for a launch."""

    name: str
    """The operator."""
    ns: Ns
    """The time that they waited in it, without operators inside it."""


class HostTime(Row, frozen=True, kw_only=True):
    """What the launching threads did during idle time of the cause ``host``; the four times add up to it."""

    launch_calls_ns: Ns
    """In cudaLaunchKernel and the like."""
    other_calls_ns: Ns
    """In other calls of the CUDA API."""
    operators_ns: Ns
    """In dispatch: inside an operator, outside of any call."""
    outside_ns: Ns
    """In Python, autograd's bookkeeping and whatever was not recorded."""
    by_operator: Sequence[HostOperator]
    """The operators with most of that time."""


class IdleRange(Row, frozen=True, kw_only=True):
    """Idle time that a range or function of the program filled."""

    cause: Literal["input", "host_work"]
    """What it is."""
    name: str
    """Its name; of a function with file and line."""
    ns: Ns
    """How long devices were idle in it."""


class Idle(Row, frozen=True, kw_only=True):
    """The window's idle time."""

    total_ns: Ns
    """All of it, over the devices."""
    by_cause: IdleTimes
    """The same by cause."""
    by_range: Sequence[IdleRange] = ()
    """Input and host work by the range that filled the time, longest first."""
    gaps: Sequence[GapRow]
    """The longest gaps, longest first."""
    gaps_left_out: Count
    """How many shorter ones there are."""
    host: HostTime
    """What the host did meanwhile."""


class SyncRow(Row, frozen=True, kw_only=True):
    """Waits of the host, by call, operator, line and phase."""

    api: str
    """The call: ``cudaStreamSynchronize``."""
    operator: str | None
    """The operator that a person called: ``aten::item``."""
    where: str | None
    """The line of the program: ``train.py:12 step``."""
    phase: str | None
    """The path of the phase around it."""
    count: Count
    """How often."""
    blocked_ns: Ns
    """How long the host was blocked."""
    cost_ns: Ns | None
    """The idle time that the waits explain; not what their removal would save."""


class KernelTotal(Row, frozen=True, kw_only=True):
    """A kernel over the whole file."""

    name: str
    """Its full name."""
    count: Count
    """Launches."""
    total_ns: Ns
    """Summed time."""


class DeviceTotals(Row, frozen=True, kw_only=True):
    """Counts and times of one device over the whole file."""

    id: int
    """The report's id of the device."""
    kernel_count: Count
    """Kernels."""
    kernel_sum_ns: Ns
    """Their summed time."""
    kernel_union_ns: Ns
    """The time in which at least one ran."""
    copy_count: Count
    """Copies."""
    copy_sum_ns: Ns
    """Their summed time."""
    memset_count: Count
    """Memsets."""
    memset_sum_ns: Ns
    """Their summed time."""
    gpu_busy_ns: Ns
    """The time in which the device ran anything."""


class Totals(Row, frozen=True, kw_only=True):
    """The whole file, summed over devices; every other table is about the window."""

    kernel_count: Count | None
    """Kernels; None where graphs hide all of them."""
    kernel_sum_ns: Ns
    """Their summed time."""
    kernel_union_ns: Ns
    """The time in which at least one ran, per device."""
    gpu_busy_ns: Ns
    """Kernels, copies, memsets and graphs united, per device."""
    gpu_span_ns: Ns
    """From the first to the last operation of each device."""
    copy_ns: Ns
    """The summed time of copies, without memsets."""
    communication_sum_ns: Ns
    """The summed time of collectives and peer copies."""
    communication_exposed_ns: Ns
    """The part of it that nothing else hid."""
    kernels: Sequence[KernelTotal]
    """Kernels by name, most time first."""
    devices: Sequence[DeviceTotals]
    """The same by device."""


Bar: TypeAlias = tuple[Instant, Ns, str, str, str | None]
"""Start and length in ns, name, tone (a share, bound or idle cause), and the path of its phase or None."""


class Lane(Row, frozen=True, kw_only=True):
    """A lane of the timeline."""

    kind: Literal["phase", "stream", "thread", "idle"]
    """What its bars are."""
    label: str
    """Its name on the page."""
    bars: Sequence[Bar]
    """Its bars in order of start."""


class Timeline(Row, frozen=True, kw_only=True):
    """One representative step, as lanes of bars."""

    step: str | None
    """Its name; None without steps."""
    device: int
    """The report's id of the device that it shows."""
    start_ns: Instant
    """When it begins."""
    end_ns: Instant
    """When it ends."""
    lanes: Sequence[Lane]
    """Phases, threads, streams and idle time."""
    left_out: Count
    """Short bars that are not in it."""
    queue: Sequence[tuple[Instant, Count]] = ()
    """Operations that are launched and not begun, from each instant on; of many, the fewest and the most in each part."""


class UtilisationRow(Row, frozen=True, kw_only=True):
    """A GPU metric over the window, resampled."""

    device: int
    """The report's id of the device."""
    metric: str
    """Its name as the file writes it."""
    time_ns: Sequence[Instant]
    """The middle of each interval."""
    value: Sequence[float | None]
    """The mean there, in the metric's own unit."""
