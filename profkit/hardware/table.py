"""The table of GPUs, and the search in it by the name that a recording gives."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from profkit.hardware.gpu import TENSOR, TENSOR_HALF, VECTOR, Gpu

__all__ = ["RATE_COLUMNS", "all_gpus", "named_gpu"]

RATE_COLUMNS: Mapping[str, tuple[str, str]] = {
    "fp64": ("fp64", VECTOR),
    "fp64_tensor": ("fp64", TENSOR),
    "fp32": ("fp32", VECTOR),
    "fp16": ("fp16", VECTOR),
    "tf32_tensor": ("tf32", TENSOR),
    "fp16_tensor": ("fp16", TENSOR),
    "fp16_tensor_fp16acc": ("fp16", TENSOR_HALF),
    "bf16_tensor": ("bf16", TENSOR),
    "fp8_tensor": ("fp8", TENSOR),
    "fp8_tensor_fp16acc": ("fp8", TENSOR_HALF),
    "fp4_tensor": ("fp4", TENSOR),
    "int8_tensor": ("int8", TENSOR),
}
"""Columns of rates (in TFLOP/s) in gpus.csv and in a ``--peaks`` file."""

_NOISE = frozenset(
    {"nvidia", "tesla", "geforce", "amd", "instinct", "graphics", "gpu", "oam", "vf", "edition"}
)
_OTHER_MODEL = frozenset(
    {"ti", "super", "d", "laptop", "mobile", "max", "q", "nvl", "pcie", "ultra", "nx", "nano", "ada", "se"}
)
"""Words that make another GPU of a name: an RTX 4070 Ti is no RTX 4070."""
_MIG = re.compile(r"\bmig\s*(\d{1,2})(?:c\.\d{1,2})?(?:g)\.(\d{1,4})gb", re.ASCII | re.IGNORECASE)
_WORD = re.compile(r"[a-z0-9.+]+")
_MIG_COMPUTE_SLICES = 8
_LONGEST_NAME = 200


@cache
def _rows() -> tuple[tuple[Gpu, tuple[frozenset[str], ...]], ...]:
    text = resources.files("profkit.hardware").joinpath("gpus.csv").read_text(encoding="utf-8")
    return tuple(
        (_gpu_of(row), tuple(_words(p) for p in row["patterns"].split("|")))
        for row in csv.DictReader(text.splitlines())
    )


def all_gpus() -> list[Gpu]:
    """Every GPU of the table, in its order."""
    return [gpu for gpu, _ in _rows()]


def named_gpu(name: str, memory_bytes: int | None, sm_count: int | None) -> Gpu | None:
    """The GPU whose pattern has most words in common with a device's name, scaled to its slice or cores."""
    name = name[:_LONGEST_NAME]
    mig = _MIG.search(name)
    words = _words(name[: mig.start()] if mig else name)
    ranked = [
        (len(pattern), -_distance(gpu, memory_bytes, sm_count), gpu)
        for gpu, patterns in _rows()
        for pattern in patterns
        if pattern <= words and not (words - pattern) & _OTHER_MODEL
    ]
    if not ranked:
        return None
    gpu = max(ranked, key=lambda found: found[:2])[2]
    if mig:
        return _slice(gpu, mig, memory_bytes, sm_count, name)
    if sm_count and gpu.sm_count and sm_count != gpu.sm_count:
        return gpu.scaled(sm_count / gpu.sm_count, 1.0, gpu.name)
    return gpu


def _slice(gpu: Gpu, mig: re.Match[str], memory_bytes: int | None, sm_count: int | None, name: str) -> Gpu:
    """A MIG slice: memory comes in eighths of the GPU, cores as the slice reports or its name says."""
    whole = gpu.memory_bytes or 0.0
    size = float(memory_bytes) if memory_bytes else float(mig[2]) * 1e9
    eighths = max(1, min(8, round(size / whole * 8))) if whole else 8
    compute = int(mig[1]) / _MIG_COMPUTE_SLICES
    if sm_count and gpu.sm_count:
        compute = sm_count / gpu.sm_count
    return gpu.scaled(min(compute, 1.0), eighths / 8, name.strip())


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower())) - _NOISE


def _distance(gpu: Gpu, memory_bytes: int | None, sm_count: int | None) -> float:
    """How far the GPU is from what the recording says, for GPUs that share a name."""
    pairs: Iterable[tuple[float | None, float | None]] = (
        (memory_bytes, gpu.memory_bytes),
        (sm_count, gpu.sm_count),
    )
    return sum(abs(said / known - 1) for said, known in pairs if said and known)


def _gpu_of(row: Mapping[str, str]) -> Gpu:
    def number(column: str, unit: float) -> float | None:
        return float(row[column]) * unit if row[column] else None

    return Gpu(
        name=row["name"],
        architecture=row["architecture"],
        compute_capability=row["compute_capability"],
        sm_count=int(float(row["sm_count"])) if row["sm_count"] else None,
        memory_bytes=number("memory_gb", 1e9),
        bandwidth_bytes_per_s=number("bandwidth_gbs", 1e9),
        l2_bytes=number("l2_mb", 2**20),
        peaks={key: float(row[c]) * 1e12 for c, key in RATE_COLUMNS.items() if row[c]},
        source=f"{row['source']} ({row['confidence']} confidence)",
    )
