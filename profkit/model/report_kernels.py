"""Rows of a report about work: kernels, operators and other ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from profkit.hardware.multiprocessor import OccupancyLimit
from profkit.model.names import Basis, KernelBound
from profkit.model.rows import Count, Ns, Ratio, Row

__all__ = [
    "Dim3",
    "FusionRow",
    "KernelRow",
    "OperatorRow",
    "PhaseTime",
    "RangeRow",
    "SourceRow",
]

Dim3: TypeAlias = tuple[Count, Count, Count]
"""A grid in blocks or a block in threads: x, y, z."""


class PhaseTime(Row, frozen=True, kw_only=True):
    """What a phase launched of a kernel."""

    ns: Ns
    """Its summed time."""
    count: Count | None
    """Its launches; None in a report that profkit 0.1 saved, where several phases launched the kernel."""


class KernelRow(Row, frozen=True, kw_only=True):
    """The launches of one kernel with one grid and block, and one set of input shapes where they are known."""

    name: str
    """Its full name."""
    short_name: str
    """Its name for people."""
    family: str
    """What kind of work it does: ``gemm``, ``attention``, ``elementwise``..."""
    dtype: str | None
    """The type that it computes in, e.g. ``bf16``."""
    tensor_core: bool | None
    """Whether it uses Tensor Cores."""
    grid: Dim3 | None
    """Blocks."""
    block: Dim3 | None
    """Threads of a block."""
    shapes: Sequence[Sequence[int]] | None = None
    """The operator's input shapes; None where they are not recorded."""
    mnk: tuple[Count, Count, Count] | None = None
    """Rows, columns and depth of a matrix product."""
    registers: Count | None = None
    """Registers a thread."""
    shared_bytes: Count | None = None
    """Shared memory of a block."""
    occupancy: Ratio | None = None
    """Warps that a multiprocessor runs at one time over the most that it holds, as registers, shared memory, threads and
    the grid allow. None where these or the GPU's sizes are not known."""
    occupancy_limit: OccupancyLimit | None = None
    """What keeps it from holding more."""
    waves: float | None = None
    """How often the grid fills the GPU: 1.1 waves leave nine tenths of the last one empty. Of a persistent product whose
    tile and size are known, how often its tiles do."""
    count: Count
    """Launches."""
    total_ns: Ns
    """Their summed time."""
    mean_ns: Ns
    """Their mean time, rounded."""
    median_ns: Ns
    """Their median time."""
    min_ns: Ns
    """The shortest."""
    max_ns: Ns
    """The longest."""
    share: Ratio
    """Summed time over the window's busy time."""
    bound: KernelBound
    """What limits most of its time."""
    basis: Basis
    """Where FLOP and bytes come from."""
    efficiency: float | None
    """The bounding term over the real time; None for overhead, communication and unknown work."""
    unsaturated: bool | None
    """Whether most of its time has a low efficiency: the kernel is slow, not the GPU."""
    flop: Count | None
    """Floating-point operations of all launches."""
    dram_bytes: Count | None
    """Bytes from and to device memory of all launches."""
    tflops: float | None
    """TFLOP/s."""
    gbs: float | None
    """GB/s."""
    phases: Mapping[str, PhaseTime]
    """By the path of the phase that launched it, exact."""
    operators: Mapping[str, Count]
    """Launches by operator."""
    steps: Mapping[str, Ns]
    """Time by step; empty with very many steps."""
    devices: Mapping[str, Ns]
    """Time by the report's id of the device."""
    modules: Mapping[str, Count]
    """Launches by ``nn.Module``, where the file has Python frames."""
    source_lines: Mapping[str, Count]
    """Launches by line of the program, where the file has Python frames. A compiled kernel counts at each line that it was
    fused from, where the compiler's debug folder lies beside the file."""


class OperatorRow(Row, frozen=True, kw_only=True):
    """An operator in one phase."""

    name: str
    """``aten::mm``."""
    phase: str | None
    """The path of the phase around it."""
    count: Count
    """Calls."""
    host_ns: Ns
    """Host time inside it."""
    host_self_ns: Ns
    """The same without operators inside it."""
    gpu_ns: Ns
    """Summed device time of what it launched, or operators inside it did."""
    gpu_self_ns: Ns
    """The same of what it launched itself."""


class RangeRow(Row, frozen=True, kw_only=True):
    """A named range that is no phase: steps, marks of libraries, start/end ranges."""

    domain: str | None
    """Its NVTX domain; None is the default one."""
    kind: Literal["step", "annotation", "operator", "start_end"]
    """Where it comes from."""
    name: str
    """As it was marked."""
    count: Count
    """How often it was opened."""
    host_wall_ns: Ns
    """Host time inside it."""
    gpu_inclusive_ns: Ns
    """The time in which devices ran what was launched in it: a union."""


class SourceRow(Row, frozen=True, kw_only=True):
    """A module or a function of the program, with what was launched in it."""

    kind: Literal["module", "function"]
    """Whether it is an ``nn.Module`` or a function in the user's own files."""
    name: str
    """A module's path by classes and numbers (``GPT_0/Block_3/Linear_12``), or file, line and function."""
    count: Count
    """Launches in it and in what it calls; those of the backward pass belong to the forward that they are of."""
    gpu_ns: Ns
    """Their summed time."""
    gpu_self_ns: Ns
    """The same without modules, or functions of the user's, inside it."""
    gpu_backward_ns: Ns
    """The part of ``gpu_ns`` that the backward pass launched."""
    host_ns: Ns
    """The time of the launching calls."""


class FusionRow(Row, frozen=True, kw_only=True):
    """Kernels of the median step, one after another over the same elements, that a compiler makes one of."""

    kernels: Sequence[str]
    """Their short names, in order."""
    phase: str | None
    """The path of the phase around the first."""
    count: Count
    """How often the chain is in the step."""
    total_ns: Ns
    """What its kernels take in the step."""
    dram_bytes: Count
    """Bytes that they move from and to device memory."""
    saved_bytes: Count
    """Of these, what one kernel does not move: it keeps what the next one takes."""
