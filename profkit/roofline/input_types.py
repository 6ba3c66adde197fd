"""The type that a kernel computes in: what its operator took beats the letters in its name."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import IntColumn, Trace
from profkit.model.kernel_class import KernelClass
from profkit.roofline.kernel_groups import group_rows
from profkit.roofline.operator_shapes import floating_input_type

__all__ = ["computed_type", "computed_types", "takes_fp32"]

_SIXTEEN_BITS: Final = frozenset({"bf16", "fp16"})
_OF_NVIDIA: Final = frozenset({"cutlass", "cudnn", "xmma"})
"""Libraries whose Tensor Cores take fp32 as tf32; AMD's matrix cores multiply fp32."""
_OPAQUE: Final = "OpaqueType<2"
"""In names of copies that know the size of their elements only."""
_NAMES_16_BITS: Final = re.compile(r"<(?:__half|__nv_bfloat16|c10::Half|c10::BFloat16|half)\b")


def takes_fp32(name: str, taken: str | None) -> bool:
    """Whether a kernel that computes in fp32 takes fp32: one that is called ``sgemm`` may take 16 bits.

    Args:
        name: The kernel's name.
        taken: The type that the operator around the launch took, where the recording has it.
    """
    return taken == "fp32" if taken is not None else not _NAMES_16_BITS.search(name)


def computed_type(kernel: KernelClass, taken: str | None) -> str | None:
    """The type of a kernel's arithmetic, or None.

    Libraries write ``f16`` for both types of 16 bits (cuDNN's attention), and the names of generic kernels (Triton's
    among them) say nothing at all. Between fp32 and a narrower type the name decides: it may multiply fp32 in TF32.

    Args:
        kernel: What the name says.
        taken: The type that the operator around the launch took, where the recording has it.
    """
    if kernel.is_half_attention or (kernel.is_matrix and kernel.dtype in _SIXTEEN_BITS):
        return taken if taken in _SIXTEEN_BITS else kernel.dtype
    if kernel.dtype is None and taken == "fp32" and kernel.tensor_core and kernel.vendor in _OF_NVIDIA:
        return "tf32"
    return kernel.dtype or taken


def _only_sixteen_bits(trace: Trace, classes: dict[int, KernelClass]) -> str | None:
    """The type of 16 bits that a recording's operators and kernels name, where they name one."""
    texts = np.unique(trace.ranges.dtypes).tolist() if len(trace.ranges) else []
    named = {floating_input_type(trace.strings[text]) for text in texts if text >= 0}
    named |= {kernel.dtype for name, kernel in classes.items() if _OPAQUE not in trace.strings[name]}
    found = named & _SIXTEEN_BITS
    return found.pop() if len(found) == 1 else None


def computed_types(
    trace: Trace, rows: NDArray[np.intp], classes: dict[int, KernelClass], operator_row: IntColumn
) -> tuple[NDArray[np.int16], list[str]]:
    """The type of each of some kernels, as indices into a list of types; -1 is unknown."""
    operator = np.asarray(operator_row)[rows].astype(np.int64)
    known = trace.ranges.dtypes[operator] if len(trace.ranges) else np.full(len(rows), -1)
    written = np.where(operator >= 0, known, -1)
    names = trace.operations.name[rows]
    first, group = group_rows([names, written])
    dtypes: list[str] = []
    codes = np.full(len(first), -1, np.int16)
    only = _only_sixteen_bits(trace, classes)
    for at, row in enumerate(first.tolist()):
        text = trace.strings[written[row]] if written[row] >= 0 else ""
        taken = floating_input_type(text)
        found = computed_type(classes[int(names[row])], taken)
        if _OPAQUE in trace.strings[names[row]]:
            found = taken or only
        if found is not None:
            if found not in dtypes:
                dtypes.append(found)
            codes[at] = dtypes.index(found)
    return codes[group], dtypes
