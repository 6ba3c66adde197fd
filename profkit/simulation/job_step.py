"""The step of a whole job without its recorder: the mean over its devices, in which every price is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from profkit.model.rows import Interval
from profkit.model.states import BUSY_STATES
from profkit.simulation.unprofiled import Source, UnprofiledStep, unprofiled_step
from profkit.timeline.step_times import step_times
from profkit.timeline.view import TraceView

__all__ = ["Length", "job_step_ns", "mean_length", "recorded_states", "step_length", "weakest"]

Length: TypeAlias = tuple[Interval, Source]
"""A device's step without a profiler, and where that comes from."""


def recorded_states(view: TraceView, device: int, replayed: UnprofiledStep | None) -> NDArray[np.int64]:
    """The recorded step of a device by `State`, its time in each.

    A replay is of one step. As recorded, two in the middle stand for their mean.
    """
    at = view.middle_steps(device)[: None if replayed is None or replayed.source == "recorded" else 1]
    start, end = view.steps.tile_start_ns[device, at], view.steps.tile_end_ns[device, at]
    states: NDArray[np.int64] = view.segments[device].within(start, end).sum(axis=1) // len(at)
    return states


def step_length(view: TraceView, states: NDArray[np.int64], replayed: UnprofiledStep | None) -> Length:
    """The step of a device without a profiler; ``states`` as `recorded_states` gives them."""
    recorded = float(states.sum())
    if replayed is not None:
        off = recorded / replayed.likely_ns if replayed.source == "recorded" else 1.0
        return _scaled(replayed.length_ns, off), replayed.source
    if view.plain_step_ns is not None:
        plain = float(view.plain_step_ns)
        return Interval(low=plain, likely=plain, high=plain), "measured"
    busy = float(states[list(BUSY_STATES)].sum())
    return Interval(low=busy, likely=recorded, high=recorded), "recorded"


def weakest(lengths: Sequence[Length]) -> Source:
    """Where several lengths come from: the weakest of the sources."""
    found = {source for _, source in lengths}
    order: Sequence[Source] = ("estimated", "recorded", "measured")
    return next((source for source in order if source in found), "recorded")


def mean_length(lengths: Sequence[Length], recorded_ns: int | None) -> Interval | None:
    """The mean over the devices.

    Args:
        lengths: One for each device.
        recorded_ns: The median step as recorded, which stands for the unprofiled one where nothing better is known.
    """
    if not lengths:
        return None
    low, likely, high = (
        float(np.mean([getattr(length, name) for length, _ in lengths])) for name in ("low", "likely", "high")
    )
    # The median of the devices' means is not the mean of their medians.
    off = recorded_ns / likely if weakest(lengths) == "recorded" and recorded_ns and likely else 1.0
    length = _scaled(Interval(low=low, likely=likely, high=high), off)
    return Interval(low=round(length.low), likely=round(length.likely), high=round(length.high))


def job_step_ns(
    views: Sequence[TraceView], own: tuple[TraceView, int, UnprofiledStep]
) -> tuple[int, int] | None:
    """The step of all devices together, without a profiler and as recorded: what the report's first lines say.

    Args:
        views: The analysed traces.
        own: A device whose step is known.

    Returns:
        None where there are no steps.
    """
    stepped = [view for view in views if view.steps.count and view.has_timeline]
    recorded_ns = step_times(stepped).recorded_ns
    lengths = []
    for view in stepped:
        for device in range(len(view.trace.devices)):
            known = own[0] is view and own[1] == device
            replayed = own[2] if known else unprofiled_step(view, device)
            lengths.append(step_length(view, recorded_states(view, device, replayed), replayed))
    length = mean_length(lengths, recorded_ns)
    return None if length is None or recorded_ns is None else (round(length.likely), recorded_ns)


def _scaled(length: Interval, factor: float) -> Interval:
    return Interval(low=length.low * factor, likely=length.likely * factor, high=length.high * factor)
