"""Optimizers in few kernels, and gradients that are dropped instead of zeroed."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.kernel_class import Family
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts

__all__ = [
    "drop_gradients",
    "foreach_optimizer",
    "fuse_optimizer",
    "gradients_accumulated",
    "optimizer_style",
    "parameters",
    "zeroing",
]

Flags = NDArray[np.bool_]

_FUSED_BYTES: Final = {"adam": 28.0, "sgd": 20.0}
"""Bytes a parameter in fp32, in one pass (docs/models.md, optimizers)."""
_FUSED_TRAFFIC: Final = 0.42
"""Bytes of a fused Adam over those of its foreach passes: 28 of 60 to 90 a parameter, counted."""
_FOREACH_KERNELS: Final = 8.0
"""Kernels over lists for each that a fused optimizer launches."""
_KERNELS_A_PARAMETER: Final = {"adam": 7.0, "sgd": 2.5}
_HOST: Final = {
    "adam": {"single": (0.0, 10.4), "foreach": (25.0, 1.6), "fused": (12.0, 0.6)},
    "sgd": {"single": (0.0, 4.0), "foreach": (15.0, 1.1), "fused": (12.0, 0.6)},
}
"""What an optimizer's step takes of the host, in usual launches: a part of its own, and for each parameter. Seen in 40
first sides of reports/advice and in tests/data, 8 to 148 parameters: Adam by itself 9 to 14 for each; foreach 45 to 100
for 28 and 126 for 40, SGD 30 to 37 for 20; fused 25 for 28, 52 for 40 and 56 to 93 for 148."""
_RENEWED: Final = 0.5
"""The host's time for zeroing that stays, as gradients are allocated anew (no more came of it on steps that wait for their
host: zero_grad_gpt 1.04, zeroed_small_gpt 0.99 of reports/advice)."""
_FEWEST_KERNELS: Final = 6
_TENSORS_A_LAUNCH: Final = 30.0


def optimizer_style(facts: StepFacts) -> str | None:
    """``single`` (kernels for every parameter), ``foreach``, ``fused``; None without an optimizer.

    Returns:
        ``single`` only where a handful of kernels recur for each of several parameters.
    """
    rows = facts.optimizer & ~facts.zeroing
    if not rows.any():
        return None
    names = [_text(facts, row) for row in np.flatnonzero(rows).tolist()]
    if any("fused" in n and "multi_tensor" in n for n in names):
        return "fused"
    if any("multi_tensor_apply" in n for n in names):
        # A list copied in inference is no optimizer.
        return "foreach" if facts.trains or len(names) >= _FEWEST_KERNELS else None
    return "single" if len(names) >= _FEWEST_KERNELS and not facts.compiled[rows].any() else None


def parameters(facts: StepFacts) -> tuple[float, float]:
    """How many tensors the optimizer updates, and their elements together (NaN where shapes are unknown)."""
    rows = np.flatnonzero(facts.optimizer & ~facts.zeroing)
    style, kind = optimizer_style(facts), _kind(facts)
    # Adam divides once for each parameter.
    divided = sum("addcdiv" in _text(facts, row) for row in rows.tolist())
    single = float(divided or len(rows) / _KERNELS_A_PARAMETER[kind])
    count = single if style == "single" else gradients_accumulated(facts)
    by_name: dict[str, dict[int, float]] = {}
    for row in rows.tolist():
        if facts.operators[row] and facts.inputs[row]:
            calls = by_name.setdefault(facts.operators[row][0], {})
            calls[int(facts.operator_row[row])] = facts.inputs[row][0]
    sums = [sum(calls.values()) for name, calls in by_name.items() if "addcdiv" in name or "addcmul" in name]
    sums = sums or [sum(calls.values()) for calls in by_name.values()]
    elements = float(np.median(sums)) if sums else math.nan
    return max(count, 1.0), elements


def gradients_accumulated(facts: StepFacts) -> float:
    """How many gradients a backward pass gives; without its nodes, two for each matrix that has three products."""
    ranges, strings = facts.view.trace.ranges, facts.view.trace.strings
    node = np.array([s == "torch::autograd::AccumulateGrad" for s in strings] or [False])[ranges.name]
    steps = max(facts.view.steps.count, 1)
    return float(node.sum()) / steps or float(facts.matrix.sum()) / 3 * 2


def fuse_optimizer(edited: EditedStep) -> None:
    """One pass over all parameters."""
    if optimizer_style(edited.facts) in ("single", "foreach"):
        _rewrite(edited, fused=True)


def foreach_optimizer(edited: EditedStep) -> None:
    """One kernel for each operator and list of parameters."""
    if optimizer_style(edited.facts) == "single":
        _rewrite(edited, fused=False)


def zeroing(facts: StepFacts) -> Flags:
    """Kernels that zero gradients, or add to gradients that were zeroed.

    Without the range of ``zero_grad``, fills in the phase of the optimizer are those of gradients.
    """
    memsets = np.array([k is None for k in facts.kernels], bool)
    fills = facts.zeroing & (facts.of_family(Family.FILL, Family.OPTIMIZER) | memsets)
    if not fills.any():
        fills = facts.optimizer & facts.of_family(Family.FILL)
    if fills.sum() < 2 and not (fills & facts.zeroing).any():
        return np.zeros(facts.count, bool)
    found: Flags = fills | (facts.named("AccumulateGrad") & facts.of_family(Family.ELEMENTWISE))
    return found


def drop_gradients(edited: EditedStep) -> None:
    """``zero_grad(set_to_none=True)``: nothing is written, and the first gradient is kept instead of added."""
    edited.drop(zeroing(edited.facts), host=_RENEWED)


def _rewrite(edited: EditedStep, *, fused: bool) -> None:
    facts, constants = edited.facts, edited.constants
    rows = np.flatnonzero(facts.optimizer & ~facts.zeroing & edited.alive)
    if not len(rows):
        return
    style, kind = optimizer_style(facts), _kind(facts)
    count, elements = parameters(facts)
    launches = max(1.0, math.ceil(count / _TENSORS_A_LAUNCH)) * (1.0 if fused else _FOREACH_KERNELS)
    device = _device_ns(edited, rows, elements, fused) + launches * constants.start_ns
    if style is None or (style == "foreach" and not fused):
        return
    was, will = (
        fixed + each * count
        for fixed, each in (_HOST[kind][s] for s in (style, "fused" if fused else "foreach"))
    )
    tokens, first = np.unique(facts.token[rows]), int(rows[0])
    host = edited.host_ns(tokens) * min(will / was, 1.0)
    edited.drop(np.isin(np.arange(facts.count), rows[1:]))
    edited.duration_ns[first] = min(device, float(facts.program.duration_ns[rows].sum()))
    edited.give_host(facts.token[[first]], host)


def _device_ns(edited: EditedStep, rows: NDArray[np.int64], elements: float, fused: bool) -> float:
    facts, constants = edited.facts, edited.constants
    bandwidth = facts.gpu.bandwidth_bytes_per_s if facts.gpu else None
    long = float(np.maximum(facts.program.duration_ns[rows] - constants.start_ns, 0).sum())
    if not fused:
        return long
    if bandwidth and not math.isnan(elements):
        streamed = elements * _FUSED_BYTES[_kind(facts)] / (bandwidth * constants.memory) * 1e9
        # Sizes of lists may be recorded in part: one pass is no shorter than its share of the traffic.
        if streamed >= 0.25 * long:
            return min(streamed, long)
    return long * _FUSED_TRAFFIC


def _kind(facts: StepFacts) -> str:
    rows = np.flatnonzero(facts.optimizer & ~facts.zeroing).tolist()
    return "adam" if any("sqrt" in _text(facts, r) or "addcdiv" in _text(facts, r) for r in rows) else "sgd"


def _text(facts: StepFacts, row: int) -> str:
    strings, operations = facts.view.trace.strings, facts.view.trace.operations
    name = int(operations.name[facts.program.row[row]])
    operator = facts.operators[row][0] if facts.operators[row] else ""
    return (strings[name].lower() if name >= 0 else "") + " " + operator
