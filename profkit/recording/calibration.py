"""Measure the GPU that this process sees: copy bandwidth, matmul rates, `To` and `Q`.

Rates are medians by CUDA events; `To` and `Q` come from the recorder's own clock, since that is the clock whose
durations the analyzer compares with them.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from profkit.errors import RecordingError
from profkit.hardware import OVERHEAD_NS, QUEUE_NS, TENSOR, VECTOR, Gpu

__all__ = ["measure_gpu"]

_REPEATS = 15
_TINY_KERNELS = 400
_WAIT_CYCLES = 50_000_000
_SIDE = 8192
_FP64_TENSOR_CORES = ((8, 0), (9, 0), (10, 0))
"""Compute capabilities whose Tensor Cores have fp64: A100, H100, B200 and their kin."""
_QUEUE_MARGIN = 2
"""`Q` over what 99 of 100 gaps stay under: the next queue has other kernels and waits across streams. On an H200 such
gaps reach 1.5 us where those of one tiny kernel stay under 1.3, and 3 us part them from waiting (reports/calibration)."""


def measure_gpu(progress: Callable[[str], None] = lambda what: None) -> Gpu:
    """Measure the current CUDA device for about half a minute.

    Args:
        progress: Told what is measured next, for a person to follow.

    Raises:
        RecordingError: torch is not installed, it sees no CUDA device, or the device fails (its memory is full).
    """
    try:
        import torch
    except ImportError as error:
        raise RecordingError("calibrate", "torch is not installed here", "Install PyTorch") from error
    if not torch.cuda.is_available():
        raise RecordingError("calibrate", "torch sees no CUDA device", "Run it on a machine with a GPU")
    try:
        return _measured(torch, progress)
    except RuntimeError as error:
        problem = f"the GPU failed: {str(error).partition(chr(10))[0]}"
        raise RecordingError("calibrate", problem, "Run it while nothing else uses the GPU") from error


def _measured(torch: Any, progress: Callable[[str], None]) -> Gpu:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = (properties.major, properties.minor)
    progress("copy bandwidth")
    bandwidth = _bandwidth(torch)
    peaks = {}
    for dtype, unit, product in _products(torch, capability):
        progress(f"{dtype} products")
        rate = _rate(torch, product)
        if rate:
            peaks[dtype, unit] = rate
    progress("the fixed time of kernels")
    overhead_ns, queue_ns = _fixed_times(torch)
    return Gpu(
        name=properties.name,
        compute_capability=f"{capability[0]}.{capability[1]}",
        sm_count=properties.multi_processor_count,
        memory_bytes=float(properties.total_memory),
        bandwidth_bytes_per_s=bandwidth,
        peaks=peaks,
        overhead_ns=overhead_ns,
        queue_ns=queue_ns,
        source=f"measured on this GPU with torch {torch.__version__}",
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


def _products(torch: Any, capability: tuple[int, int]) -> list[tuple[str, str, Callable[[], Any]]]:
    """A large square product of random numbers in each type that this torch and GPU may have."""

    def square(dtype: Any, side: int = _SIDE, tf32: bool = False) -> Callable[[], Any]:
        def product() -> Any:
            with _tf32(torch, tf32):
                return _operands(torch, dtype, side)

        return product

    products = [
        ("bf16", TENSOR, square(torch.bfloat16)),
        ("fp16", TENSOR, square(torch.float16)),
        ("fp32", VECTOR, square(torch.float32, _SIDE // 2)),
        (
            "fp64",
            TENSOR if capability in _FP64_TENSOR_CORES else VECTOR,
            square(torch.float64, _SIDE // 2),
        ),
    ]
    if capability >= (8, 0):  # older GPUs have no TF32, and would multiply in fp32 under its name
        products.insert(2, ("tf32", TENSOR, square(torch.float32, tf32=True)))
        if hasattr(torch, "_int_mm"):
            products.append(("int8", TENSOR, lambda: _narrow_product(torch, "int8")))
    if capability >= (8, 9) and hasattr(torch, "_scaled_mm") and hasattr(torch, "float8_e4m3fn"):
        products.append(("fp8", TENSOR, lambda: _narrow_product(torch, "fp8")))
    return products


def _narrow_product(torch: Any, dtype: str) -> tuple[float, float]:
    """(operations, seconds) of one product of 8-bit numbers, through the operators that torch has for them."""
    a, b = (torch.randint(-8, 8, (_SIDE, _SIDE), device="cuda", dtype=torch.int8) for _ in range(2))
    if dtype == "int8":
        return float(2 * _SIDE**3), _median_s(torch, lambda: torch._int_mm(a, b.t()))
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    product = functools.partial(torch._scaled_mm, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    return float(2 * _SIDE**3), _median_s(torch, lambda: product(a, b.t()))


@contextlib.contextmanager
def _tf32(torch: Any, on: bool) -> Iterator[None]:
    """Products of fp32 in TF32 or not; the user's own choice comes back.

    Raises:
        RuntimeError: This torch keeps to another choice (TORCH_ALLOW_TF32_CUBLAS_OVERRIDE in some versions).
    """
    matmul = torch.backends.cuda.matmul
    switch: str = "allow_tf32"
    wanted: bool | str = on
    try:
        before = matmul.allow_tf32
    except RuntimeError:  # the program uses the switch of torch 2.9, and torch refuses to mix the two
        switch, wanted = "fp32_precision", "tf32" if on else "ieee"
        before = matmul.fp32_precision
    setattr(matmul, switch, wanted)
    try:
        if getattr(matmul, switch) != wanted:
            raise RuntimeError(f"torch keeps {switch} at {getattr(matmul, switch)}")
        yield
    finally:
        setattr(matmul, switch, before)


def _operands(torch: Any, dtype: Any, side: int) -> tuple[float, float]:
    """(FLOP, seconds) of one product."""
    a, b = (torch.randn(side, side, device="cuda", dtype=torch.float32).to(dtype) for _ in range(2))
    return float(2 * side**3), _median_s(torch, lambda: a @ b)


def _rate(torch: Any, product: Callable[[], Any]) -> float | None:
    """FLOP per second; None where the GPU or this torch lacks the type, which each says in its own words."""
    try:
        flop, seconds = product()
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError:
        return None
    finally:
        torch.cuda.empty_cache()
    return float(flop) / float(seconds) if seconds > 0 else None


def _fixed_times(torch: Any) -> tuple[float, float]:
    """(`To`, `Q`) in ns: the median tiny kernel, and twice the gap that 99 of 100 queued kernels stay under."""
    from torch.profiler import ProfilerActivity, profile

    one = torch.ones(1, device="cuda")
    one.add_(1)
    torch.cuda.synchronize()
    # With the CPU's events too: a torch without CUPTI refuses to record the GPU alone.
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        torch.cuda._sleep(_WAIT_CYCLES)  # the host runs ahead meanwhile, so that the queue is full
        for _ in range(_TINY_KERNELS):
            one.add_(1)
        torch.cuda.synchronize()
    spans = sorted(_kernel_spans(recorded))[1:]
    if len(spans) < _TINY_KERNELS // 2:
        return OVERHEAD_NS, QUEUE_NS
    gaps = sorted(after[0] - before[1] for before, after in pairwise(spans))
    overhead_ns = float(statistics.median(end - start for start, end in spans))
    return overhead_ns, float(max(_QUEUE_MARGIN * gaps[len(gaps) * 99 // 100], 1))


def _kernel_spans(recorded: Any) -> list[tuple[int, int]]:
    """(start, end) in ns of every kernel, by the recorder's clock."""
    return [
        (event.start_ns(), event.start_ns() + event.duration_ns())
        for event in recorded.profiler.kineto_results.events()
        if "CUDA" in str(event.device_type()) and event.duration_ns() > 0
    ]
