"""What a step would be without its recorder, where nobody measured it: an estimate by replay, said as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.report.verdict import verdict_row
from profkit.simulation.predict import find_step
from profkit.timeline.profiler_cost import with_profiler_cost
from profkit.timeline.view import TraceView
from profkit.units import duration_text

__all__ = ["unrecorded_caveat"]

_NOTABLE: Final = 0.05
"""A recorder's cost under this share of the step is not worth a sentence."""

_WORDS: Final = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "launch": "held up by launch overhead",
    "sync": "held up by synchronisation",
    "input": "held up by its input",
    "communication": "held up by communication",
    "transfer": "held up by copies",
}


def unrecorded_caveat(views: Sequence[TraceView]) -> str | None:
    """The step's time and verdict without the recorder's usual cost, for a recording of one device.

    Returns:
        A sentence; None where the step cannot be replayed or the recorder hardly matters.
    """
    if len(views) != 1 or len(views[0].trace.devices) != 1 or not views[0].steps.count:
        return None
    view = views[0]
    step = find_step(view, 0)
    start, end = view.windows[0]
    recorded_ns = (end - start) / (view.steps.count - view.first_kept)
    if step is None or not 0 < step.plain_ns < (1 - _NOTABLE) * recorded_ns:
        return None
    bound = verdict_row(
        [with_profiler_cost(view, round(step.plain_ns))], plain_step_ns=round(step.plain_ns), undecided=None
    )["bound"]
    time = duration_text(step.plain_ns)
    return f"Replayed without the recorder's usual cost, the step takes about {time} and is {_WORDS.get(bound, bound)}: an estimate."
