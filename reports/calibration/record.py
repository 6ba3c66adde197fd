"""Record the workloads on a GPU: plain times, Kineto traces, ranges for nsys and ncu. `record.sh` runs every mode.

One process loops over all workloads, since starting a process costs more than recording one.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import blind_again_workloads  # noqa: F401  (registers)
import blind_memory_workloads  # noqa: F401  (registers)
import blind_workloads  # noqa: F401  (registers)
import convolution_workloads  # noqa: F401  (registers)
import host_workloads  # noqa: F401  (registers)
import memory_workloads  # noqa: F401  (registers)
import torch
from workloads import REGISTRY, Step, Workload

STEPS = 3
WARMUP = 5
GROUPS = ("blind", "again")


@contextlib.contextmanager
def marked(name: str) -> Iterator[None]:
    """A range for NVTX and for the torch profiler."""
    torch.cuda.nvtx.range_push(name)
    try:
        with torch.profiler.record_function(name):
            yield
    finally:
        torch.cuda.nvtx.range_pop()


def unmarked(_: str) -> contextlib.nullcontext[None]:
    return contextlib.nullcontext()


def timed(step: Step, steps: int = 15) -> dict[str, Any]:
    """Step times in ms without a profiler: each waited for, and as a training loop runs."""
    single = []
    for _ in range(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step(unmarked)
        torch.cuda.synchronize()
        single.append((time.perf_counter() - start) * 1e3)
    loops = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(steps):
            step(unmarked)
        torch.cuda.synchronize()
        loops.append((time.perf_counter() - start) / steps * 1e3)
    spread = statistics.quantiles(single, n=4)
    return {
        "step_ms_sync": statistics.median(single),
        "step_ms_sync_quartiles": [spread[0], spread[2]],
        "step_ms": statistics.median(loops),
    }


def plain(step: Step, work: Workload, out: Path) -> dict[str, Any]:
    return timed(step) | {"peak_allocated_bytes": torch.cuda.max_memory_allocated()}


def kineto(step: Step, work: Workload, out: Path) -> dict[str, Any]:
    """A torch.profiler trace of three steps, with shapes."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    raw = out / f"{work.name}.json"
    with torch.profiler.profile(
        activities=activities,
        record_shapes=True,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=STEPS),
        on_trace_ready=lambda p: p.export_chrome_trace(str(raw)),
    ) as profiler:
        for _ in range(STEPS + 1):
            step(marked)
            profiler.step()
    (out / f"{work.name}.json.gz").write_bytes(gzip.compress(raw.read_bytes(), 9, mtime=0))
    raw.unlink()
    return {}


def capture(step: Step, shapes: bool) -> None:
    """Three steps inside nsys' capture range."""
    emit = torch.autograd.profiler.emit_nvtx(record_shapes=True) if shapes else contextlib.nullcontext()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    try:
        with emit:
            for _ in range(STEPS):
                with marked("step"):
                    step(marked)
        torch.cuda.synchronize()
    finally:
        torch.cuda.profiler.stop()


def nsys(step: Step, work: Workload, out: Path) -> dict[str, Any]:
    capture(step, shapes=False)
    return {}


def emit(step: Step, work: Workload, out: Path) -> dict[str, Any]:
    capture(step, shapes=True)
    return {}


def ncu(step: Step, work: Workload, out: Path) -> dict[str, Any]:
    """One step inside the counters' range; a spin kernel ahead of it separates the workloads in ncu's list."""
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    try:
        torch.cuda._sleep(1000)
        step(marked)
        torch.cuda.synchronize()
    finally:
        torch.cuda.profiler.stop()
    return {}


def dry(step: Step, work: Workload, out: Path) -> dict[str, Any]:
    return {}


MODES: dict[str, Callable[[Step, Workload, Path], dict[str, Any]]] = {
    f.__name__: f for f in (plain, kineto, nsys, emit, ncu, dry)
}


def defaults() -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = True


def run(work: Workload, mode: str, out: Path, device: str) -> dict[str, Any]:
    """One workload in one mode; an error is a row too, since each workload stands alone.

    ``started`` says whether it came as far as its recording, which nsys and ncu then count.
    """
    row: dict[str, Any] = {"name": work.name, "mode": mode, "started": False}
    start = time.perf_counter()
    try:
        defaults()
        step = work.build(device)
        for _ in range(WARMUP):
            step(unmarked)
        if device == "cuda":
            torch.cuda.synchronize()
        row["started"] = True
        row |= MODES[mode](step, work, out)
    except Exception as error:  # noqa: BLE001  (a missing backend must not end the study)
        row["error"] = f"{type(error).__name__}: {error}"[:300]
    step = None
    if device == "cuda":
        torch.compiler.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return row | {"took_s": round(time.perf_counter() - start, 3)}


def wanted(work: Workload, mode: str, only: set[str]) -> bool:
    if only and work.name not in only:
        return False
    if mode == "ncu":
        return work.counters
    if mode == "emit":  # its shapes serve kernels; other host-bound steps would only grow
        return (work.counters and work.kind != "compiled") or work.kind in ("loader", "sync")
    return not (mode == "plain" and work.kind == "probe")


def names(text: str) -> set[str]:
    """The workloads that are named, or that a group (`blind`, `again`) holds; empty for all."""
    only = {n for n in text.split(",") if n}
    for blind, group in enumerate(GROUPS, 1):
        if group in only:
            only = only - {group} | {work.name for work in REGISTRY.values() if work.blind == blind}
    unknown = only - set(REGISTRY)
    if unknown:
        sys.exit(f"no workload named {sorted(unknown)}")
    return only


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument(
        "--only",
        default="",
        help="names, comma-separated; `blind` and `again` stand for the blind ones of either round",
    )
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    only = names(args.only)
    with (args.out / f"{args.mode}.jsonl").open("a") as rows:
        for work in sorted(REGISTRY.values(), key=lambda work: work.blind):  # blind ones last
            if wanted(work, args.mode, only):
                row = run(work, args.mode, args.out, args.device)
                print(json.dumps(row), file=rows, flush=True)
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
