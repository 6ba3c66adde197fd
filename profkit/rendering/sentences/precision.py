"""What the precision section says: of TF32, of what autocast did, and of number formats at risk."""

from __future__ import annotations

from typing import Final

from profkit.model.report_precision import Autocast, AutocastOperator, Tf32Row
from profkit.rendering.sentences.wording import Params, Table, say

__all__ = ["FINDINGS", "autocast_message", "autocast_summary", "tf32_message"]

FINDINGS: Final[Table] = {
    "fp16-without-scaler": (
        "Gradients are computed in fp16 ({count:product}) and nothing scales the loss: gradients under 3e-8 become zero. "
        'Use torch.amp.GradScaler("cuda"), or bf16, which needs none.'
    ),
    "bf16-emulated": (
        "{gpu} has no instruction for bf16: its products are emulated in fp32 ({count:launch}). Use fp16 on "
        "this GPU, with a GradScaler where it trains."
    ),
}

_ACCIDENTS: Final[Table] = {
    "kept-in-fp32": "{name}: kept in fp32 by autocast's list.",
    "fp32-operand": (
        "{name} took {takes}: the {wide} operand makes its result {wide}. Cast the parameter, buffer or mask to the 16-bit type."
    ),
    "promoted": "{name} took {takes} beside an fp32 operand: autocast runs it in the widest type. Cast the fp32 operand.",
    "loss-outside": (
        "{name} took {takes} outside autocast, which would keep this loss in fp32. Move it into the region, or cast its "
        "input with .float()."
    ),
    "norm-outside": (
        "{name} took {takes} outside autocast, which would keep it in fp32. Move it into the region, or cast its input "
        "with .float()."
    ),
    "product-outside": "{name} took {takes} outside autocast, which would run it in 16 bits. Move it into the region.",
    "around-backward": (
        "{name} runs under autocast in the backward pass. End the region before backward(): gradients take the types of "
        "the forward pass."
    ),
    "custom-backward": (
        "{name} took {takes} in the backward pass of a torch.autograd.Function, so it multiplies in fp32. Decorate the "
        "function with torch.amp.custom_fwd and custom_bwd, or cast what it saves."
    ),
    "cast-undone": (
        "{name} casts {takes} to fp32 by hand, and autocast casts it back before anything is computed. Remove the cast, or "
        "turn autocast off around what must be fp32."
    ),
    "other-type-by-hand": (
        "{name} has {takes}, and one of these types is not the region's. Remove the cast or .half(): the two together "
        "become fp32, or one is cast to the other."
    ),
    "norm-cast-twice": (
        "{name} took {takes}: autocast casts it to fp32 and its result back to 16 bits. Keep the input in fp32, or run "
        "the norm in 16 bits with autocast off; its sums are in fp32 anyway."
    ),
    "weights-cast-again": (
        "{name}: its weights are cast again in each micro-batch. Open one region around all micro-batches, and "
        "turn it off around backward(). Weights that do not train are cast each time all the same: keep them in 16 bits."
    ),
}


def autocast_message(row: AutocastOperator) -> str:
    """What happened to an operator, and what to do about an accident."""
    wide = "fp64" if "fp64" in row.takes else "fp32"
    return say(_ACCIDENTS[row.code], {"name": row.name, "takes": row.takes, "wide": wide})


def autocast_summary(autocast: Autocast, per: int, *, timed: bool) -> str:
    """What autocast did, in one sentence; times and counts are divided by ``per``.

    Args:
        autocast: What it did.
        per: The steps of all devices.
        timed: Whether the recording has kernels.
    """
    found = any(not row.by_design for row in autocast.operators)
    text = "Autocast to {types} added {casts:cast}."
    if not autocast.types:
        text = "The program computes in 16 bits without autocast; wider operands "
        text += "cost {fp32_by_accident_ns}." if timed else "undo that in places."
    elif timed:
        text = "Autocast to {types} added {casts:cast} ({casts_ns}) and kept {fp32_by_design_ns} in fp32 by its lists; "
        text += "accidents cost {fp32_by_accident_ns}." if found else "nothing is fp32 by accident."
    values: Params = {
        "types": ", ".join(autocast.types),
        "casts": round(autocast.casts / per),
        "casts_ns": autocast.casts_ns / per,
        "fp32_by_design_ns": autocast.fp32_by_design_ns / per,
        "fp32_by_accident_ns": autocast.fp32_by_accident_ns / per,
    }
    return say(text, values)


def tf32_message(row: Tf32Row, per: int) -> str:
    """Whether TF32 was on for products or convolutions, and what switches it."""
    if not row.tf32_ns:  # also where it is on, libraries may compute a small product in fp32
        text = "No {work} ran in TF32: {fp32_ns} in fp32 on CUDA cores. Where TF32 is off, this turns it on: {switch}"
    elif row.fp32_ns:
        text = "TF32 is on for {work}: {tf32_ns} in TF32, {fp32_ns} in fp32 on CUDA cores."
    else:
        text = "TF32 is on for {work}: {tf32_ns} in TF32."
    values: Params = {
        "work": row.work,
        "switch": row.switch,
        "tf32_ns": row.tf32_ns / per,
        "fp32_ns": row.fp32_ns / per,
    }
    return say(text, values)
