"""What a person should know of the steps: how they were found, and whether they are of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import Finding, Severity
from profkit.model.findings import Param
from profkit.model.names import SHARES, ShareName
from profkit.model.states import SHARE_OF_STATE, State
from profkit.timeline.step_times import step_times
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import largest_share, shares_row

__all__ = ["step_findings", "too_few_whole"]

_UNLIKE: Final = 1.3
"""Kinds of steps whose median lengths differ by more than this are told apart."""

_MOST_KINDS: Final = 6

_FEWEST_WHOLE: Final = 2

_OUTLIER: Final = 1.5
"""A kept step longer than this times the median is named."""


def step_findings(views: Sequence[TraceView]) -> list[Finding]:
    """How the steps of some traces were found, where nobody marked them, and their kinds where these differ."""
    stepped = [view for view in views if view.steps.count]
    if not stepped:
        if not any(len(view.trace.operations) for view in views):
            return []
        times = step_times(views)
        params: dict[str, Param] = {
            "startup_ns": times.startup_ns or 0,
            "teardown_ns": times.teardown_ns or 0,
            "weights": any(_leaves_weights_out(view) for view in views),
        }
        return [Finding("no-steps", Severity.INFO, params=params)]
    steps = stepped[0].steps
    found = []
    if steps.found_by == "period":
        found.append(Finding("steps-by-period", Severity.INFO, count=steps.count))
    damaged = np.logical_or.reduce([_padded(view.steps.damaged, steps.count) for view in stepped])
    if damaged.any():
        numbers = np.flatnonzero(damaged).tolist()
        found.append(
            Finding(
                "steps-damaged",
                Severity.WARNING,
                count=len(numbers),
                params={"steps": steps.count, "numbers": numbers},
            )
        )
    return found + (_kinds(stepped[0]) or _outliers(stepped[0]))


def _leaves_weights_out(view: TraceView) -> bool:
    """Whether copies of weights precede a window without steps."""
    began = [
        view.trace.operations.start_ns[view.trace.operations.device == device].min()
        for device, window in enumerate(view.windows)
        if len(window)
    ]
    hulls = [view.window_hull(device)[0] for device, window in enumerate(view.windows) if len(window)]
    return any(first < begin for first, begin in zip(began, hulls, strict=True))


def too_few_whole(views: Sequence[TraceView]) -> tuple[int, int]:
    """How many steps are damaged and of how many, where fewer than two whole ones are left of several; else zeros."""
    for view in views:
        damaged, steps = int(view.steps.damaged.sum()), view.steps.count
        if 2 * damaged > steps and steps - damaged < _FEWEST_WHOLE:
            return damaged, steps
    return 0, 0


def _padded(flags: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    found = np.zeros(count, bool)
    found[: min(count, len(flags))] = flags[:count]
    return found


def _kinds(view: TraceView) -> list[Finding]:
    """The kinds of the kept steps by their names, most frequent first, where their lengths differ."""
    kinds = np.array(view.steps.kinds)[view.kept_steps]
    length = view.steps.tile_ns.sum(axis=0)[view.kept_steps]
    names, count = np.unique(kinds, return_counts=True)
    order = np.argsort(-count, kind="stable")[:_MOST_KINDS]
    medians = [int(np.median(length[kinds == names[at]])) for at in order]
    if len(names) < 2 or max(medians) <= _UNLIKE * min(medians):
        return []
    states = np.zeros((len(State), len(kinds)), np.int64)
    kept = view.kept_steps
    for device, segments in enumerate(view.segments):
        states += segments.within(
            view.steps.tile_start_ns[device, kept], view.steps.tile_end_ns[device, kept]
        )
    shares = [shares_row(states[:, kinds == names[at]].sum(axis=1)) for at in order]
    params: dict[str, Param] = {
        "kinds": [str(names[at]) for at in order],
        "bounds": [largest_share(own) for own in shares],
        "counts": [int(count[at]) for at in order],
        "medians_ns": medians,
    }
    return [Finding("steps-differ", Severity.INFO, count=len(names), params=params)]


def _grown(view: TraceView, long: NDArray[np.int64]) -> tuple[ShareName, int]:
    """The share that long steps have most more of than the median step, on the average, and how much more."""
    more = dict.fromkeys(SHARES, 0.0)
    for device in range(len(view.trace.devices)):
        start, end = view.steps.tile_start_ns[device], view.steps.tile_end_ns[device]
        usual = np.append(long, view.median_step(device))
        states = view.segments[device].within(start[usual], end[usual])
        grown = (states[:, :-1].mean(axis=1) - states[:, -1]) / len(view.trace.devices)
        for state in State:
            more[SHARE_OF_STATE[state]] += float(grown[state])
    share = max(SHARES, key=lambda each: more[each])
    return share, round(more[share])


def _outliers(view: TraceView) -> list[Finding]:
    """Kept steps that are far longer than the median, which is what the headline says."""
    kept = np.flatnonzero(view.kept_steps)
    length = view.steps.tile_ns[:, kept].sum(axis=0) / max(len(view.trace.devices), 1)
    median = float(np.median(length)) if len(kept) else 0.0
    long = length > _OUTLIER * median
    if len(kept) < 3 or not median or not long.any():
        return []
    longest = int(np.argmax(length))
    grown, more_ns = _grown(view, kept[long])
    params: dict[str, Param] = {
        "name": view.steps.names[kept[longest]],
        "longest_ns": int(length[longest]),
        "median_ns": int(median),
        "share": grown,
        "more_ns": more_ns,
    }
    return [Finding("step-outlier", Severity.INFO, count=int(long.sum()), params=params)]
