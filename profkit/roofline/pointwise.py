"""Bytes of pointwise operators, copies, casts, fills, cats, dropout, and of Inductor's fused kernels.

Every input is read once as far as it lies in memory (an expanded dimension once), the output is written once.
An input whose strides leave holes is read in sectors of 32 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.instruction_issue import coalesced_rank, pointwise_instructions
from profkit.roofline.operator_shapes import Call, Tensor, element_bytes
from profkit.roofline.thresholds import INSTRUCTIONS, SECTOR_BYTES

__all__ = ["POINTWISE_FAMILIES", "POINTWISE_MODELS", "fused", "pointwise"]

POINTWISE_FAMILIES = frozenset({Family.ELEMENTWISE, Family.COPY, Family.FILL, Family.RANDOM})
_COMPARISONS = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_not", "logical_xor",
     "bitwise_not", "signbit"}
)  # fmt: skip
_ORDER = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "fp8",
    "fp16",
    "bf16",
    "fp32",
    "fp64",
    "complex64",
    "complex128",
)
"""Weaker types first: the stronger one is the result's, but two 16-bit floats give fp32."""
_FLOP_PER_ELEMENT = 4.0


def pointwise(call: Call, kernel: KernelClass) -> Work | None:
    """Any pointwise operator: inputs broadcast to one shape, in place when the name ends in ``_``."""
    tensors = call.operands()
    if not tensors:
        return None
    in_place = call.name.endswith("_") and not call.name.endswith("__")
    expected = len(kernel.operands) - 1 if kernel.operands else len(tensors)
    sources = tensors[: max(expected, 1)] if len(tensors) > expected else tensors
    elements = _broadcast_elements(tensors)
    if in_place:
        written = tensors[0].numel * element_bytes(tensors[0].dtype or kernel.out_dtype)
    else:
        written = elements * element_bytes(_result_type(call, kernel, sources))
    read = sum(read_bytes(tensor, _operand_type(kernel, i)) for i, tensor in enumerate(sources))
    if kernel.family is Family.FILL:
        read = 0.0
    issued = pointwise_instructions(kernel, elements, coalesced_rank(tensors))
    return Work(_FLOP_PER_ELEMENT * elements, read, written, dtype=_arithmetic(tensors), instructions=issued)


def _broadcast_elements(tensors: Sequence[Tensor]) -> int:
    """Elements of the shape that all inputs are broadcast to; of the largest input where they do not fit."""
    sides: list[int] = []
    for tensor in tensors:
        for axis, n in enumerate(reversed(tensor.shape)):
            if axis == len(sides):
                sides.append(n)
            elif 1 not in (n, sides[axis]) and n != sides[axis]:
                return max(t.numel for t in tensors)
            elif sides[axis] == 1:
                sides[axis] = n
    return math.prod(sides)


def read_bytes(tensor: Tensor, fallback: str | None) -> float:
    """Bytes that reading a tensor moves: whole sectors where its fastest dimension has holes."""
    size = element_bytes(tensor.dtype or fallback)
    if tensor.strides and len(tensor.strides) == len(tensor.shape):
        steps = [s for n, s in zip(tensor.shape, tensor.strides, strict=True) if n > 1 and s]
        if steps and min(steps) > 1:
            return tensor.stored * min(min(steps) * size, SECTOR_BYTES)
    return tensor.stored * size


def _result_type(call: Call, kernel: KernelClass, sources: Sequence[Tensor]) -> str | None:
    if kernel.operands and kernel.operands[0]:
        return kernel.operands[0]
    if call.name in _COMPARISONS:
        return "bool"
    known = [tensor.dtype for tensor in sources if tensor.dtype in _ORDER]
    if not known:
        return kernel.out_dtype
    if {"fp16", "bf16"} <= set(known):
        return "fp32"
    return max((t for t in known if t), key=_ORDER.index)


def _operand_type(kernel: KernelClass, index: int) -> str | None:
    later = kernel.operands[1:]
    return (later[index] if index < len(later) else None) or kernel.dtype


def _arithmetic(tensors: Sequence[Tensor]) -> str:
    return "fp64" if any(tensor.dtype == "fp64" for tensor in tensors) else "fp32"


def _copy(call: Call, kernel: KernelClass) -> Work | None:
    """``copy_(self, src)``."""
    target, source = call.tensor(0), call.tensor(1)
    if not target or not source or kernel.family not in POINTWISE_FAMILIES:
        return None
    written = target.numel * element_bytes(target.dtype or kernel.out_dtype)
    issued = pointwise_instructions(kernel, target.numel, coalesced_rank([target, source]))
    return Work(target.numel, read_bytes(source, kernel.dtype), written, dtype="fp32", instructions=issued)


def _fill(call: Call, kernel: KernelClass) -> Work | None:
    target = call.tensor(0)
    if not target or kernel.family not in POINTWISE_FAMILIES:
        return None
    return Work(0.0, 0.0, target.numel * element_bytes(target.dtype or kernel.out_dtype))


def _cat(call: Call, kernel: KernelClass) -> Work | None:
    """``cat(tensors)``: everything is read and written once."""
    tensors = call.tensors()
    size = sum(tensor.numel * element_bytes(tensor.dtype or kernel.dtype) for tensor in tensors)
    issued = sum(tensor.numel for tensor in tensors) * INSTRUCTIONS["cat"]
    return Work(0.0, size, size, instructions=issued) if size else None


def _dropout(call: Call, kernel: KernelClass) -> Work | None:
    """``native_dropout``: input to output, and a mask of one byte an element."""
    x = call.tensor(0)
    if not x:
        return None
    size = x.numel * element_bytes(x.dtype or kernel.dtype)
    return Work(_FLOP_PER_ELEMENT * x.numel, size, size + x.numel, dtype="fp32")


def _dropout_backward(call: Call, kernel: KernelClass) -> Work | None:
    """``native_dropout_backward(grad, mask, scale)``."""
    x = call.tensor(0)
    if not x:
        return None
    size = x.numel * element_bytes(x.dtype or kernel.dtype)
    return Work(float(x.numel), size + x.numel, size, dtype="fp32")


def fused(call: Call, kernel: KernelClass) -> Work | None:
    """A kernel that Inductor generated: its pointers are all listed, each tensor is read or written once."""
    tensors = call.tensors()
    if not tensors:
        return None
    size = sum(tensor.nbytes() for tensor in tensors)
    largest = max(tensor.numel for tensor in tensors)
    written = max(tensor.nbytes() for tensor in tensors[1:] or tensors)
    listed = max(1, kernel.function.count("_") - 2)
    return Work(
        float(listed * largest),
        size - min(written, size),
        min(written, size),
        dtype="fp32",
        instructions=largest * listed * INSTRUCTIONS["fused"],
    )


def _addcmul(call: Call, kernel: KernelClass) -> Work | None:
    """``addcmul_(self, a, b)``: every optimizer of PyTorch passes its gradient as both factors."""
    self, a, b = (call.tensor(i) for i in range(3))
    if not self or not a or not b or kernel.family is not Family.ELEMENTWISE:
        return None
    once = Call("addcmul_", (self, a), call.scalars) if (a.shape, a.strides) == (b.shape, b.strides) else call
    return pointwise(once, kernel)


POINTWISE_MODELS: dict[str, Callable[[Call, KernelClass], Work | None]] = {
    "addcmul_": _addcmul,
    "copy_": _copy,
    "_copy_from": _copy,
    "fill_": _fill,
    "zero_": _fill,
    "normal_": _fill,
    "uniform_": _fill,
    "random_": _fill,
    "bernoulli_": _fill,
    "cat": _cat,
    "_cat": _cat,
    "native_dropout": _dropout,
    "_fused_dropout": _dropout,
    "native_dropout_backward": _dropout_backward,
    "_masked_scale": _dropout_backward,
}
"""Those whose inputs are not simply broadcast; by operator name without ``aten::``."""
