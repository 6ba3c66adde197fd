"""What this card reaches without a profiler: copy bandwidth, matrix rates by dtype, launch times."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def median_s(call: Callable[[], Any], repeats: int = 15) -> float:
    """Median device time of a call, by events, after a warm-up."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def bandwidths() -> dict[str, float]:
    """GB/s over tensors of 4 GiB, counting what is read and what is written."""
    x = torch.randn(1 << 30, device="cuda")
    y = torch.empty_like(x)
    host = torch.empty(64 << 20).pin_memory()
    pageable = torch.empty(64 << 20)
    gigabytes = x.nbytes / 1e9
    part = x[: 64 << 20]
    return {
        "copy": 2 * gigabytes / median_s(lambda: y.copy_(x)),
        "read": gigabytes / median_s(lambda: x.sum()),
        "write": gigabytes / median_s(lambda: y.fill_(1.0)),
        "add_broadcast": 2 * gigabytes / median_s(lambda: torch.add(x, x[:1], out=y)),
        "htod_pinned": host.nbytes / 1e9 / median_s(lambda: part.copy_(host, non_blocking=True)),
        "dtoh_pinned": host.nbytes / 1e9 / median_s(lambda: host.copy_(part, non_blocking=True)),
        "htod_pageable": host.nbytes / 1e9 / median_s(lambda: part.copy_(pageable), 5),
    }


def matrix_rates() -> dict[str, float]:
    """TFLOP/s of large cubes of random data."""

    def rate(n: int, call: Callable[[], Any]) -> float:
        return 2 * n**3 / 1e12 / median_s(call)

    rates = {}
    torch.backends.cuda.matmul.allow_tf32 = False
    for name, n, dtype in (
        ("fp32", 8192, torch.float32),
        ("bf16", 8192, torch.bfloat16),
        ("fp16", 8192, torch.float16),
        ("fp64", 4096, torch.float64),
    ):
        a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
        rates[name] = rate(n, lambda a=a, b=b: a @ b)
    torch.backends.cuda.matmul.allow_tf32 = True
    a, b = (torch.randn(8192, 8192, device="cuda") for _ in range(2))
    rates["tf32"] = rate(8192, lambda: a @ b)
    one = torch.ones((), device="cuda")
    e, f = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
    for fast in (False, True):
        rates["fp8_fast" if fast else "fp8"] = rate(
            8192,
            lambda fast=fast: torch._scaled_mm(
                e, f, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast
            ),
        )
    i = torch.randint(-8, 8, (8192, 8192), device="cuda", dtype=torch.int8)
    rates["int8"] = rate(8192, lambda: torch._int_mm(i, i.t()))
    return rates


def launches() -> dict[str, float]:
    """Microseconds: host time of a launch, and device time of a launch in a full queue and in a graph."""
    one = torch.zeros(1, device="cuda")
    count = 1000

    def many() -> None:
        for _ in range(count):
            one.add_(1.0)

    many()
    torch.cuda.synchronize()
    start = time.perf_counter()
    many()
    host = time.perf_counter() - start
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        many()

    def queued() -> float:
        torch.cuda._sleep(40_000_000)
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        many()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / count * 1e3

    return {
        "host_us": host / count * 1e6,
        "full_queue_us": statistics.median(queued() for _ in range(5)),
        "graph_node_us": median_s(graph.replay) / count * 1e6,
    }


def environment() -> dict[str, Any]:
    card = torch.cuda.get_device_properties(0)
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem", "--format=csv,noheader"]
    driver, sm_clock, memory_clock = (
        subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(", ")
    )
    return {
        "gpu": card.name,
        "sm_count": card.multi_processor_count,
        "l2_bytes": card.L2_cache_size,
        "memory_bytes": card.total_memory,
        "driver": driver,
        "max_sm_clock": sm_clock,
        "max_memory_clock": memory_clock,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    row: dict[str, Any] = {"environment": environment()}
    for part in (bandwidths, matrix_rates, launches):
        row[part.__name__] = {k: round(v, 3) for k, v in part().items()}
        torch.cuda.empty_cache()
        print(json.dumps(row[part.__name__]), flush=True)
    (out / "rates.json").write_text(json.dumps(row, indent=1))


if __name__ == "__main__":
    main()
