"""A step without any device: how long the host takes for it, and with what."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind, Trace
from profkit.model.findings import Fact
from profkit.readers.registry import role_of
from profkit.timeline.intervals import Intervals
from profkit.timeline.launches import launch_calls
from profkit.timeline.range_names import fetches_data, matching
from profkit.timeline.steps import leading_steps_left_out
from profkit.timeline.view import TraceView

__all__ = ["PARTS", "host_facts", "ran_on_cpu"]

PARTS: Final = ("input", "optimizer", "backward", "forward", "communication", "rest")
"""What a step consists of; where two run at once on several threads, the first of them counts."""
_ON_THE_HOST: Final = ("gloo:", "mpi:")
"""How collectives are called that the host itself makes."""
_MOST_OPERATORS: Final = 3

_ONLY_ON_CPU: Final = ("aten::mkldnn_", "mkldnn::", "onednn::", "aten::_nnpack", "_for_cpu", "fbgemm::linear")
_ONLY_ON_GPU: Final = (
    "nccl:",
    "rccl:",
    "aten::cudnn_",
    "aten::_cudnn_",
    "aten::miopen_",
    "CudnnBackward",
    "cuda::",
)
"""Parts of names of operators that the dispatcher of PyTorch registers for one kind of device alone."""
_GPU_BACKENDS: Final = ("nccl", "rccl")

_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "optimizer": ("optimizer", "optim", "Optimizer.step", "Optimizer.zero_grad"),
    "backward": ("backward", "bwd", "autograd::engine::evaluate_function"),
    "forward": ("forward", "fwd", "loss"),
}


def ran_on_cpu(trace: Trace) -> bool:
    """Whether nothing ran on a GPU: none is there, or operators that only a CPU has ran, and nothing was launched.

    A job whose collectives are NCCL's used a GPU, though the file has no row of it.
    """
    named = partial(_any_named, trace)
    facts = trace.source.facts
    if len(trace.operations) or named(_ONLY_ON_GPU) or facts.get("backend") in _GPU_BACKENDS:
        return False
    if launch_calls(trace, trace.calls.name).any():
        return False
    is_there = facts.get("gpus", "0") != "0" or any(key.startswith(("cuda", "hip")) for key in facts)
    # An nsys export without a GPU may be of a process that started another one on it.
    return named(_ONLY_ON_CPU) or not (
        is_there or len(trace.calls) or role_of(trace.source.format) == "timeline"
    )


def _any_named(trace: Trace, parts: tuple[str, ...]) -> bool:
    return any(part in trace.strings[name] for name in np.unique(trace.ranges.name) for part in parts)


def host_facts(view: TraceView) -> list[Fact]:
    """What the host's time goes to: the step first, then its parts with their busiest operators, longest first.

    Times are per step. Without steps the whole recording is one, and without any range there is nothing to say.
    """
    ranges, steps = view.trace.ranges, view.steps
    kept = np.flatnonzero(view.kept_steps) if steps.count else np.empty(0, np.int64)
    # Steps without a device have no tiles that could tell warm-up.
    kept = kept[leading_steps_left_out(steps.end_ns[kept] - steps.start_ns[kept]) :]
    start, end = (
        (steps.start_ns[kept], steps.end_ns[kept])
        if len(kept)
        else np.array([[view.span[0]], [view.span[1]]])
    )
    whole = Intervals.of(start, end)
    if not len(ranges) or not whole.total_ns:
        return []
    count = len(start)
    parts = _parts(view, whole)
    self_ns = _self_ns(view)
    facts = [
        Fact(
            "host-part",
            {
                "part": name,
                "steps": steps.count and count,
                "part_ns": round(part.total_ns / count),
                "part_share": part.total_ns / whole.total_ns,
                **_busiest(view, part, self_ns, count),
            },
        )
        for name, part in parts.items()
        if part.total_ns
    ]
    facts.sort(key=lambda fact: -float(str(fact.params["part_share"])))
    step = {"step_ns": round(whole.total_ns / count), "steps": steps.count and count}
    return [
        Fact("host-step", step | {f"{n}_share": p.total_ns / whole.total_ns for n, p in parts.items()}),
        *facts,
    ]


def _parts(view: TraceView, whole: Intervals) -> dict[str, Intervals]:
    """The instants of each part: by data ranges, phases and marks of torch, else by what operators tell."""
    ranges, strings = view.trace.ranges, view.trace.strings
    named = ~view.steps.rows & (ranges.kind != RangeKind.PYTHON) & (ranges.kind != RangeKind.OVERHEAD)
    found: dict[str, Intervals] = {}
    left = whole
    for part in PARTS[:-1]:
        if part == "communication":
            rows = matching(strings, ranges.name, lambda name: name.startswith(_ON_THE_HOST))
        elif part == "input":
            rows = (
                named & (ranges.kind == RangeKind.ANNOTATION) & matching(strings, ranges.name, fetches_data)
            )
        else:
            rows = named & matching(strings, ranges.name, partial(_starts_with, words=_WORDS[part]))
        if part == "forward" and not rows.any():
            # What operators do outside of the other parts.
            rows = ranges.kind == RangeKind.OPERATOR
        mine = Intervals.of(ranges.start_ns[rows], ranges.end_ns[rows])
        if part == "optimizer":
            mine = mine.difference(_of_closures(view, named, mine))
        found[part] = mine.intersection(left)
        left = left.difference(found[part])
    return {**found, "rest": left}


def _of_closures(view: TraceView, named: NDArray[np.bool_], optimizer: Intervals) -> Intervals:
    """Forward and backward within the optimizer's step: it calls a closure that computes the loss, as Lightning's does."""
    ranges, words = view.trace.ranges, _WORDS["forward"] + _WORDS["backward"]
    rows = named & matching(view.trace.strings, ranges.name, partial(_starts_with, words=words))
    rows &= optimizer.contains(ranges.start_ns) & optimizer.contains(
        np.maximum(ranges.end_ns - 1, ranges.start_ns)
    )
    return Intervals.of(ranges.start_ns[rows], ranges.end_ns[rows])


def _starts_with(name: str, words: tuple[str, ...]) -> bool:
    """Some programs write their marks ``## backward ##``."""
    text = name.strip("# ")
    return any(
        text == word or text.startswith((f"{word}#", f"{word}:", f"{word}.", f"{word}/", f"{word} "))
        for word in words
    )


def _self_ns(view: TraceView) -> NDArray[np.int64]:
    """Time inside each operator and outside of those within it; 0 of other ranges."""
    ranges, parent = view.trace.ranges, view.launches.operators.parent
    operators = ranges.kind == RangeKind.OPERATOR
    own = np.where(operators, ranges.end_ns - ranges.start_ns, 0).astype(np.int64)
    nested = np.flatnonzero(operators & (parent >= 0))
    inside = np.zeros(len(ranges), np.int64)
    np.add.at(inside, parent[nested], own[nested])
    left: NDArray[np.int64] = np.maximum(own - inside, 0)
    return left


def _busiest(
    view: TraceView, part: Intervals, self_ns: NDArray[np.int64], steps: int
) -> dict[str, list[str | int]]:
    ranges = view.trace.ranges
    rows = np.flatnonzero((self_ns > 0) & part.contains(ranges.start_ns))
    names, which = np.unique(ranges.name[rows], return_inverse=True)
    total = np.bincount(which, self_ns[rows], len(names))
    order = np.argsort(-total, kind="stable")[:_MOST_OPERATORS]
    texts: list[str | int] = [view.trace.strings[i] for i in names[order].tolist()]
    times: list[str | int] = [round(ns / steps) for ns in total[order].tolist()]
    return {"operators": texts, "operator_times": times}
