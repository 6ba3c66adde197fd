"""Measure the card that this process sees: copy bandwidth, matrix rates, `To` and `Q`.

Rates are medians by CUDA events; `To` and `Q` come from the recorder's own clock, since that is the clock whose
durations the analyzer compares with them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from profkit.errors import RecordingError
from profkit.hardware import OVERHEAD_NS, QUEUE_NS, TENSOR, VECTOR, Gpu

__all__ = ["measure_card"]

_REPEATS = 15
_TINY_KERNELS = 400
_WAIT_CYCLES = 50_000_000
_SIDE = 8192


def measure_card(progress: Callable[[str], None] = lambda what: None) -> Gpu:
    """Measure the current CUDA device for about half a minute.

    Args:
        progress: Told what is measured next, for a person to follow.

    Raises:
        RecordingError: torch is not installed, or it sees no CUDA device.
    """
    try:
        import torch
    except ImportError as error:
        raise RecordingError("calibrate", "torch is not installed here", "Install profkit[torch]") from error
    if not torch.cuda.is_available():
        raise RecordingError("calibrate", "torch sees no CUDA device", "Run it on a machine with a GPU")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    progress("copy bandwidth")
    bandwidth = _bandwidth(torch)
    peaks = {}
    for dtype, unit, product in _products(torch):
        progress(f"{dtype} products")
        rate = _rate(torch, product)
        if rate:
            peaks[dtype, unit] = rate
    progress("the fixed time of kernels")
    overhead_ns, queue_ns = _fixed_times(torch)
    return Gpu(
        name=properties.name,
        sm_count=properties.multi_processor_count,
        memory_bytes=float(properties.total_memory),
        bandwidth_bytes_per_s=bandwidth,
        peaks=peaks,
        overhead_ns=overhead_ns,
        queue_ns=queue_ns,
        source=f"measured on this card with torch {torch.__version__}",
    )


def _median_s(torch: Any, call: Callable[[], Any]) -> float:
    for _ in range(3):
        call()
    times = []
    for _ in range(_REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return float(statistics.median(times))


def _bandwidth(torch: Any) -> float:
    """Bytes per second of a large copy within the device, counting what is read and what is written."""
    free, _ = torch.cuda.mem_get_info()
    source = torch.empty(min(free // 4, 2**31), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return float(2 * source.nbytes / _median_s(torch, lambda: target.copy_(source)))


def _products(torch: Any) -> list[tuple[str, str, Callable[[], Any]]]:
    """A large square product of random numbers in each type that this torch and card may have."""

    def square(dtype: Any, side: int = _SIDE, tf32: bool = False) -> Callable[[], Any]:
        def product() -> Any:
            before = torch.backends.cuda.matmul.allow_tf32
            torch.backends.cuda.matmul.allow_tf32 = tf32
            try:
                return _operands(torch, dtype, side)
            finally:
                torch.backends.cuda.matmul.allow_tf32 = before

        return product

    return [
        ("bf16", TENSOR, square(torch.bfloat16)),
        ("fp16", TENSOR, square(torch.float16)),
        ("tf32", TENSOR, square(torch.float32, tf32=True)),
        ("fp32", VECTOR, square(torch.float32, _SIDE // 2)),
        ("fp64", TENSOR, square(torch.float64, _SIDE // 4)),
    ]


def _operands(torch: Any, dtype: Any, side: int) -> tuple[float, float]:
    """(FLOP, seconds) of one product."""
    a, b = (torch.randn(side, side, device="cuda", dtype=torch.float32).to(dtype) for _ in range(2))
    return float(2 * side**3), _median_s(torch, lambda: a @ b)


def _rate(torch: Any, product: Callable[[], Any]) -> float | None:
    """FLOP per second; None where the card or this torch lacks the type or the memory."""
    try:
        flop, seconds = product()
    except (RuntimeError, NotImplementedError):
        return None
    finally:
        torch.cuda.empty_cache()
    return float(flop) / float(seconds) if seconds > 0 else None


def _fixed_times(torch: Any) -> tuple[float, float]:
    """(`To`, `Q`) in ns: the median tiny kernel, and the gap that 99 of 100 queued kernels stay under."""
    from torch.profiler import ProfilerActivity, profile

    one = torch.ones(1, device="cuda")
    one.add_(1)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        torch.cuda._sleep(_WAIT_CYCLES)  # the host runs ahead meanwhile, so that the queue is full
        for _ in range(_TINY_KERNELS):
            one.add_(1)
        torch.cuda.synchronize()
    spans = sorted(_kernel_spans(recorded))[1:]
    if len(spans) < _TINY_KERNELS // 2:
        return OVERHEAD_NS, QUEUE_NS
    gaps = sorted(after[0] - before[1] for before, after in pairwise(spans))
    return float(statistics.median(end - start for start, end in spans)), float(
        max(gaps[len(gaps) * 99 // 100], 1)
    )


def _kernel_spans(recorded: Any) -> list[tuple[int, int]]:
    """(start, end) in ns of every kernel, by the recorder's clock."""
    return [
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in recorded.profiler.kineto_results.events()
        if "CUDA" in str(event.device_type()) and event.duration_ns() > 0
    ]
