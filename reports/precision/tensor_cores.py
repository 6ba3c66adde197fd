"""Does the precision map say "Tensor Cores" of just the products whose tensor pipe was busy?

    python tensor_cores.py OUT BUDGET_S      # on a machine with a GPU and ncu: records, and scores where profkit is installed
    python tensor_cores.py score OUT         # anywhere: compares what is in OUT

Each group of products is one program. It runs once under torch.profiler with shapes, which gives the map, and once under
Nsight Compute, which counts the tensor pipe. Kernels are matched by name and order. A group that is done stays in OUT
whatever happens to the next one, and none begins that the budget does not hold. Recorded with torch 2.11 and ncu 2025.3.

Other instructions run on the tensor pipe too, one a cycle: kernels of CUDA cores show up to 2 % of it. A matrix instruction
keeps the pipe for two cycles at least (8 to 32 in what was recorded). So a kernel multiplies there if the pipe's cycles
exceed its instructions.
"""

from __future__ import annotations

import csv
import gzip
import json
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

METRICS = (
    "gpu__time_duration.sum,sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active,"
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"
)
CYCLES, INSTRUCTIONS = METRICS.split(",")[1:]
MATRIX_CYCLES = 1.5
"""Cycles an instruction, above which they are matrix instructions."""
FIRST_GUESS_S = 30.0
"""What a group takes at most, before one was timed: 18 to 24 s on an H200."""


def _matmuls(dtype: str, *, tf32: bool = False) -> Iterator[Callable[[], object]]:
    """Products of many shapes: large, skinny, a matrix and a vector, batched, misaligned, with a bias, transposed."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = tf32
    kind = getattr(torch, dtype)
    for rows, inner, columns in (
        (4096, 4096, 4096), (2048, 1024, 1000), (1023, 511, 257), (8, 4096, 4096), (128, 64, 64),
    ):  # fmt: skip
        left = torch.randn(rows, inner, device="cuda").to(kind).requires_grad_()
        layer = torch.nn.Linear(inner, columns, device="cuda", dtype=kind)
        yield lambda left=left, layer=layer: layer(left).sum().backward()
        yield lambda left=left, layer=layer: left @ layer.weight.detach().t()
    batch = torch.randn(64, 128, 64, device="cuda").to(kind)
    yield lambda: torch.bmm(batch, batch.transpose(1, 2))
    yield lambda: batch[0] @ batch[0, 0]


def _convolutions(dtype: str, *, tf32: bool = True, last: bool = False) -> Iterator[Callable[[], object]]:
    """Convolutions: of images, strided, pointwise, grouped, of each channel apart, in one dimension, transposed."""
    import torch
    from torch import nn

    torch.backends.cudnn.allow_tf32 = tf32
    kind = getattr(torch, dtype)
    order = torch.channels_last if last else torch.contiguous_format
    image = torch.randn(32, 64, 56, 56, device="cuda").to(kind).to(memory_format=order).requires_grad_()
    for layer in (
        nn.Conv2d(64, 128, 3, padding=1), nn.Conv2d(64, 64, 1), nn.Conv2d(64, 128, 7, stride=2), nn.Conv2d(64, 64, 3, groups=8),
        nn.Conv2d(64, 64, 3, groups=64), nn.ConvTranspose2d(64, 32, 2, stride=2),
    ):  # fmt: skip
        module = layer.cuda().to(kind).to(memory_format=order)
        yield lambda module=module: module(image).sum().backward()
    sound = torch.randn(16, 64, 2048, device="cuda").to(kind)
    module = nn.Conv1d(64, 128, 5).cuda().to(kind)
    yield lambda: module(sound).sum().backward()


def _attention(dtype: str) -> Iterator[Callable[[], object]]:
    """Attention by each backend that takes the type."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as attention

    torch.backends.cuda.matmul.allow_tf32 = False
    kind = getattr(torch, dtype)
    q = torch.randn(8, 12, 512, 64, device="cuda").to(kind).requires_grad_()
    for backend in (
        SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH,
    ):  # fmt: skip

        def run(backend: Any = backend) -> None:
            with sdpa_kernel(backend):
                attention(q, q, q, is_causal=True).sum().backward()

        yield run


def _recurrent(dtype: str) -> Iterator[Callable[[], object]]:
    """Recurrent networks by cuDNN."""
    import torch

    kind = getattr(torch, dtype)
    for layer in (torch.nn.LSTM(256, 256), torch.nn.GRU(256, 256)):
        module, x = layer.cuda().to(kind), torch.randn(64, 32, 256, device="cuda").to(kind)
        yield lambda module=module, x=x: module(x)[0].sum().backward()


GROUPS: dict[str, Callable[[], Iterator[Callable[[], object]]]] = {
    "bf16": lambda: _matmuls("bfloat16"),
    "fp32": lambda: _matmuls("float32"),
    "tf32": lambda: _matmuls("float32", tf32=True),
    "fp16": lambda: _matmuls("float16"),
    "fp64": lambda: _matmuls("float64"),
    "conv_fp32": lambda: _convolutions("float32", tf32=False),
    "conv_tf32": lambda: _convolutions("float32"),
    "conv_bf16": lambda: _convolutions("bfloat16"),
    "conv_fp16_last": lambda: _convolutions("float16", last=True),
    "attention_bf16": lambda: _attention("bfloat16"),
    "attention_fp32": lambda: _attention("float32"),
    "recurrent_fp32": lambda: _recurrent("float32"),
    "recurrent_fp16": lambda: _recurrent("float16"),
}


def run_group(name: str, trace: str | None) -> None:
    """Run a group's products twice; the second time is recorded, by torch.profiler or by the tool around the process."""
    import torch

    torch.manual_seed(0)
    works = []
    for work in GROUPS[name]():
        try:
            work()
            works.append(work)
        except RuntimeError as error:  # a backend that does not take the type
            print(f"left out: {str(error)[:120]}", file=sys.stderr)
    torch.cuda.synchronize()
    if trace:
        with torch.profiler.profile(record_shapes=True) as profiler:
            for work in works:
                work()
            torch.cuda.synchronize()
        profiler.export_chrome_trace(trace)
        return
    torch.cuda.cudart().cudaProfilerStart()
    for work in works:
        work()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def record(out: Path, budget_s: float) -> None:
    """Record the groups that the budget holds, each under both tools."""
    began, longest = time.monotonic(), FIRST_GUESS_S
    out.mkdir(parents=True, exist_ok=True)
    tool = shutil.which("ncu") or "ncu"
    me = [sys.executable, str(Path(__file__).resolve()), "group"]
    first = True
    for name in GROUPS:
        left = budget_s - (time.monotonic() - began)
        if left < longest:
            print(f"no time for {name} and what follows it: {left:.0f} s left", flush=True)
            break
        at = time.monotonic()
        trace, counters = out / f"{name}.json.gz", out / f"{name}.csv"
        try:
            subprocess.run([*me, name, str(trace)], check=True, timeout=left)
            left = budget_s - (time.monotonic() - began)
            with counters.with_suffix(".part").open("wb") as file:
                command = [
                    tool,
                    "--csv",
                    "--page",
                    "raw",
                    "--profile-from-start",
                    "off",
                    "--clock-control",
                    "none",
                ]
                subprocess.run(
                    [*command, "--metrics", METRICS, *me, name], stdout=file, check=True, timeout=left
                )
            counters.with_suffix(".part").rename(counters)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
        spent = time.monotonic() - at
        longest = spent * 1.5 if first else max(longest, spent * 1.5)
        first = False
        print(f"{name}: {spent:.0f} s", flush=True)


def score(out: Path) -> None:
    """Compare the map with the counters, product by product; writes scores.json."""
    rows: list[dict[str, Any]] = []
    for counters in sorted(out.glob("*.csv*")):
        group = counters.name.partition(".")[0]
        rows += _compared(group, out / f"{group}.json.gz", counters)
    wrong = [row for row in rows if row["map"] is not None and row["map"] != row["matrix_instructions"]]
    unknown = [row for row in rows if row["map"] is None]
    summary = {
        "kernels": len(rows),
        "agree": len(rows) - len(wrong) - len(unknown),
        "unknown": unknown,
        "wrong": wrong,
    }
    (out / "scores.json").write_text(json.dumps({**summary, "rows": rows}, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


def _compared(group: str, trace: Path, counters: Path) -> Iterator[dict[str, Any]]:
    """Of each product that both tools have: what the map says, and what the tensor pipe counted."""
    from profkit.readers import read
    from profkit.report.views import Options, analysed_views
    from profkit.roofline.kernel_names import classify

    counted: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, cycles, instructions in _counted(counters):
        counted[classify([name])[0].short_name].append((cycles, instructions))
    (view,) = analysed_views([read(trace)], Options())
    operations = view.trace.operations
    for row in operations.start_ns.argsort(kind="stable").tolist():
        kernel = view.work.class_of_name.get(int(operations.name[row]))
        if kernel is None or not kernel.is_product or not counted[kernel.short_name]:
            continue
        cycles, instructions = counted[kernel.short_name].pop(0)
        dtype = view.work.dtype[row]
        yield {
            "group": group,
            "kernel": view.trace.strings[operations.name[row]],
            "dtype": view.work.dtypes[dtype] if dtype >= 0 else None,
            "map": kernel.tensor_core,
            "matrix_instructions": cycles > MATRIX_CYCLES * instructions,
            "pipe_cycles_percent": cycles,
            "pipe_instructions_percent": instructions,
        }


def _counted(counters: Path) -> Iterator[tuple[str, float, float]]:
    """Of each kernel in Nsight Compute's table: its name, and cycles and instructions of the tensor pipe in % of its peak."""
    whole = counters.read_bytes()
    text = gzip.decompress(whole) if counters.suffix == ".gz" else whole
    lines = text.decode(errors="replace").splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith('"ID"'))
    for row in csv.DictReader(lines[begin:]):
        if (row["ID"] or "").isdigit():
            cycles, instructions = (float(row[name].replace(",", "")) for name in (CYCLES, INSTRUCTIONS))
            yield row["Kernel Name"], cycles, instructions


def main(arguments: list[str]) -> None:
    """What the command line asks for."""
    if arguments[0] == "group":
        run_group(arguments[1], arguments[2] if len(arguments) > 2 else None)
    elif arguments[0] == "score":
        score(Path(arguments[1]))
    else:
        out, budget_s = Path(arguments[0]), float(arguments[1])
        record(out, budget_s)
        try:
            score(out)
        except ImportError as error:
            print(f"score it where profkit is installed: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
