"""What the recorder took of the host's time: a cost for each event, as slow as the host of the recording was."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.analysis.whatif.program import LAUNCH, Program
from profkit.analysis.whatif.replay import RecorderCost
from profkit.model import RangeKind, Trace

__all__ = ["recorder_cost"]

_CALL_SHARE: Final = 0.5
"""A call costs the recorder about half of what a range does."""
_OF_CALLS: Final = 0.25
"""Without operators (nsys alone) a call costs this share of its host time. Seen: 0.1 us a call in tiny_mlp, 1 in
dataloader_stall and lstm_loop, 3 to 5 in optimizer_many_small and mlp_tiny_eager, 7 or more in sync_item,
item_host_bound, ddp and convnet_fp16_channels_last."""
_LAUNCH_US: Final = 3.7
"""What the call that launches a kernel takes without a recorder. What it was recorded with beyond that is the recorder's,
which takes as much of every other event. Fitted on 27 steps of both studies in reports/advice that the host limits: root
mean square error of their plain times 14 %. But where one launch in three is of generated code, a step known to take 27
ms comes out at 34."""
_PLAIN_US: Final = 1.5
"""The other sign: without the recorder, the host's time for each event is this times the square root of the recorded one,
both in us. Fitted on the first study and the shared recordings: 12 % off there (root mean square), 23 % on the second.
Neither tells a slow program from a slow recorder well, so the mean of both is taken."""
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
        each = min(_OF_CALLS * _typical_us(program, 1.0), _MOST_US) * 1_000
        return RecorderCost(each, each)
    recorded = _typical_us(program, _CALL_SHARE)
    beyond = (_launch_us(trace, program) - _LAUNCH_US, recorded - _PLAIN_US * recorded**0.5)
    each = sum(min(max(one, 0.0), _MOST_US) for one in beyond) / len(beyond) * 1_000
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
    host = program.gap_ns - program.input_ns - program.allocation_ns + program.own_ns
    rows = np.flatnonzero(events >= 1)
    if events[rows].sum() < _FEWEST:
        return _USUAL_US
    rows = rows[np.argsort(host[rows] / events[rows], kind="stable")]
    reached = np.cumsum(events[rows])
    kept = rows[: max(int(np.searchsorted(reached, _USUAL_SHARE * reached[-1])), 1)]
    return float(host[kept].sum() / events[kept].sum()) / 1_000
