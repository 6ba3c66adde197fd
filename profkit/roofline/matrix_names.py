"""Matrix kernels read by their names: data types, unit, tile of one block."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from profkit.hardware import DTYPE_BYTES, TENSOR, TENSOR_HALF, VECTOR
from profkit.roofline.cpp_signature import Signature, element_type

__all__ = ["MatrixName", "read_matrix_name"]


@dataclass(frozen=True)
class MatrixName:
    """What a matrix kernel's name says; None where it says nothing."""

    dtype: str | None = None
    """The type that the unit multiplies: tf32 where fp32 goes through Tensor Cores."""
    out_dtype: str | None = None
    unit: str | None = None
    tile: tuple[int, int, int] | None = None
    """Rows, columns and depth of one block's step; depth 0 when unknown."""


_XMMA = {
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "tf32": "tf32", "f64": "fp64", "i8": "int8", "e4m3": "fp8", "e5m2": "fp8",
    "i32": "int32", "u8": "uint8",
}  # fmt: skip
_TYPE = r"(?:bf16|tf32|f16|f32|f64|i8|u8|i32|e4m3|e5m2)"
_TRIPLE = re.compile(rf"_({_TYPE}){_TYPE}_({_TYPE}?){_TYPE}_({_TYPE})_")
_NVJET = re.compile(r"nvjet_(?:sm\d+_)?([a-z]+)_(\d{1,4})x(\d{1,4})_(\d{1,4})x\d{1,3}")
_NVJET_TYPES = {
    "h": "fp16",
    "t": "bf16",
    "s": "fp32",
    "q": "fp8",
    "a": "int8",
    "i": "int8",
    "d": "fp64",
    "c": "complex64",
}
_MMA = re.compile(
    r"(?<![a-z0-9])([shidzcg]?)(?:884|1688|16816|16832|161616|8816)(?=gemm|cudnn|fprop|dgrad|wgrad|bf16|f16|tf32|_|$)"
)
_CUTLASS_OUT = re.compile(r"tensorop_(bf16|f16|h|s|d|i)_?(?=[sh]\d)")
_SM100 = re.compile(rf"gemm_({_TYPE})_({_TYPE})_({_TYPE})_({_TYPE})")
_TENSILE = re.compile(r"_MT(\d{1,4})x(\d{1,4})x(\d{1,4})")
_TENSILE_TYPES = re.compile(r"^Cijk_[A-Za-z]+_[A-Za-z]+_([A-Z0-9]+?)_")
_TILE = re.compile(r"(?<![a-z0-9])(?:tilesize|tile)?(\d{1,4})x(\d{1,4})(?:x(\d{1,4}))?(?![0-9])")
_BLOCK_TILE = re.compile(r"_b?t(\d{1,4})x(\d{1,4})x(\d{1,4})(?=[u_])")
_STAGES = re.compile(r"_(\d{1,3})x\d{1,2}(?=_)")
"""Depth of a step and number of stages, in CUTLASS' and cuBLAS' older names."""
_TRTLLM_TYPE = r"(?:Mx)?(?:Bfloat16|Fp16|E4m3|E2m1)"
_TENSOR_WORDS = re.compile(r"tensorop|wmma|hmma|imma|gmma|tcgen05|nvjet|tensor\d|flash|warpgroup")
_MATRIX_CORE_WORDS = re.compile(r"mfma|(?<![a-z])xdl(?:ops)?(?![a-z])|_gtcx")
"""Of AMD's kernels; its matrix cores multiply fp32 as it is."""
_VECTOR_WORDS = re.compile(
    r"simt|pointwise_mult_and_sum|(?<![a-z])sgemm|(?<![a-z])dgemm(?!.*d884)|scudnn|hcudnn|(?<![a-z])hgemm|gemv|gemmsn|gemmk1|dot_kernel|winograd|convolve_sgemm|ffma|fft|_grouped_direct"
    r"|conv_depthwise|im2col|col2im|_alg[01]_|_engine|scal_kernel|splitkreduce|cgemm"
)


_AFTER_ATTENTION = re.compile(r"splitkv_combine|attention_\w{0,24}reduce")
"""What adds up the parts of attention that was split along the keys."""
_SPLIT_SUM = "execute_split_k_kernel"
"""Of a product's own name: what adds up its parts. Nsight Compute counts no matrix instruction in it."""


def read_matrix_name(signature: Signature) -> MatrixName:
    """Decode a GEMM's, convolution's or attention kernel's name."""
    text = signature.text
    lower = text.lower()
    for reader in (_nvjet, _tensile, _sm100, _xmma, _trtllm):
        found = reader(text)
        if found:
            return replace(found, unit=VECTOR) if _SPLIT_SUM in lower else found
    if "dot_do_o" in lower or "convert_dq" in lower:
        return MatrixName(unit=VECTOR)
    if _AFTER_ATTENTION.search(lower):
        return replace(_plain(signature, lower), unit=VECTOR)
    if "fmha_cutlass" in lower or "flash" in lower or "sdpa" in lower:
        return _attention(signature, lower)
    return _plain(signature, lower)


def _nvjet(text: str) -> MatrixName | None:
    """``nvjet_[sm90_]<types>_<m>x<n>_<k>x<stages>_...``: types are of A, (B,) the computation and the result."""
    found = _NVJET.match(text)
    if not found:
        return None
    types = found[1]
    return MatrixName(
        dtype=_NVJET_TYPES.get(types[0]),
        out_dtype=_NVJET_TYPES.get(types[-1]),
        unit=VECTOR if types[0] == "s" and len(types) == 3 and types[1] == "s" else TENSOR,
        tile=(int(found[2]), int(found[3]), int(found[4])),
    )


def _tensile(text: str) -> MatrixName | None:
    """``Cijk_Ailk_Bljk_<types>_..._MT<m>x<n>x<k>_MI...`` of rocBLAS and hipBLASLt."""
    if not text.startswith("Cijk_"):
        return None
    tile, types = _TENSILE.search(text), _TENSILE_TYPES.match(text)
    code = types[1] if types else ""
    names = {"H": "fp16", "B": "bf16", "S": "fp32", "D": "fp64", "I": "int8", "F": "fp8", "X": "tf32"}
    dtype = names.get(code[:1])
    return MatrixName(
        dtype=dtype,
        out_dtype=names.get(code[1:2], dtype),
        unit=TENSOR if "_MI" in text else VECTOR,
        tile=(int(tile[1]), int(tile[2]), int(tile[3])) if tile else None,
    )


def _sm100(text: str) -> MatrixName | None:
    """``cutlass3x_sm100_tensorop_s128x256x16gemm_<A>_<B>_<acc>_<C>_..._<m>x<n>x<k>_...``."""
    found = _SM100.search(text) if "cutlass3x" in text else None
    if not found:
        return None
    dtype = _XMMA[found[1]]
    unit = VECTOR if "simt" in text else TENSOR
    dtype = "tf32" if dtype == "fp32" and unit == TENSOR else dtype
    return MatrixName(dtype, _XMMA[found[4]], unit, _tile(text[found.end() :]))


def _xmma(text: str) -> MatrixName | None:
    """``sm90_xmma_<what>_<A><B>_<multiply><accumulate>_<out>_...``: fp32 multiplied as f32 is no Tensor Core's work."""
    found = _TRIPLE.search(text) if "xmma" in text or "cudnn" in text else None
    if not found:
        return None
    dtype = _XMMA[found[1]]
    multiplied = _XMMA.get(found[2], dtype)
    vector = "ffma" in text or (multiplied == "fp32" and "hmma" not in text and "_tensor" not in text)
    if multiplied == "tf32":
        dtype = "tf32"
    return MatrixName(dtype, _XMMA[found[3]] if "gemm" in text and "implicit" not in text else _stored(dtype),
                      VECTOR if vector else TENSOR, _tile(text))  # fmt: skip


_TRTLLM = re.compile(rf"bmm_({_TRTLLM_TYPE})_({_TRTLLM_TYPE})({_TRTLLM_TYPE})_Fp32_")
_TRTLLM_ATTENTION = re.compile(
    rf"fmhaSm1\d\d\w{{0,24}}?Qkv({_TRTLLM_TYPE})O({_TRTLLM_TYPE})\w{{0,64}}?Q(\d{{1,4}})Kv(\d{{1,4}})"
)
_TRTLLM_NAMES = {"Bfloat16": "bf16", "Fp16": "fp16", "E4m3": "fp8", "E2m1": "fp4"}


def _trtllm(text: str) -> MatrixName | None:
    """``bmm_<result>_<A><B>_<sum>_t<m>x<n>x<k>...`` and ``fmhaSm100..._Qkv<inputs>O<result>...Q<rows>Kv<keys>``.

    The sum's type is no input. Of two unlike inputs the wider sets the rate.
    """
    found = _TRTLLM.match(text)
    if found:
        out, *taken = (_TRTLLM_NAMES[word.removeprefix("Mx")] for word in found.groups())
        return MatrixName(max(taken, key=lambda t: DTYPE_BYTES[t]), out, TENSOR, _tile(text))
    found = _TRTLLM_ATTENTION.match(text)
    if not found:
        return None
    dtype, out = (_TRTLLM_NAMES[word.removeprefix("Mx")] for word in found.groups()[:2])
    return MatrixName(dtype, out, TENSOR, (int(found[3]), int(found[4]), 0))


def _attention(signature: Signature, lower: str) -> MatrixName:
    dtype = element_type(" ".join(signature.arguments) + " " + " ".join(signature.parameters))
    for word, named in (("_bf16_", "bf16"), ("_f16_", "fp16"), ("_f32_", "fp32")):
        if word in lower:
            dtype = named if dtype is None or "fmha_cutlass" in lower else dtype
    if dtype is None and "f16" in lower:
        dtype = "fp16"
    if "sdpa" in lower and dtype == "fp16":
        return MatrixName(None, None, TENSOR, _tile(lower))  # cuDNN writes f16 for bf16 too
    vector = dtype == "fp32" and not re.search(r"sm(?:8|9|10|12)\d", lower)
    unit = VECTOR if vector else TENSOR
    if dtype == "fp32" and unit == TENSOR:
        dtype = "tf32"
    return MatrixName(dtype, dtype, unit, _tile(lower))


def _plain(signature: Signature, lower: str) -> MatrixName:
    """cuBLAS, CUTLASS 2 and cuDNN names built of ``s16816gemm``, ``sgemm``, ``scudnn`` and the like, and all others."""
    mma = _MMA.search(lower)
    unit: str | None = None
    if mma or (_TENSOR_WORDS.search(lower) and not _VECTOR_WORDS.search(lower)):
        unit = TENSOR_HALF if mma and mma[1] == "h" else TENSOR
    elif _VECTOR_WORDS.search(lower):
        unit = VECTOR
    dtype = _coded_type(lower, unit) or _multiplied_type(signature)
    if dtype == "fp32" and unit == TENSOR:
        dtype = "tf32"
    if unit is None and _MATRIX_CORE_WORDS.search(lower):
        unit = TENSOR
    if unit is None and dtype in ("fp32", "fp64") and signature.arguments and "triton" not in lower:
        unit = VECTOR
    return MatrixName(dtype, _stored(dtype) if dtype else None, unit, _tile(lower))


def _multiplied_type(signature: Signature) -> str | None:
    """The first type among the template arguments and parameters that products are made of."""
    types = [element_type(part) for part in (*signature.arguments, *signature.parameters)]
    found = next((t for t in types if t and not t.startswith(("int32", "int64", "bool", "uint"))), None)
    # No GPU multiplies int16: Composable Kernel calls bf16 so (bhalf_t in its data_type.hpp is ushort).
    return ("bf16" if "ck::" in signature.text else None) if found == "int16" else found


def _coded_type(lower: str, unit: str | None) -> str | None:
    """The input type that a library's own code in the name says."""
    for pattern, dtype in (
        (r"bf16", "bf16"), (r"fp16|(?<![a-z])f16|[^b]f16_|h884|(?<![a-z])hgemm|hcudnn", "fp16"), (r"tf32|s1688(?:gemm|fprop|dgrad|wgrad|cudnn)", "tf32"),
        (r"d884|(?<![a-z])dgemm|f64", "fp64"), (r"e4m3|e5m2|fp8", "fp8"), (r"i8816|i16832|igemm_int8|int8", "int8"),
        (r"cgemm", "complex64"), (r"(?<![a-z])sgemm|scudnn|_fp32_", "fp32"),
    ):  # fmt: skip
        if re.search(pattern, lower) and not (dtype == "tf32" and unit == VECTOR):
            return dtype
    return None


def _tile(text: str) -> tuple[int, int, int] | None:
    found = _BLOCK_TILE.search(text) or _TILE.search(text)
    if not found or int(found[1]) * int(found[2]) < 16:
        return None
    stages = None if found[3] else _STAGES.search(text, found.end())
    return int(found[1]), int(found[2]), int(found[3] or (stages[1] if stages else 0))


def _stored(dtype: str | None) -> str | None:
    return "fp32" if dtype == "tf32" else dtype
