"""Statistics of a tensor on its own device, without waiting for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "BINS",
    "DTYPES",
    "HEADER",
    "LARGEST_SAMPLE",
    "Statistics",
    "can_measure",
    "measured",
    "read",
    "sample_of",
]

BINS: Final = 256
"""Exponents of fp32, as it stores them: 0 is below its normal numbers, 255 is inf and NaN."""
LARGEST_SAMPLE: Final = 1 << 16
"""Values of a tensor that are counted by exponent: a share of 7 % is known to 0.1 %."""
DTYPES: Final = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


class Statistics(NamedTuple):
    """What `measured` found, read back."""

    norm: float
    """Euclidean, of all values."""
    largest: float
    """The largest magnitude of all values; NaN or inf where one is."""
    smallest: float
    """The smallest magnitude but zero of the sample; inf where there is none."""
    values: int
    zeros: int
    below: int
    infinite: int
    nan: int
    exponents: list[int]
    """`BINS` counts without zeros."""


HEADER: Final = len(Statistics._fields) - 1


def can_measure(value: Any) -> bool:
    """Whether a value is a tensor with statistics: dense, not empty, of a format that is known, with values."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and str(value.dtype).removeprefix("torch.") in DTYPES
        and value.layout is torch.strided
        and value.device.type != "meta"
        and value.numel() > 0
        and type(value).__name__ != "FakeTensor"
    )


def sample_of(tensor: Tensor) -> Tensor:
    """At most `LARGEST_SAMPLE` values, evenly chosen along the leading dimensions, as a view without a copy."""
    for at, size in enumerate(tensor.shape):
        stride = min(-(-tensor.numel() // LARGEST_SAMPLE), size)
        if stride > 1:
            tensor = tensor[(slice(None),) * at + (slice(None, None, stride),)]
    return tensor


def measured(tensor: Tensor) -> Tensor:
    """Statistics as `HEADER` + `BINS` numbers on the tensor's device; `read` makes `Statistics` of them.

    Values are told apart by their bits: those of a magnitude are in the order of the magnitudes.
    """
    import torch

    wide = tensor.dtype == torch.float64
    real, whole, shift = (torch.float64, torch.int64, 52) if wide else (torch.float32, torch.int32, 23)
    sample = sample_of(tensor).to(real).resolve_neg()
    magnitude = sample.reshape(-1).view(whole).bitwise_and(torch.iinfo(whole).max)
    tiny, infinity = (_bits(limit, real) for limit in (torch.finfo(tensor.dtype).tiny, float("inf")))
    zero = magnitude == 0
    exponent = magnitude >> shift
    if wide:
        exponent = (exponent - 896).clamp(0, BINS - 1)  # the biases' difference: 1023 - 127
    counted = exponent.masked_fill(zero, -1).to(torch.float32)  # what lies outside is not counted
    header = (
        torch.linalg.vector_norm(tensor, dtype=real),
        torch.linalg.vector_norm(tensor, float("inf")),
        magnitude.masked_fill(zero, infinity).min().view(real),
        torch.full((), sample.numel(), device=tensor.device),
        zero.sum(),
        (magnitude < tiny).sum() - zero.sum(),
        (magnitude == infinity).sum(),
        (magnitude > infinity).sum(),
    )
    # No torch.bincount, which waits for the device.
    bins = torch.histc(counted, BINS, 0, BINS)
    kept = torch.float32 if tensor.device.type == "mps" else torch.float64
    return torch.cat([torch.stack([value.to(kept) for value in header]), bins.to(kept)])


def read(row: list[float]) -> Statistics:
    """What one row of `measured` says."""
    norm, largest, smallest = row[:3]
    values, zeros, below, infinite, nan, *exponents = map(int, row[3:])
    return Statistics(norm, largest, smallest, values, zeros, below, infinite, nan, exponents)


def _bits(value: float, real: Any) -> int:
    import struct

    import torch

    text = struct.pack("<d" if real is torch.float64 else "<f", value)
    return int.from_bytes(text, "little")
