"""What the recorder took of the host's time: a cost for each event, as slow as the host of the recording was."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.analysis.whatif.replay import RecorderCost
from profkit.model import RangeKind, Trace

__all__ = ["recorder_cost"]

_CALL_SHARE: Final = 0.5
"""A call costs the recorder about half of what a range does."""
_NSYS: Final = RecorderCost(range_ns=2_000, call_ns=2_000)
"""nsys alone: gpt_bf16 needs 1 to 2 us a call, tiny_mlp 0.3, sync_item and item_host_bound 7 (reports/calibration)."""
_FIXED_NS: Final = 1_500.0
_SLOWNESS: Final = 3.5
"""Ranges cost 2 to 6 us on the same machine within minutes, and so did everything: a recorded aten::as_strided, which
does nothing but make a view, took 0.3 to 1.4 us. Fitted on the fit part of reports/calibration and on gpt_bf16,
gpt_bf16_compile, tiny_mlp, dataloader_stall and sync_item of tests/data, whose plain times are known."""
_USUAL_VIEW_NS: Final = 800.0
_FEWEST: Final = 10


def recorder_cost(trace: Trace, factor: float = 1.0) -> RecorderCost:
    """What the recorder of a trace took for each host event.

    Args:
        trace: The recording; where it has operators (torch.profiler, emit_nvtx), the shortest of them show how slow the
            host was.
        factor: How much more or less to assume.
    """
    operators = trace.ranges.kind == RangeKind.OPERATOR
    if trace.source.format == "nsys" and not operators.any():
        return RecorderCost(_NSYS.range_ns * factor, _NSYS.call_ns * factor)
    named = (
        np.array([s == "aten::as_strided" for s in trace.strings] or [False])[trace.ranges.name] & operators
    )
    lengths = (trace.ranges.end_ns - trace.ranges.start_ns)[named]
    view = float(np.median(lengths)) if len(lengths) >= _FEWEST else _USUAL_VIEW_NS
    each = (_FIXED_NS + _SLOWNESS * min(view, 2_000.0)) * factor
    return RecorderCost(each, each * _CALL_SHARE)
