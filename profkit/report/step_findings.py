"""What a person should know of the steps: how they were found, and whether they are of one kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import Finding, Severity
from profkit.model.findings import Param
from profkit.model.names import SHARES, FoundBy
from profkit.model.report_time import Window
from profkit.model.states import State
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import largest_share, shares_row

__all__ = ["StepHealth", "idle_steps", "step_findings", "too_few_whole"]

_UNLIKE: Final = 1.3
"""Kinds of steps whose median lengths differ by more than this are told apart."""

_MOST_KINDS: Final = 6

_FEWEST_WHOLE: Final = 2

_OUTLIER: Final = 1.5
"""A kept step that is so many times as long as the median is named, or else one that is so many times shorter."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepHealth:
    """The steps of a trace."""

    count: int
    found_by: FoundBy
    damaged: NDArray[np.bool_]
    warm_up: int
    """Whole steps before the first that is kept."""
    operations: NDArray[np.int64]
    """How many each whole step has."""
    kinds: Sequence[Finding]
    """That they are of several kinds."""
    leaves_weights_out: bool

    @classmethod
    def of(cls, view: TraceView) -> StepHealth:
        """Those of one trace, with its window."""
        steps = view.steps
        first_kept = int(np.argmax(view.kept_steps)) if steps.count else 0
        per_step = np.bincount(view.step_of_operation + 1, minlength=steps.count + 1)[1:]
        return cls(
            count=steps.count,
            found_by=steps.found_by,
            damaged=steps.damaged,
            warm_up=int(np.count_nonzero(~steps.damaged[:first_kept])),
            operations=per_step[~steps.damaged],
            kinds=_kinds(view) if steps.count else (),
            leaves_weights_out=not steps.count and _leaves_weights_out(view),
        )


def step_findings(found: Sequence[StepHealth], window: Window, devices: int) -> list[Finding]:
    """How the steps of some traces were found, where nobody marked them, and their kinds where these differ.

    Args:
        found: Those of each trace, of which some has steps: all have the same, and the first that has some tells.
        window: The steps of all of them.
        devices: How many devices they ran on.
    """
    stepped = [steps for steps in found if steps.count]
    first, findings = stepped[0], []
    if first.warm_up:
        params: dict[str, Param] = {"steps": first.count}
        findings.append(Finding("warm-up-steps", Severity.INFO, count=first.warm_up, params=params))
    if first.found_by == "period":
        findings.append(Finding("steps-by-period", Severity.INFO, count=first.count))
    damaged = np.logical_or.reduce([_padded(steps.damaged, first.count) for steps in stepped])
    if damaged.any():
        numbers = np.flatnonzero(damaged).tolist()
        params = {"steps": first.count, "numbers": numbers}
        findings.append(Finding("steps-damaged", Severity.WARNING, count=len(numbers), params=params))
    return [*findings, *(first.kinds or _outliers(window, devices))]


def _leaves_weights_out(view: TraceView) -> bool:
    """Whether copies of weights precede a window without steps."""
    began = [
        view.trace.operations.start_ns[view.trace.operations.device == device].min()
        for device, window in enumerate(view.windows)
        if len(window)
    ]
    hulls = [view.window_hull(device)[0] for device, window in enumerate(view.windows) if len(window)]
    return any(first < begin for first, begin in zip(began, hulls, strict=True))


def too_few_whole(found: Sequence[StepHealth]) -> tuple[int, int]:
    """How many steps are damaged and of how many, where fewer than two whole ones are left of several; else zeros."""
    for steps in found:
        damaged = int(steps.damaged.sum())
        if 2 * damaged > steps.count and steps.count - damaged < _FEWEST_WHOLE:
            return damaged, steps.count
    return 0, 0


def idle_steps(found: Sequence[StepHealth]) -> tuple[int, int]:
    """How many steps have no work on any device, of how many; of recordings some of whose steps have some."""
    counts = [steps.operations for steps in found if steps.operations.any()]
    return sum(int((count == 0).sum()) for count in counts), sum(map(len, counts))


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


def _outliers(window: Window, devices: int) -> list[Finding]:
    """Kept steps that are far longer than the median, which is what the headline says; without any, far shorter ones."""
    kept = [step for step in window.steps if step.kept]
    length = np.array([step.device_ns for step in kept]) / max(devices, 1)
    median = float(np.median(length)) if len(kept) else 0.0
    if len(kept) < 3 or not median:
        return []
    longer = length > _OUTLIER * median
    shorter = not longer.any()
    odd = length * _OUTLIER < median if shorter else longer
    if not odd.any():
        return []
    shares = np.array([[step.shares[share] for share in SHARES] for step in kept]) / max(devices, 1)
    sign = -1 if shorter else 1
    change = sign * (shares[odd].mean(axis=0) - np.median(shares, axis=0))
    farthest, most = int(np.argmax(sign * length)), int(np.argmax(change))
    code, names = (
        ("steps-shorter", ("shortest_ns", "less_ns"))
        if shorter
        else ("step-outlier", ("longest_ns", "more_ns"))
    )
    params: dict[str, Param] = {
        "name": kept[farthest].name,
        names[0]: int(length[farthest]),
        "median_ns": int(median),
        "share": SHARES[most],
        names[1]: round(float(change[most])),
    }
    return [Finding(code, Severity.INFO, count=int(odd.sum()), params=params)]
