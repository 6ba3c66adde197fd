"""Rows of a report about several GPUs: collectives, ranks, who waits for whom, and how the work is spread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from profkit.model.findings import Fact
from profkit.model.names import ShareName, Shares
from profkit.model.rows import Bytes, Count, Ns, Ratio, Row

__all__ = [
    "CommunicationRow",
    "CommunicationSize",
    "Messages",
    "Parallelism",
    "RankComparison",
    "RankRow",
    "Straggler",
    "StreamRow",
    "Wait",
]


class CommunicationSize(Row, frozen=True, kw_only=True):
    """Collectives of one size."""

    bytes: Bytes | None
    """Bytes of one: the larger of what a rank gives and gets."""
    bus_factor: float | None
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it."""
    count: Count
    """How many."""
    total_ns: Ns
    """Their summed time."""
    exposed_ns: Ns
    """The part of it that nothing else hid."""
    algorithm_gbs: float | None
    """Bytes over time, in GB/s."""
    bus_gbs: float | None
    """The same as bus bandwidth, in GB/s."""
    waiting_ns: Ns | None
    """Before the last rank entered; None where ranks were not compared."""
    transfer_ns: Ns | None
    """The rest of the time."""
    transfer_bus_gbs: float | None
    """Bus bandwidth of the transfer alone, in GB/s."""


class CommunicationRow(Row, frozen=True, kw_only=True):
    """Collectives or peer copies of the window, by process group and type."""

    collective: str
    """``all_reduce``, ``all_gather``, ``send_recv``, ``peer copy``..."""
    group: str | None
    """The process group."""
    dtype: str | None
    """The type of the elements."""
    count: Count
    """How many."""
    bytes: Bytes | None
    """Bytes of all; None where one size is unknown."""
    total_ns: Ns
    """Their summed time."""
    exposed_ns: Ns | None
    """The part of it that nothing else hid."""
    algorithm_gbs: float | None
    """Bytes over time, in GB/s."""
    bus_gbs: float | None
    """The same as bus bandwidth, in GB/s."""
    waiting_ns: Ns | None
    """Before the last rank entered; None where ranks were not compared."""
    transfer_ns: Ns | None
    """The rest of the time."""
    transfer_bus_gbs: float | None
    """Bus bandwidth of the transfer alone, in GB/s."""
    sizes: Sequence[CommunicationSize]
    """The same by size, most time first."""


class RankRow(Row, frozen=True, kw_only=True):
    """One rank; what needs a common clock is None where the ranks were not compared."""

    rank: int
    """Its number."""
    device: int
    """The report's id of its device."""
    step_ns: Ns | None
    """The mean step."""
    step_min_ns: Ns | None
    """The shortest step."""
    step_max_ns: Ns | None
    """The longest step."""
    shares: Shares
    """Its window by share."""
    late_ns: Ns | None
    """How much later than the first rank it entered a collective, at most in each step; the mean over the steps."""
    straggler: bool | None
    """Whether the others wait for it, in most steps and for a notable part of their time."""
    critical: bool | None
    """Whether it is the rank that waits least for others."""
    collective_ns: Ns
    """The time in collectives: a union."""
    exposed_ns: Ns
    """The part of it that nothing else hid."""
    overlapped_ns: Ns
    """The rest of it."""
    waiting_ns: Ns | None
    """In collectives before the last rank entered."""
    exposed_waiting_ns: Ns | None
    """The part of that within the share ``communication``."""
    transfer_ns: Ns | None
    """In collectives after the last rank entered."""
    causes_wait_ns: Ns | None
    """The exposed waiting of the other ranks for this one, as the mean over them."""
    clock_offset_ns: int | None
    """What was added to its clock to have the common one."""
    clock_error_ns: Ns | None
    """How far the common clock may be off."""


class Straggler(Row, frozen=True, kw_only=True):
    """Waiting for ranks that come late to collectives, and why the latest one does."""

    rank: int | None
    """The rank that the others wait for; None where they wait for each other in turn."""
    waiting_ns: Ns
    """The exposed waiting of all ranks."""
    share: Ratio
    """The same of their windows."""
    bound: ShareName | None
    """The share in which the late rank spends more time than the others; None where that does not explain it."""
    leads: bool = False
    """Whether this is the verdict's sentence; else it is a caveat."""
    waits_in: Literal["collective", "message"] = "collective"
    """Where most of the waiting is."""
    before_recording: bool = False
    """Whether most of it is for ranks whose recording had not begun."""
    exposed_share: Ratio | None = None
    """The waiting of all exposed communication."""
    caused_share: Ratio | None = None
    """The waiting for this rank, of the windows of those that wait."""
    late_ns: Ns | None = None
    """How much later than the first it enters."""
    extra_ns: Ns | None = None
    """What it spends in ``bound`` more than the others, in a step."""
    mostly_for: int | None = None
    """The rank that most of the time is waited for, though not steadily."""


class Wait(Row, frozen=True, kw_only=True):
    """One rank waits for another."""

    rank: int
    """The rank that waits."""
    waits_for: int = msgspec.field(name="for")
    """The rank that it waits for."""
    waiting_ns: Ns
    """How long."""
    exposed_ns: Ns
    """The part of it that nothing else hid."""


class Messages(Row, frozen=True, kw_only=True):
    """Waiting in sends and receives."""

    ranks: Sequence[int]
    """The ranks that have matched ones."""
    exposed_waiting_ns: Ns
    """Their waiting that nothing else hid."""
    window_ns: Ns
    """Their windows, summed."""


class Parallelism(Row, frozen=True, kw_only=True):
    """A way in which the work is spread over devices."""

    kind: str
    """``DDP``, ``FSDP``, ``tensor parallel``..."""
    basis: Literal["named", "inferred"]
    """Whether a name says it, or the mix of collectives suggests it."""
    sign: Fact | None = None
    """What shows it."""


class StreamRow(Row, frozen=True, kw_only=True):
    """Something on a device that could overlap and does not."""

    device: int
    """The report's id of the device."""
    kind: Literal["copies", "collectives", "alone", "turns", "unordered"]
    """On the compute stream: copies, collectives; copies alone on their own; streams in turns; copies without wait."""
    stream: int
    """The stream's number."""
    ns: Ns
    """The most that overlap could bring; of ``unordered``, the time of the copies."""
    count: Count
    """Operations."""
    window_ns: Ns
    """The device's window."""
    pageable: Count = 0
    """Copies among them from or to pageable memory."""
    default: bool = False
    """Whether one of the streams is the default stream."""


class RankComparison(Row, frozen=True, kw_only=True):
    """How ranks were compared, and who waits for whom; without a comparison, only what each device shows."""

    parallelism: Sequence[Parallelism]
    """How the work is spread."""
    streams: Sequence[StreamRow]
    """What could overlap on a device."""
    matched: Count | None = None
    """Collectives that were found on several ranks; None where there are no ranks to compare."""
    not_compared: Literal["one-rank", "no-common-collective"] | None = None
    """Why ranks were not compared: all recordings are of one rank, or share no collective."""
    unmatched: Count = 0
    """Collectives without a partner."""
    unmatched_exposed_ns: Ns = 0
    """Exposed time in those, which may be waiting or transfer."""
    unrecorded_waiting_ns: Ns = 0
    """Exposed waiting for ranks whose recording had not begun."""
    step_spread_ns: Ns | None = None
    """The longest mean step of a rank minus the shortest."""
    critical_rank: int | None = None
    """The rank that waits least for others."""
    waits: Sequence[Wait] = ()
    """Who waits for whom, longest first."""
    waits_left_out: Count = 0
    """Shorter ones."""
    messages: Messages | None = None
    """The waiting in sends and receives."""
    repeated: Sequence[int] = ()
    """Ranks with several recordings, of which the first is compared."""
    numbered_by: Literal["file-order"] | None = None
    """Where the numbers come from, if no file says its rank."""
