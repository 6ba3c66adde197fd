"""The work of an operation, and what is concluded from it: columns, one row for an operation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model.kernel_class import KernelClass

__all__ = ["Basis", "Image", "OperationBound", "OperationWork", "Work"]

Image = tuple[int, int, int]
"""Images, channels, pixels of one."""


class OperationBound(IntEnum):
    """What limits an operation."""

    COMPUTE = 0
    MEMORY = 1
    OVERHEAD = 2
    COMMUNICATION = 3
    TRANSFER = 4
    UNKNOWN = 5


class Basis(IntEnum):
    """What a bound rests on, best first."""

    MEASURED = 0
    """GPU metric samples inside the operation."""
    MODELLED = 1
    """Shapes of the operator that launched it, through its formula."""
    INFERRED = 2
    """Its name, grid, block and duration."""
    UNKNOWN = 3


@dataclass(frozen=True)
class Work:
    """The compulsory work of the kernels that share one role within an operator call."""

    flop: float = 0.0
    read_bytes: float = 0.0
    write_bytes: float = 0.0
    role: str = "main"
    """Kernels of one operator call with the same role share the work."""
    dtype: str | None = None
    """The type of the arithmetic, where the operator knows it and the kernel's name may not."""
    executed: float = 1.0
    """Arithmetic that the kernel executes for each useful operation; ``flop`` counts the useful ones."""
    exponentials: float = 0.0
    """Exponentials that attention computes besides its products, on units of their own."""
    instructions: float = 0.0
    """Instructions of its threads, where a model knows them (issue.py); 0 when unknown."""
    reread_bytes: float = 0.0
    """Bytes of ``read_bytes`` that a second pass of each block reads again, as far as they have left the cache."""
    repeated: tuple[float, float] = (0.0, 0.0)
    """Bytes of one input, and how many more times it is read as far as it has left the cache."""
    scattered: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Bytes of a table that is accessed at random places, and what further accesses to the same places read and write, as
    far as they have left the cache."""
    held: bool = False
    """The second pass runs over data that the kernel keeps on the chip as far as it fits."""
    written_early: bool = False
    """Blocks write their results all along, so that at the end these have left the cache."""
    guessed: bool = False
    """A scalar that the formula needs is not recorded; the basis is then `Basis.INFERRED`."""
    whole: bool = False
    """Each kernel does this work by itself, as every pass of a sort does."""
    images: tuple[Image, ...] = ()
    """One of these is brought into another layout; the grid tells which (layout.py)."""
    size: float = 0.0
    """Bytes of an element of these."""
    gemm: tuple[float, float, float, float] | None = None
    """Batch, rows, columns, depth of the matrix product, for the model of repeated reads."""

    @property
    def total_bytes(self) -> float:
        """Bytes read and written, each tensor once."""
        return self.read_bytes + self.write_bytes


@dataclass(frozen=True, eq=False)
class OperationWork:
    """What is known of each operation's work, in the order of `Trace.operations`."""

    flop: NDArray[np.float64]
    """Floating-point (or integer matrix) operations; NaN is unknown."""
    dram_bytes: NDArray[np.float64]
    """Bytes to and from device memory; NaN is unknown."""
    peak_flops: NDArray[np.float64]
    """FLOP/s of the unit and type that it uses; NaN is unknown."""
    compute_ns: NDArray[np.float64]
    """``flop / peak_flops`` (for grouped convolutions of what is executed), and attention's exponentials."""
    memory_ns: NDArray[np.float64]
    """``dram_bytes / bandwidth``."""
    overhead_ns: NDArray[np.float64]
    """`To` of the device."""
    bound: NDArray[np.int8]
    """`OperationBound`."""
    efficiency: NDArray[np.float64]
    """The bounding term over the real duration, at most 1; NaN where it is null, as where there is an excess."""
    unsaturated: NDArray[np.int8]
    """1 flagged, 0 not, -1 null."""
    basis: NDArray[np.int8]
    """`Basis`."""
    dtype: NDArray[np.int16]
    """The type of the arithmetic, as an index into `dtypes`; -1 is unknown."""
    product: NDArray[np.int32]
    """The matrix product that it computes or has a part in, as an index into `products`; -1 is none or unknown."""
    excess: NDArray[np.float64]
    """The rate that its work would mean, over the GPU's peak, where that is more than can be; NaN elsewhere."""
    class_of_name: dict[int, KernelClass]
    """The class of each kernel name, by string id."""
    unmodelled: dict[str, int]
    """Operators whose kernels have no formula, with the number of those kernels: counted, never zero silently."""
    dtypes: list[str]
    """Types by number."""
    products: list[tuple[int, int, int]]
    """Rows, columns and depth of products by number."""

    @classmethod
    def unknown(cls, count: int) -> OperationWork:
        """Rows of which nothing is known yet."""

        def nan() -> NDArray[np.float64]:
            return np.full(count, np.nan)

        def code(value: int) -> NDArray[Any]:
            return np.full(count, value, np.int8)

        return cls(
            flop=nan(), dram_bytes=nan(), peak_flops=nan(), compute_ns=nan(), memory_ns=nan(), overhead_ns=nan(),
            bound=code(OperationBound.UNKNOWN), efficiency=nan(), unsaturated=code(-1), basis=code(Basis.UNKNOWN),
            dtype=np.full(count, -1, np.int16), product=np.full(count, -1, np.int32), excess=nan(),
            class_of_name={}, unmodelled={}, dtypes=[], products=[],
        )  # fmt: skip
