"""What the recorder took of the host's time: a cost for each event, as slow as the host of the recording was."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.model import RangeKind, Trace
from profkit.simulation.replay import RecorderCost
from profkit.simulation.step_program import LAUNCH, Program

__all__ = ["recorder_cost"]

_CALL_SHARE: Final = 0.5
"""A call costs the recorder about half of what a range does."""
_OF_CALLS: Final = 0.25
"""Without operators (nsys alone) a call costs this share of its host time. Seen: 0.1 us a call in tiny_mlp, 1 in
dataloader_stall and lstm_loop, 3 to 5 in optimizer_many_small and mlp_tiny_eager, 7 or more in sync_item,
item_host_bound, ddp and convnet_fp16_channels_last."""
_LAUNCH_US: Final = 3.7
"""What the call that launches a kernel takes without a recorder: one sign of what the recorder takes of every event is what
the median launch was recorded with beyond that."""
_OF_LAUNCH: Final = 0.875
"""How much of that sign counts, and of the other: what the host took for an event, as a slow host slows both. Weights of 0.7
and 0.12 give what the recorder itself takes: what they say of twelve steps of public models is 0.88 to 1.09 of what these
took, in the process that had just recorded them. A host that records is mostly slower than one that does not, for no
reason that the file shows: eleven steps took 0.78 of it in a process of their own, which 1.25 times these weights allow for."""
_OF_EVENTS: Final = 0.15
_MOST_US: Final = 8.0
"""No recorder took more for an event: what is left of a slow one is the program's."""
_USUAL_US: Final = 6.7
"""What an event, and a launch, usually takes in a recording, for steps with too few of them to tell."""
_FEWEST: Final = 10
_USUAL_SHARE: Final = 0.95


def recorder_cost(trace: Trace, program: Program) -> RecorderCost:
    """What the recorder of a trace took for each host event.

    Args:
        trace: The recording; with operators (torch.profiler, emit_nvtx) every event of them costs.
        program: The step as recorded: the time of its typical event shows how slow the host was.
    """
    if not (trace.ranges.kind == RangeKind.OPERATOR).any():
        each = min(max(_OF_CALLS * _typical_us(program, 1.0), 0.0), _MOST_US) * 1_000
        return RecorderCost(each, each)
    launch = max(_launch_us(trace, program) - _LAUNCH_US, 0.0)
    each = min(_OF_LAUNCH * launch + _OF_EVENTS * _typical_us(program, _CALL_SHARE), _MOST_US) * 1_000
    return RecorderCost(each, each * _CALL_SHARE)


def _launch_us(trace: Trace, program: Program) -> float:
    """The median time that a launch was recorded with."""
    rows = program.call[program.kind == LAUNCH]
    rows = rows[rows >= 0]
    if len(rows) < _FEWEST:
        return _USUAL_US
    return float(np.median(trace.calls.end_ns[rows] - trace.calls.start_ns[rows])) / 1_000


def _typical_us(program: Program, call_share: float) -> float:
    """Host time for each event, without the slowest: a pause of the program is none of the recorder's."""
    events = program.ranges + call_share * program.calls
    host = program.gap_ns - program.kept_ns + program.own_ns
    rows = np.flatnonzero(events >= 1)
    if events[rows].sum() < _FEWEST:
        return _USUAL_US
    rows = rows[np.argsort(host[rows] / events[rows], kind="stable")]
    reached = np.cumsum(events[rows])
    kept = rows[: max(int(np.searchsorted(reached, _USUAL_SHARE * reached[-1])), 1)]
    return float(host[kept].sum() / events[kept].sum()) / 1_000
