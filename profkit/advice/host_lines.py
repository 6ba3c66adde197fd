"""A rule about the functions that hold the host, where a recording has Python's frames."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.advice.rule import Case, Evidence, Rule
from profkit.model import RangeKind
from profkit.simulation.preconditions import graphed
from profkit.timeline.call_sites import forward_of_launches, frame_text, frames_at
from profkit.timeline.range_names import is_torchs_frame
from profkit.units import duration_text, noun_text, percent_text

__all__ = ["RULES"]

_HOST_IS_LIMIT: Final = 0.9
"""Of the step."""
_NOTABLE: Final = 0.1
"""Of the host's time: a function with less is one of many."""
_ALL: Final = 0.9
"""Of the host's time: one function with more is the step itself."""
_MOST_LINES = 4


def _lines(case: Case) -> Evidence | None:
    facts, view, program = case.facts, case.view, case.step.program
    host_ns = case.step.unchanged.host_ns
    if not (view.trace.ranges.kind == RangeKind.PYTHON).any() or facts.compiled.any() or graphed(case.step):
        return None
    if not view.steps.count or host_ns < _HOST_IS_LIMIT * case.step.plain_ns:
        return None
    # Each launch counts once, with what led to it; the optimizer has rules of its own.
    tokens, first = np.unique(facts.token, return_index=True)
    first, tokens = first[~facts.optimizer[first]], tokens[~facts.optimizer[first]]
    spent = np.maximum((program.gap_ns + program.own_ns - program.kept_ns)[tokens], 0)
    thread, time = forward_of_launches(view, facts.program.row[first])
    frames = frames_at(view, thread, time, _is_function)
    names, which = np.unique(frames, return_inverse=True)
    total, launches = np.bincount(which, spent), np.bincount(which)
    order = [at for at in np.argsort(-total, kind="stable").tolist() if names[at] >= 0]
    order = [at for at in order if total[at] >= _NOTABLE * host_ns][:_MOST_LINES]
    held = float(total[order].sum())
    if not order or (len(order) == 1 and held > _ALL * host_ns):
        return None
    strings = view.trace.strings
    seen = [
        f"{frame_text(strings[names[at]])}: {duration_text(float(total[at]))} for {noun_text(int(launches[at]), 'launch', 'launches')}"
        for at in order
    ]
    functions = "one function spends" if len(order) == 1 else f"{len(order)} functions spend"
    backward = ", backward included" if facts.trains else ""
    return Evidence(
        f"The step is host-bound: {functions} {duration_text(held)} per step launching{backward}, "
        f"{percent_text(held / host_ns)} of the host's time.",
        seen,
        None,
    )


def _is_function(name: str) -> bool:
    """A frame of the program or of a library besides torch, not the script's own top level."""
    return not is_torchs_frame(name) and not name.endswith(": <module>")


RULES = (
    Rule(
        "host-lines", "Launch less in the functions that take most host time", _lines,
        "Begin with the first one: fuse its operators, batch its loop, or compile this function alone.",
        "attend = torch.compile(attend)   # the function named first",
        "The function has fewer launches, and the step is shorter.",
        ("Times are without the recorder's own cost, which an estimate takes off.",),
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    ),
)  # fmt: skip
