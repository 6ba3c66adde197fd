"""A device's figures: from the table of GPUs, the recording, and what was measured on the user's own GPU."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.hardware.gpu import Gpu
from profkit.hardware.kept import kept_calibration
from profkit.hardware.peaks_file import load_peaks
from profkit.hardware.table import named_gpu

__all__ = ["find_gpu", "stated_gpu"]


def find_gpu(
    name: str,
    *,
    memory_bytes: int | None = None,
    sm_count: int | None = None,
    bandwidth_bytes_per_s: float | None = None,
    l2_bytes: float | None = None,
) -> Gpu | None:
    """The GPU that a recording names, or None when nothing surely is it.

    The pattern with most words wins, so that ``NVIDIA H200 NVL`` is no ``H200``; among equals the one nearest
    in memory and cores. A MIG slice, or a variant with another number of cores, has its rates scaled. Peaks are
    those of the data sheet; `To` and `Q` come from ``profkit hardware calibrate`` where it ran on such a GPU,
    and of a GPU that is not in the table its measured rates stand for the peaks.

    Args:
        name: As CUDA or HIP reports it, e.g. ``NVIDIA H100 80GB HBM3`` or ``NVIDIA A100-SXM4-40GB MIG 3g.20gb``.
        memory_bytes: The device's memory, where the recording has it.
        sm_count: Its multiprocessors (compute units), where the recording has it.
        bandwidth_bytes_per_s: Peak DRAM bandwidth that the recording states; it wins over the table.
        l2_bytes: The second-level cache that the recording states; it wins over the table.
    """
    gpu, measured = named_gpu(name, memory_bytes, sm_count), kept_calibration(name)
    if gpu and measured:
        source = f"{gpu.source}; To and Q measured here"
        gpu = replace(gpu, overhead_ns=measured.overhead_ns, queue_ns=measured.queue_ns, source=source)
    gpu = gpu or measured
    if gpu is None:
        return None
    return replace(
        gpu,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s or gpu.bandwidth_bytes_per_s,
        l2_bytes=l2_bytes or gpu.l2_bytes,
    )


def stated_gpu(stated: Gpu | str | os.PathLike[str] | None) -> Gpu | None:
    """The GPU whose rates a person asks for: by its name (``H100``), or by a file with rates (``peaks.toml``).

    Raises:
        ProfkitError: It is neither.
    """
    if stated is None or isinstance(stated, Gpu):
        return stated
    if Path(stated).is_file():
        return load_peaks(Path(stated))
    found = find_gpu(os.fspath(stated))
    if found is None:
        raise ProfkitError(f"{os.fspath(stated)!r} is neither a file nor a known GPU. See: profkit hardware")
    return found
