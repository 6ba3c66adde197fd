"""Pointwise kernels read by their names: functor, operand types, elements a thread."""

from __future__ import annotations

import re
from dataclasses import dataclass

from profkit.roofline.cpp_signature import Signature, element_type

__all__ = ["PointwiseName", "read_pointwise_name"]


@dataclass(frozen=True)
class PointwiseName:
    """What a pointwise kernel's name says."""

    functor: str
    """A readable word for what it computes: ``add``, ``copy``, ``gelu``..."""
    operands: tuple[str | None, ...]
    """Types of the arrays that it moves, the output first; None where only the run knows."""
    items: int | None
    """Elements a thread handles, where the name fixes it."""
    style: str
    """``vectorized``, ``unrolled`` (casting), ``strided`` (any layout) or empty."""


_STYLES = (
    ("vectorized", "vectorized"), ("unrolled", "unrolled"), ("elementwise_kernel_with_index", ""), ("elementwise_kernel", "strided"),
)  # fmt: skip
_LAMBDA = re.compile(r"lambda\(([^()]{0,300})\)")
_ARRAY = re.compile(r"(?:std::array|at::detail::Array|Array)<char ?\*, (\d{1,2})")
_FUNCTOR = re.compile(r"((?<!\w)(?:\w*Functor\w*|\w*_kernel_cuda|\w*_cuda_kernel|\w*_kernel_impl|\w*CUDAKernelImpl|\w*_kernel\b|\w*CUDAKernel\w*"
                      r"|\w*_cuda_out|\w*_cuda\b)|launch_\w+)")  # fmt: skip
_TRIM = re.compile(r"^(?:launch_|CUDAFunctor(?:OnSelf|OnOther)?_|CUDA)|(?:_kernel_cuda|_cuda_kernel|_kernel_impl|CUDAKernelImpl|CUDAKernel"
                   r"|_kernel|_cuda_out|_cuda|Functor)(?=_|$)")  # fmt: skip
_WRAPPING = frozenset(
    {"AUnaryFunctor", "BUnaryFunctor", "BinaryFunctor", "gpu_kernel_impl", "gpu_kernel_impl_nocast"}
)
_COMPARE = re.compile(
    r"Compare\w{0,64}Functor|compare_\w{0,64}kernel|logical_\w+|isnan|isinf|eq_kernel|ne_kernel"
)


def read_pointwise_name(signature: Signature) -> PointwiseName:
    """Decode the name of one of PyTorch's pointwise kernels."""
    base = signature.base
    style = next((style for word, style in _STYLES if word in base), "")
    body = next((a for a in signature.arguments if not a.isdigit()), "") or signature.text
    functor = _functor_word(body)
    types = _argument_types(body)
    output = types[0] if types else element_type(body)
    if "_copy_kernel_cuda" in body:
        output = _copy_target(body, output)
    elif _COMPARE.search(body):
        output = "bool"
    elif functor == "where" and len(types) > 1:
        output = types[1]
    count = _operand_count(signature.text, body, types)
    operands: tuple[str | None, ...] = (output, *_inputs(types, output, count - 1))
    if "WithCast" in signature.text or "gpu_kernel_impl<" in signature.text:
        operands = (None,) * count if "copy" not in functor else (output, None)
    return PointwiseName(functor, operands, _items(signature, style), style)


def _functor_word(body: str) -> str:
    """The shortest word that says what the functor does."""
    found = [name for name in _FUNCTOR.findall(body) if name not in _WRAPPING]
    if not found:
        head = re.match(r"[\w:]+", body)
        return head[0].rpartition("::")[2] if head else "pointwise"
    word = found[0]
    if "copy_kernel_cuda" in word:
        return "copy"
    word = _TRIM.sub("", word).strip("_") or word
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word).lower()
    return re.sub(r"_(?:kernel|cuda|impl)+$", "", word)


def _copy_target(body: str, computed: str | None) -> str | None:
    for word, dtype in (("bfloat16_copy", "bf16"), ("float16_copy", "fp16"), ("float8_copy", "fp8")):
        if word in body:
            return dtype
    return computed


def _argument_types(body: str) -> list[str]:
    """Types that the functor takes, from its innermost lambda or its template arguments."""
    lambdas = _LAMBDA.findall(body)
    if "gpu_kernel_impl" in body and lambdas and lambdas[-1].strip() in ("int", "int, bool"):
        lambdas.pop()  # the launcher's own, over element numbers
    if lambdas:
        parts = [part for part in lambdas[-1].split(",") if part.strip()]
    else:
        inner = re.search(r"Functor\w{0,64}<([^<>()]{0,200})", body)
        parts = [part for part in inner[1].split(",") if part.strip()] if inner else []
        parts = parts[:3]
    return [found for found in (element_type(part) for part in parts) if found]


def _operand_count(text: str, body: str, types: list[str]) -> int:
    array = _ARRAY.search(text)
    if array:
        return max(1, int(array[1]))
    if "Fill" in body:
        return 1
    if re.search(r"[AB]UnaryFunctor|OnSelf|copy_kernel", body):
        return 2
    if "BinaryFunctor" in body or "CUDAFunctor_add" in body:
        return 3
    return len(types) + 1 if _LAMBDA.search(body) else 2


def _inputs(types: list[str], output: str | None, count: int) -> list[str | None]:
    source: list[str | None] = list(types) or [output]
    return [source[i] if i < len(source) else source[-1] for i in range(count)]


def _items(signature: Signature, style: str) -> int | None:
    """Elements a thread: written for strided kernels, 4 for casting ones; vectorised ones depend on the version."""
    numbers = [int(a) for a in signature.arguments if a.isdigit() and len(a) < 5]
    if style == "strided":
        return numbers[1] if len(numbers) > 1 else 4
    if style == "unrolled":
        return numbers[0] if numbers and numbers[0] <= 32 else 4
    return None
