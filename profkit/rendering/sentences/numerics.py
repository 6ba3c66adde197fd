"""What the numerics section says: of values that are not finite, of lost gradients and swallowed updates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, cast

from profkit.comparison.numerics_rows import NumericsComparison
from profkit.model import Severity
from profkit.model.report_numerics import Numerics, TensorKind
from profkit.rendering.sentences.wording import Params, Table, Template, say

__all__ = ["FINDINGS", "TENSORS", "norm_text", "numerics_headline", "numerics_sentence", "scale_text"]

_LARGEST_SPELLED: Final = 16

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


def _first_place(value: str) -> Template:
    """Where an infinity or NaN is first."""

    def told(params: Params) -> str:
        clean, step = params["clean_step"], int(str(params["step"]))
        remedy = (
            "Scale it down." if params["dtype"] != "fp16" else "Scale it down, or compute it in bf16 or fp32."
        )
        if value == "NaN":
            between = step - (-1 if clean is None else int(str(clean))) > 1
            remedy = "Record with every=1 up to this step to see where it begins." if between else ""
        values: Params = {
            **params,
            "value": value,
            "tensor": TENSORS[cast(TensorKind, params["tensor"])],
            "clean": "" if clean is None else f" (step {clean} has none)",
        }
        text = "The {tensor} of `{name}` is the first with {value}, in step {step}{clean}; {count:sampled step} with it. "
        return (say(text, values) + remedy).strip()

    return told


_FROM_FP16: Final = "Scale the loss with a GradScaler, or use bf16."
_FROM_SCALED_FP16: Final = "Begin with a larger scale (GradScaler's init_scale), or use bf16."


def _all_zero(params: Params) -> str:
    values: Params = {**params, "what": _MANY[cast(TensorKind, params["tensor"])]}
    text = "All {what} of `{name}` are zero in each step that was looked at, as in {count} of {tensors:gradient}: "
    lost = f"fp16 loses them. {_FROM_SCALED_FP16 if params['scaled'] else _FROM_FP16}"
    return say(text, values) + (lost if params["fp16"] else "parameters trained through them do not learn.")


def _below(params: Params) -> str:
    tensor = cast(TensorKind, params["tensor"])
    remedy = "Keep this module in fp32, or scale it."
    if params["dtype"] == "fp16":
        gradients = _FROM_SCALED_FP16 if params["scaled"] else _FROM_FP16
        remedy = "Use bf16, or keep this module in fp32." if tensor == "activation" else gradients
    values: Params = {**params, "what": _MANY[tensor]}
    text = (
        "{share} of the {what} of `{name}` that are not zero are below {dtype}'s normal range, and {zero_share} of all are zero. "
        "The same holds for {count} of {tensors:tensor}. "
    )
    return say(text, values) + remedy


def scale_text(scale: float) -> str:
    """A loss scale: ``65536``, and larger powers of two as ``2^20``."""
    power = math.log2(scale) if scale > 0 else 0.0
    return f"2^{power:.0f}" if power > _LARGEST_SPELLED and power.is_integer() else f"{scale:g}"


def _skipped(params: Params) -> str:
    ends = {name: scale_text(float(str(params[name]))) for name in ("first", "last")}
    text = "The GradScaler skipped {count:step} of {steps}; its scale went from {first} to {last}."
    return say(text, {**params, **ends})


FINDINGS: Final[Table] = {
    "nan-found": _first_place("NaN"),
    "inf-found": _first_place("an infinity"),
    "below-range": _below,
    "gradients-zero": _all_zero,
    "updates-swallowed": (
        "{dtype} weights swallow {share} of the updates ({worst_share} of those of `{name}`): keep an fp32 master copy."
    ),
    "steps-skipped": _skipped,
}


def numerics_headline(recordings: Sequence[Numerics]) -> str:
    """What recordings of numerics show, where nothing else was recorded."""
    looked, steps = len(recordings[0].steps), recordings[0].step_count
    of = recordings[0].model or "the model"
    if not looked:
        return f"Numerics of {of}: no step was looked at."
    found = sum(row.severity != Severity.INFO for each in recordings for row in each.findings)
    told = say("{found:finding}", {"found": found}) if found else "nothing stands out"
    were = "was" if looked == 1 else "were"
    ranks = say(" on {ranks:rank}", {"ranks": len(recordings)}) if len(recordings) > 1 else ""
    return f"Numerics of {of}: {told}; {looked} of {say('{steps:step}', {'steps': steps})} {were} looked at{ranks}."


def norm_text(norm: float | None) -> str:
    """A norm, or that it is not finite."""
    return "not finite" if norm is None else f"{norm:.6g}"


def numerics_sentence(numerics: NumericsComparison) -> str:
    """Where two recordings of numerics part."""
    if not numerics.tensors:
        return "The recordings have no step and tensor in common: record both with the same model and the same every=."
    return _parting(numerics) + _only_in_one(numerics.only_in_one)


def _parting(numerics: NumericsComparison) -> str:
    if not numerics.changes:
        counts: Params = {"steps": numerics.steps, "tensors": numerics.tensors}
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


def _only_in_one(names: Sequence[str]) -> str:
    """What cannot be compared: where modules differ, the first tensor that parts may lie behind one of them."""
    if not names:
        return ""
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f" `{names[0]}`{others} {'are' if others else 'is'} in one of them alone."
