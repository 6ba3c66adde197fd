"""What a step would be without its recorder, where nobody measured it: an estimate by replay, said as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.model.findings import Fact
from profkit.report.verdict import verdict_row
from profkit.simulation.predict import find_step
from profkit.timeline.profiler_cost import with_profiler_cost
from profkit.timeline.view import TraceView

__all__ = ["unprofiled_doubt"]

_NOTABLE: Final = 0.05
"""A recorder's cost under this share of the step is not worth a sentence."""


def unprofiled_doubt(views: Sequence[TraceView]) -> Fact | None:
    """The step's time and bound without the recorder's usual cost, for a recording of one device.

    Returns:
        None where the step cannot be replayed or the recorder hardly matters.
    """
    if len(views) != 1 or len(views[0].trace.devices) != 1 or not views[0].steps.count:
        return None
    view = views[0]
    step = find_step(view, 0)
    recorded_ns = int(view.steps.tile_ns[0, view.median_step(0)])
    if step is None or not 0 < step.plain_ns < (1 - _NOTABLE) * recorded_ns:
        return None
    step_ns = round(step.plain_ns)
    verdict = verdict_row([with_profiler_cost(view, step_ns)], plain_step_ns=step_ns, undecided=None)
    return Fact("unprofiled-estimate", {"step_ns": step_ns, "bound": verdict.bound})
