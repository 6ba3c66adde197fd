"""What the recorder took of the host's time: a cost for each event, as slow as the host of the recording was."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.analysis.whatif.program import Program
from profkit.analysis.whatif.replay import RecorderCost
from profkit.model import RangeKind, Trace

__all__ = ["recorder_cost"]

_CALL_SHARE: Final = 0.5
"""A call costs the recorder about half of what a range does."""
_OF_CALLS: Final = 0.25
"""Without operators (nsys alone) a call costs this share of its host time. Seen: 0.1 us a call in tiny_mlp, 1 in
dataloader_stall and lstm_loop, 3 to 5 in optimizer_many_small and mlp_tiny_eager, 7 or more in sync_item,
item_host_bound, ddp and convnet_fp16_channels_last."""
_PLAIN_US: Final = 1.5
"""Without the recorder, the host's time for each event is this times the square root of the recorded one, both in us.

The same host was two to three times as slow within minutes, so a slow recording says little of a plain run: its time
is drawn half-way, in proportion, to the usual one. Fitted on 27 steps whose plain times are known and that the host
limits (reports/advice, reports/calibration, tests/data); left out in turn, their median error is 8 %, the root of the
mean square 12 %, the largest 45 %. With a cost that does not grow with the recorded time it is 25 % (root mean square).
"""
_MOST_US: Final = 8.0
"""No recorder took more for an event: what is left of a slow one is the program's."""
_USUAL_US: Final = 6.7
"""What an event usually takes in a recording, for steps with too few of them to tell."""
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
    each = min(max(recorded - _PLAIN_US * recorded**0.5, 0.0), _MOST_US) * 1_000
    return RecorderCost(each, each * _CALL_SHARE)


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
