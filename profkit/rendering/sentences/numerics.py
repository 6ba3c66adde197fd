"""What the numerics section says: of values that are not finite, of lost gradients and swallowed updates."""

from __future__ import annotations

from typing import Final, cast

from profkit.comparison.rows import NumericsComparison
from profkit.model.report_numerics import TensorKind
from profkit.rendering.sentences.wording import Params, Table, Template, say

__all__ = ["FINDINGS", "TENSORS", "norm_text", "numerics_sentence"]

TENSORS: Final[dict[TensorKind, str]] = {
    "activation": "output",
    "gradient": "output's gradient",
    "weight_gradient": "gradient",
}
"""Which tensor of a module or parameter."""

_MANY: Final[dict[TensorKind, str]] = {
    "activation": "output values",
    "gradient": "gradients at the output",
    "weight_gradient": "gradients",
}


def _first_place(value: str, remedy: str) -> Template:
    """Where an infinity or NaN is first."""

    def told(params: Params) -> str:
        clean = params["clean_step"]
        values: Params = {
            **params,
            "value": value,
            "tensor": TENSORS[cast(TensorKind, params["tensor"])],
            "clean": "" if clean is None else f" (step {clean} has none)",
        }
        text = "The {tensor} of `{name}` is the first with {value}, in step {step}{clean}; {count:sampled step} with it. "
        return say(text, values) + remedy

    return told


def _below(params: Params) -> str:
    tensor = cast(TensorKind, params["tensor"])
    remedy = "Keep this module in fp32, or scale it."
    if params["dtype"] == "fp16":
        gradients = "Scale the loss with a GradScaler, or use bf16."
        remedy = "Use bf16, or keep this module in fp32." if tensor == "activation" else gradients
    values: Params = {**params, "what": _MANY[tensor]}
    text = (
        "{share} of the {what} of `{name}` that are not zero are below {dtype}'s range, and {zero_share} of all are zero. "
        "The same holds for {count} of {tensors:tensor}. "
    )
    return say(text, values) + remedy


FINDINGS: Final[Table] = {
    "nan-found": _first_place("NaN", "Record with every=1 up to this step to see where it begins."),
    "inf-found": _first_place("an infinity", "Scale it down, or compute it in bf16 or fp32."),
    "below-range": _below,
    "updates-swallowed": (
        "{dtype} weights swallow {share} of the updates ({worst_share} of those of `{name}`): keep an fp32 master copy."
    ),
    "steps-skipped": (
        "The GradScaler skipped {count:step} of {steps}; its scale went from {first} to {last}."
    ),
}


def norm_text(norm: float | None) -> str:
    """A norm, or that it is not finite."""
    return "not finite" if norm is None else f"{norm:.6g}"


def numerics_sentence(numerics: NumericsComparison) -> str:
    """Where two recordings of numerics part."""
    counts: Params = {"steps": numerics.steps, "tensors": numerics.tensors}
    if not numerics.tensors:
        return "The recordings have no step and tensor in common: record both with the same model and the same every=."
    if not numerics.changes:
        return say("The recordings agree within rounding, over {steps:step} and {tensors:tensor}.", counts)
    first = numerics.changes[0]
    values: Params = {
        "name": first.name,
        "tensor": TENSORS[first.tensor],
        "step": first.step,
        "before": norm_text(first.before),
        "after": norm_text(first.after),
        "of": "" if first.rank is None else f" of rank {first.rank}",
    }
    return say(
        "The recordings diverge in step {step} at the {tensor} of `{name}`{of}: its norm is {before} before, {after} after.",
        values,
    )
