"""The median step, how the steps were found, and what was recorded before and after them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.model.report_verdict import Step
from profkit.timeline.view import TraceView

__all__ = ["median_step", "step_times"]


def step_times(views: Sequence[TraceView]) -> Step:
    """The median step of some traces as it was recorded; what it is without a profiler is left open."""
    stepped = [view for view in views if view.steps.count]
    around = [_around(view) for view in views if len(view.trace.operations)]
    return Step(
        recorded_ns=_recorded_ns(stepped),
        unprofiled_ns=None,
        source="recorded",
        found_by=stepped[0].steps.found_by if stepped else "none",
        startup_ns=max((before for before, _ in around), default=None),
        teardown_ns=max((after for _, after in around), default=None),
        mfu=None,
        hfu=None,
    )


def median_step(parts: Sequence[Step], device_ns: Sequence[float]) -> Step | None:
    """The steps of several files as those of one report.

    Args:
        parts: The step of each file.
        device_ns: The device time of each kept step of the report, the mean over its devices.
    """
    if not parts:
        return None
    known = [part for part in parts if part.startup_ns is not None]
    return Step(
        recorded_ns=round(float(np.median(device_ns))) if len(device_ns) else None,
        unprofiled_ns=None,
        source="recorded",
        found_by=next((part.found_by for part in parts if part.found_by != "none"), "none"),
        startup_ns=max((part.startup_ns or 0 for part in known), default=None),
        teardown_ns=max((part.teardown_ns or 0 for part in known), default=None),
        mfu=None,
        hfu=None,
    )


def _recorded_ns(stepped: Sequence[TraceView]) -> int | None:
    """The median over the kept steps of their mean device time over the devices."""
    devices = sum(len(view.trace.devices) for view in stepped)
    count = min((view.steps.count for view in stepped), default=0)
    if not devices or not count:
        return None
    total = sum(view.steps.tile_ns[:, :count].sum(axis=0) for view in stepped)
    kept = np.logical_and.reduce([view.kept_steps[:count] for view in stepped])
    return round(float(np.median(np.asarray(total)[kept] / devices))) if kept.any() else None


def _around(view: TraceView) -> tuple[int, int]:
    """Recorded time before the first step and after the last, or before the first operation and after the last."""
    if view.steps.count:
        begun, over = int(view.steps.tile_start_ns.min()), int(view.steps.tile_end_ns.max())
        begun, over = min(begun, int(view.steps.start_ns[0])), max(over, int(view.steps.end_ns[-1]))
    else:
        hulls = [view.window_hull(d) for d in range(len(view.windows)) if len(view.windows[d])]
        begun = min((begin for begin, _ in hulls), default=view.span[0])
        over = max((end for _, end in hulls), default=view.span[1])
    return max(begun - view.span[0], 0), max(view.span[1] - over, 0)
