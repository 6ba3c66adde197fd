"""What a kernel is, as far as its name tells: its family, types, unit and tile."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from profkit.hardware import TENSOR, TENSOR_HALF

__all__ = ["MATRIX_FAMILIES", "Family", "KernelClass"]

_WINOGRAD_PASS = re.compile(r"winograd\w{0,64}(?:data|delta|filter|output)\dx\d")
_HELPER = re.compile(
    r"generatewinogradtiles|offsetskernel|scal_kernel|dot_do_o|convert_dq|^globalkernel$|im2d?2?col|vol2col|col2(?:im|vol)"
)
_PARTIAL_SUMS = re.compile(
    r"splitkreduce|split_k_kernel|reduce_wgrad|reduce_1block|reducesplitk|postgsu|finalize_matmul"
    r"|attention_\w{0,24}reduce|splitkv_combine|reduce_segments"
)
_OF_VECTORS = re.compile(r"gemv|dot_kernel|gemmk1", re.IGNORECASE)
_DEPTHWISE = re.compile(r"depthwise|c1_k1|grouped_direct|shmem_tiling")


class Family(StrEnum):
    """What kind of work a kernel does."""

    COMMUNICATION = "communication"
    COPY = "copy"
    FILL = "fill"
    LAYOUT = "layout"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    GEMM = "gemm"
    NORM = "norm"
    SOFTMAX = "softmax"
    LOSS = "loss"
    OPTIMIZER = "optimizer"
    RANDOM = "random"
    INDEX = "index"
    SORT = "sort"
    REDUCE = "reduce"
    POOLING = "pooling"
    RECURRENT = "recurrent"
    FFT = "fft"
    QUANTIZE = "quantize"
    ELEMENTWISE = "elementwise"
    OTHER = "other"


MATRIX_FAMILIES = frozenset({Family.GEMM, Family.CONVOLUTION, Family.ATTENTION})
"""Families whose work is matrix products: FLOP can bound them."""


@dataclass(frozen=True)
class KernelClass:
    """What is known of a kernel from its name alone."""

    short_name: str
    """Readable, without template noise; two kernels of different work seldom share one."""
    family: Family
    dtype: str | None = None
    """The type of its inputs as the unit takes them (``tf32`` where Tensor Cores take fp32)."""
    out_dtype: str | None = None
    unit: str | None = None
    """`profkit.hardware.TENSOR`, `TENSOR_HALF` or `VECTOR`; None when the name does not tell."""
    tile: tuple[int, int, int] | None = None
    """Rows, columns and depth (0: unknown) of the block's tile, for matrix kernels."""
    operands: tuple[str | None, ...] = ()
    """Pointwise kernels: types of the arrays, the output first; None for a type that the run decides."""
    items: int | None = None
    """Pointwise kernels: elements a thread, where the name fixes them."""
    products: int = 1
    """Products that the unit makes for one that is wanted: 3 where fp32 is emulated by tf32."""
    lists: tuple[float, float] | None = None
    """Kernels over lists of tensors (optimizers): tensors read and written for each element."""
    vendor: str = ""
    """Matrix kernels: the library or compiler that the name shows, such as ``cutlass``."""
    gradient: str | None = None
    """Matrix kernels: ``dgrad`` or ``wgrad``, where the name says that it computes a convolution's gradient."""
    before_hopper: bool = False
    """Matrix kernels: built on the instructions of older GPUs (mma.sync)."""
    style: str = ""
    """Pointwise kernels: ``vectorized``, ``unrolled`` or ``strided``."""
    function: str = ""
    """The function's own name, lower case."""

    @property
    def tensor_core(self) -> bool | None:
        """Whether it runs on Tensor Cores; None when the name does not tell."""
        return None if self.unit is None else self.unit in (TENSOR, TENSOR_HALF)

    @property
    def is_half_attention(self) -> bool:
        """Whether it is attention on Tensor Cores in fp16 or bf16, which have one rate: cuDNN's names tell no more."""
        return self.family is Family.ATTENTION and self.dtype is None and self.tensor_core is True

    @property
    def is_matrix(self) -> bool:
        """Whether its work is matrix products; a depthwise convolution sums over no channels."""
        return self.family in MATRIX_FAMILIES and not self.is_depthwise

    @property
    def is_product(self) -> bool:
        """Whether it multiplies itself: libraries launch others beside it that add up, convert or lay out."""
        beside = self.is_winograd_pass or self.adds_partial_sums or _HELPER.search(self.function)
        return self.is_matrix and not beside

    @property
    def adds_partial_sums(self) -> bool:
        """Whether it only adds up what a product or attention that was split along its depth left: on CUDA cores."""
        return _PARTIAL_SUMS.search(self.function) is not None

    @property
    def is_of_vectors(self) -> bool:
        """Whether it multiplies by a vector: it reads each element once, and no library does that on Tensor Cores."""
        return self.family is Family.GEMM and _OF_VECTORS.search(self.short_name) is not None

    @property
    def is_depthwise(self) -> bool:
        """Whether it is a direct kernel for a convolution of each channel apart: limited by its instructions."""
        return self.family in MATRIX_FAMILIES and _DEPTHWISE.search(self.function) is not None

    @property
    def is_winograd_pass(self) -> bool:
        """Whether it only brings data into Winograd's domain or out of it; the products are a kernel of their own."""
        return _WINOGRAD_PASS.search(self.function) is not None

    @property
    def is_collective(self) -> bool:
        """Whether it moves data between devices."""
        return self.family is Family.COMMUNICATION
