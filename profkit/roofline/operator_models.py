"""From an operator call to the work of one of its kernels: the formulas by name, and general ones by family."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto

from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.attention import ATTENTION_MODELS
from profkit.roofline.convolution import CONVOLUTION_MODELS
from profkit.roofline.gemm import GEMM_MODELS
from profkit.roofline.indexing import INDEXING_MODELS
from profkit.roofline.operator_shapes import Call
from profkit.roofline.optimizer_kernels import optimizer_model
from profkit.roofline.pointwise import POINTWISE_FAMILIES, POINTWISE_MODELS, fused, pointwise
from profkit.roofline.rowwise import ROWWISE_MODELS, reduction

__all__ = ["Answer", "model_work"]

_Model = Callable[[Call, KernelClass], Work | None]
_MODELS: dict[str, _Model] = {
    **GEMM_MODELS,
    **CONVOLUTION_MODELS,
    **ATTENTION_MODELS,
    **ROWWISE_MODELS,
    **INDEXING_MODELS,
    **POINTWISE_MODELS,
}
_NO_OPERATOR = (
    "autograd::",
    "torch::autograd::",
    "CompiledFunction",
    "Torch-Compiled",
    "Pregraph",
    "TorchDynamo",
    "record_param",
)


class Answer(Enum):
    """Why there is no work."""

    CLIMB = auto()
    """This operator has no formula: look at the one around it."""
    NONE = auto()
    """This operator's formula says nothing of this kernel: there is no use in looking further."""


def model_work(call: Call, kernel: KernelClass) -> Work | Answer:
    """The compulsory work of ``kernel`` as part of ``call``, by the operator's formula."""
    if kernel.is_collective:
        return Answer.NONE
    name = call.name.rpartition("::")[2]
    model = _named_model(call.name, name)
    short = replace(call, name=name)
    if model is None:
        general = _general_model(call.name, kernel)
        return (general(short, kernel) if general else None) or Answer.CLIMB
    if not call.inputs:
        return Answer.CLIMB
    work = model(short, kernel)
    if work is None or not _plausible(work):
        return Answer.NONE
    return work


def _named_model(full: str, name: str) -> _Model | None:
    if full.startswith("triton_"):
        return fused
    return _MODELS.get(name) or optimizer_model(name)


def _general_model(full: str, kernel: KernelClass) -> _Model | None:
    """Pointwise and reducing kernels are understood under any operator that is one."""
    if full.startswith(_NO_OPERATOR) or "Backward" in full:
        return None
    if kernel.family in POINTWISE_FAMILIES and kernel.style:
        return pointwise
    return reduction if kernel.family is Family.REDUCE else None


def _plausible(work: Work) -> bool:
    return all(math.isnan(v) or 0 <= v < 1e20 for v in (work.flop, work.read_bytes, work.write_bytes))
