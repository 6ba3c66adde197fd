"""What a kernel's name says: family, data types, unit, tile; and a name short enough to read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from profkit.hardware import VECTOR
from profkit.model.kernel_class import MATRIX_FAMILIES, Family, KernelClass
from profkit.roofline.cpp_signature import Signature, element_type, split_name
from profkit.roofline.families import family_of
from profkit.roofline.list_names import list_traffic
from profkit.roofline.matrix_names import MatrixName, read_matrix_name
from profkit.roofline.pointwise_names import PointwiseName, read_pointwise_name

__all__ = ["classify"]

_LONGEST_SHORT_NAME = 72
_VENDORS = ("nvjet", "cutlass", "xmma", "cudnn", "triton", "flash", "fmha", "tensile", "winograd")
_GRADIENTS = {
    "wgrad": ("wgrad", "wrw", "grad_weight", "bwdweight"),
    "dgrad": ("dgrad", "depthwise2d_backward", "bwddata", "igemm_bwd"),
}
_OLD_INSTRUCTIONS = re.compile(
    r"sm_?[78]\d|ampere|turing|volta|cutlass_[78]\d|flash_(?:fwd|bwd)|fmha_cutlass|s16816|s1688|i16832|d884"
)


def classify(names: Sequence[str]) -> list[KernelClass]:
    """The class of each name. Names are remembered, so asking again is free; any text is accepted."""
    return [_classify(name) for name in names]


@lru_cache(maxsize=16384)
def _classify(name: str) -> KernelClass:
    signature = split_name(name)
    family = family_of(signature)
    function = signature.base.lower()
    if family in MATRIX_FAMILIES:
        matrix, vendor = read_matrix_name(signature), _vendor(signature.text.lower())
        return KernelClass(
            short_name=_shortened(_matrix_label(signature, family, matrix, vendor)), family=family, dtype=matrix.dtype,
            out_dtype=matrix.out_dtype, unit=matrix.unit, function=function, vendor=vendor,
            gradient=_gradient(function, signature.text.lower(), family),
            tile=matrix.tile if matrix.tile and all(matrix.tile[:2]) else None,
            products=_products(function, matrix), before_hopper=bool(_OLD_INSTRUCTIONS.search(signature.text)),
        )  # fmt: skip
    if "elementwise_kernel" in function:
        pointwise = read_pointwise_name(signature)
        dtype = next((t for t in pointwise.operands[1:] if t), None) or pointwise.operands[0]
        return KernelClass(
            short_name=_shortened(_pointwise_label(pointwise)), family=family, dtype=dtype or element_type(signature.text),
            out_dtype=pointwise.operands[0], unit=VECTOR, operands=pointwise.operands, items=pointwise.items,
            style=pointwise.style, function=function,
        )  # fmt: skip
    dtype = _plain_type(signature, family)
    return KernelClass(
        short_name=_shortened(_plain_label(signature, dtype)), family=family, dtype=dtype, out_dtype=dtype,
        unit=None if family in (Family.COMMUNICATION, Family.OTHER) else VECTOR, function=function,
        lists=list_traffic(signature.text) if family is Family.OPTIMIZER else None,
    )  # fmt: skip


def _products(function: str, matrix: MatrixName) -> int:
    """PyTorch's memory-efficient attention multiplies fp32 as three tf32 products (OpMultiplyAddFastF32)."""
    return 3 if function.startswith("fmha_cutlass") and matrix.dtype == "tf32" else 1


_COLLECTIVE_TYPES = {
    "bf16": "bf16", "f16": "fp16", "half": "fp16", "f32": "fp32", "float": "fp32", "f64": "fp64", "double": "fp64",
    "f8e4m3": "fp8", "f8e5m2": "fp8", "u8": "uint8", "uint8_t": "uint8", "i8": "int8", "int8_t": "int8",
    "u32": "uint32", "uint32_t": "uint32", "i32": "int32", "int32_t": "int32", "u64": "int64", "i64": "int64",
    "uint64_t": "int64", "int64_t": "int64",
}  # fmt: skip
_MOVES_BYTES = re.compile("SendRecv|AllGather|Broadcast")
"""NCCL has these for bytes alone, since nothing is summed: ``ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t`` moves any type
(its src/collectives/device makes them for int8_t only)."""
_OPAQUE_TYPES = {"1": "uint8", "2": "bf16", "4": "fp32", "8": "int64", "16": "complex128"}


def _plain_type(signature: Signature, family: Family) -> str | None:
    """The element type that a name shows; a floating-point one before the integers that count and index."""
    opaque = re.search(r"OpaqueType<(\d+)", signature.text)
    if opaque and family is Family.COPY:
        return _OPAQUE_TYPES.get(opaque[1])
    if family is Family.COMMUNICATION:
        words = re.findall(
            r"(?<![a-z0-9])(u?int(?:8|32|64)_t|[a-z]+\d*(?:e\dm\d)?)", signature.function.rpartition("::")[2]
        )
        dtype = next((_COLLECTIVE_TYPES[word] for word in words if word in _COLLECTIVE_TYPES), None)
        return None if dtype == "int8" and _MOVES_BYTES.search(signature.function) else dtype
    types = [element_type(part) for part in (*signature.arguments, *signature.parameters)]
    known = [t for t in types if t]
    return next((t for t in known if not t.startswith(("int", "bool", "uint"))), known[0] if known else None)


def _vendor(lower: str) -> str:
    if lower.startswith("cijk_"):
        return "tensile"
    return next((vendor for vendor in _VENDORS if vendor in lower), "")


def _gradient(function: str, lower: str, family: Family) -> str | None:
    words = " ".join((function, *_direction(lower, family)))  # CUTLASS calls every function Kernel
    for gradient, marks in _GRADIENTS.items():
        if any(mark in words or mark in words.replace("_", "") for mark in marks):
            return gradient
    return None


def _matrix_label(signature: Signature, family: Family, matrix: MatrixName, vendor: str) -> str:
    """E.g. ``GEMM bf16 128x256 tn nvjet splitK``."""
    text = signature.text
    lower = text.lower()
    word = {Family.GEMM: "GEMM", Family.CONVOLUTION: "conv", Family.ATTENTION: "attention"}[family]
    if not vendor and matrix.tile is None:
        return _plain_label(signature, matrix.dtype)
    parts = [word, *_direction(lower, family), matrix.dtype or "", (matrix.unit == VECTOR and "SIMT") or ""]
    if matrix.tile:
        parts.append("x".join(str(side) for side in matrix.tile if side))
    layout = re.search(r"_((?:[NTnt]{2,3}))(?:_|$)", text)
    parts += [layout[1].lower() if layout else "", vendor]
    parts += [
        mark
        for mark in ("splitK", "bias", "relu", "gelu", "winograd")
        if mark.lower() in lower and mark.lower() != vendor
    ]
    if family is Family.ATTENTION:
        parts.append(signature.base if "<" in text else "")
    return " ".join(part for part in parts if part)


def _direction(lower: str, family: Family) -> list[str]:
    if family is Family.CONVOLUTION:
        return [word for word in ("fprop", "dgrad", "wgrad") if word in lower][:1]
    if family is Family.ATTENTION:
        if any(word in lower for word in ("bprop", "bwd", "backward", "cutlassb", "dot_do_o", "convert_dq")):
            return ["backward"]
        return ["forward"]
    return []


def _pointwise_label(name: PointwiseName) -> str:
    """E.g. ``add<fp32> vectorized`` or ``copy<fp32 to bf16> strided``."""
    types = [t or "?" for t in name.operands]
    if len(types) == 2 and types[0] != types[1]:
        shown = f"{types[1]} to {types[0]}"
    else:
        shown = ", ".join(dict.fromkeys(reversed(types))) or "?"
    return f"{name.functor}<{shown}> {name.style}".rstrip()


def _plain_label(signature: Signature, dtype: str | None) -> str:
    base = signature.base or signature.function or signature.text[:40] or "unnamed"
    if base in ("kernel", "Kernel", "Kernel2", "device_kernel", "globalKernel"):
        base = f"{signature.function.split('::')[-2] if '::' in signature.function else ''}::{base}".lstrip(
            ":"
        )
    for wrapper in ("multi_tensor_apply_kernel", "reduce_kernel"):
        if base == wrapper:
            base = f"{wrapper.removesuffix('_kernel')} {_functor(signature)}".rstrip()
    return f"{base}<{dtype}>" if dtype and signature.arguments else base


def _functor(signature: Signature) -> str:
    """What a wrapper runs: the first functor-like word that is not the wrapper's own machinery."""
    words = re.findall(r"\b(\w+?)(?:MathFunctor|Functor|_functor|Ops\b|_kernel_cuda)", signature.text)
    plain = [w for w in words if w not in ("ReduceOp",) and not w.startswith("func_wrapper")]
    op = re.search(r"std::(plus|minus|multiplies|divides)\b", signature.text)
    return " ".join([*plain[:1], *([op[1]] if op else [])])


def _shortened(label: str) -> str:
    label = "".join(c if c.isprintable() else "?" for c in label)
    return label if len(label) <= _LONGEST_SHORT_NAME else label[: _LONGEST_SHORT_NAME - 1] + "…"
