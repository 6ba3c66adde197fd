"""Steps that the host, the link or the queue limits, and probes of launches."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from workloads import BF16, Phase, Step, randn, workload


def mlp(device: str, width: int, layers: int) -> nn.Sequential:
    return nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())]).to(device)


def training(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> Step:
    def step(phase: Phase) -> Any:
        with phase("forward"):
            loss = model(x).square().mean()
        with phase("backward"):
            loss.backward()
        with phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        return loss

    return step


@workload("tiny", "launch", counters=False)
def mlp_tiny_eager(device):
    """Twelve layers of 64 units: the host cannot launch as fast as the kernels end."""
    model = mlp(device, 64, 12)
    return training(model, randn(device, 32, 64), torch.optim.Adam(model.parameters(), foreach=True))


@workload("tiny", "launch", counters=False)
def mlp_tiny_graph(device):
    """Such a step captured: no host work is left, only kernels of a few microseconds, four replays a step."""
    model = mlp(device, 64, 6)
    x = randn(device, 32, 64)
    eager = training(model, x, torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            eager(_no_phase)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        eager(_no_phase)

    def step(phase: Phase) -> Any:
        with phase("replay"):
            for _ in range(4):
                graph.replay()

    return step


@workload("tiny", "launch", counters=False)
def lstm_loop(device):
    """A recurrent cell called 20 times from Python, batch 16."""
    cell, x = nn.LSTMCell(256, 256).to(device), randn(device, 16, 256)

    def step(phase: Phase) -> Any:
        with phase("forward"), torch.no_grad():
            state = cell(x)
            for _ in range(19):
                state = cell(x, state)
        return state

    return step


@workload("tiny", "launch", counters=False)
def optimizer_many_small(device):
    """Adam a parameter at a time over 30 parameters of 4 KiB."""
    parameters = [nn.Parameter(randn(device, 32, 32)) for _ in range(30)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.Adam(parameters, foreach=False)

    def step(phase: Phase) -> Any:
        with phase("optimizer"):
            optimizer.step()

    return step


@workload("sync", "launch", counters=False)
def item_host_bound(device):
    """A wait after every small layer: the host stays the limit without them too."""
    model, x = mlp(device, 256, 8), randn(device, 64, 256)

    def step(phase: Phase) -> Any:
        with phase("forward"), torch.no_grad():
            h, total = x, 0.0
            for layer in model:
                h = layer(h)
                total += h.mean().item()
        return total

    return step


@workload("sync", "compute")
def item_gpu_bound(device):
    """One wait after milliseconds of matrix products: it costs next to nothing."""
    a, b = randn(device, 8192, 8192, dtype=BF16), randn(device, 8192, 8192, dtype=BF16)

    def step(phase: Phase) -> Any:
        with phase("forward"):
            for _ in range(3):
                c = a @ b
        with phase("log"):
            return c[0].float().sum().item()

    return step


@workload("sync", "memory")
def nonzero_gpu_bound(device):
    """A boolean mask needs its size on the host; the device is busy otherwise."""
    x = randn(device, 64 << 20)

    def step(phase: Phase) -> Any:
        with phase("filter"):
            return x[x > 0.5] * 2.0

    return step


@workload("loader", "input", counters=False)
def loader_sleep(device):
    """The host waits 10 ms for data, the device works for one."""
    a, b = randn(device, 4096, 4096, dtype=BF16), randn(device, 4096, 4096, dtype=BF16)

    def step(phase: Phase) -> Any:
        with phase("data"):
            time.sleep(0.01)
        with phase("forward"):
            for _ in range(5):
                c = a @ b
        return c

    return step


class _SlowSamples(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((256,), float(sum(i & index for i in range(8000))))


@workload("loader", "input", counters=False)
def loader_in_process(device):
    """A DataLoader without workers decodes 16 samples in Python before each step."""
    batches = iter(torch.utils.data.DataLoader(_SlowSamples(), batch_size=16))
    weight = randn(device, 256, 256)

    def step(phase: Phase) -> Any:
        x = next(batches)
        with phase("forward"):
            return x.to(device) @ weight

    return step


@workload("loader", "compute", counters=False)
def loader_hidden(device):
    """Fetching takes 2 ms of host time while the queue holds more work than that: it costs nothing."""
    a, b = randn(device, 8192, 8192, dtype=BF16), randn(device, 8192, 8192, dtype=BF16)

    def step(phase: Phase) -> Any:
        with phase("data"):
            time.sleep(0.002)
        with phase("forward"):
            for _ in range(4):
                c = a @ b
        return c

    return step


@workload("transfer", "transfer", counters=False)
def htod_pageable(device):
    """256 MiB from pageable host memory a step."""
    source = torch.randn(64 << 20)

    def step(phase: Phase) -> Any:
        with phase("upload"):
            return source.to(device).mul_(2.0)

    return step


@workload("transfer", "transfer", counters=False)
def htod_pinned(device):
    """256 MiB from pinned host memory a step, on the stream that uses it."""
    source = torch.randn(64 << 20).pin_memory()
    target = torch.empty(64 << 20, device=device)

    def step(phase: Phase) -> Any:
        with phase("upload"):
            target.copy_(source, non_blocking=True)
        with phase("forward"):
            return target.mul(2.0)

    return step


@workload("transfer", "transfer", counters=False)
def dtoh_pinned(device):
    """128 MiB of results to pinned memory a step."""
    source, target = randn(device, 32 << 20), torch.empty(32 << 20).pin_memory()

    def step(phase: Phase) -> Any:
        with phase("forward"):
            y = source.mul(2.0)
        with phase("download"):
            target.copy_(y, non_blocking=True)
            torch.cuda.synchronize()
        return target

    return step


@workload("transfer", "compute", counters=False)
def htod_overlapped(device):
    """The next batch is copied on a side stream while matrix products run: it costs nothing."""
    a, b = randn(device, 8192, 8192, dtype=BF16), randn(device, 8192, 8192, dtype=BF16)
    source, target = torch.randn(8 << 20).pin_memory(), torch.empty(8 << 20, device=device)
    side = torch.cuda.Stream()

    def step(phase: Phase) -> Any:
        with phase("prefetch"), torch.cuda.stream(side):
            target.copy_(source, non_blocking=True)
        with phase("forward"):
            for _ in range(4):
                c = a @ b
        torch.cuda.current_stream().wait_stream(side)
        return c

    return step


@workload("allocation", "other", counters=False)
def allocation_churn(device):
    """The cache is emptied every step, so every tensor is a cudaMalloc and a cudaFree."""

    def step(phase: Phase) -> Any:
        with phase("forward"):
            tensors = [torch.empty(64 << 20, device=device).fill_(1.0) for _ in range(8)]
        del tensors
        torch.cuda.empty_cache()

    return step


@workload("overlap", "compute", counters=False)
def streams_gemm_and_copy(device):
    """A memory-bound kernel runs beside matrix products on another stream."""
    a, b = randn(device, 8192, 8192, dtype=BF16), randn(device, 8192, 8192, dtype=BF16)
    x = randn(device, 32 << 20)
    side = torch.cuda.Stream()

    def step(phase: Phase) -> Any:
        side.wait_stream(torch.cuda.current_stream())
        with phase("side"), torch.cuda.stream(side):
            for _ in range(4):
                x.mul_(1.0)
        with phase("forward"):
            for _ in range(3):
                c = a @ b
        torch.cuda.current_stream().wait_stream(side)
        return c

    return step


@workload("probe", "none", counters=False)
def probe_launches(device):
    """Empty and minimal kernels by grid, in a full queue, on an idle device, across streams, in a graph."""
    source = 'extern "C" __global__ void empty_kernel() {}'
    empty = torch.cuda._compile_kernel(source, "empty_kernel")
    one, many = torch.zeros(1, device=device), torch.zeros(1 << 16, device=device)
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(40):
            one.add_(1.0)

    def full_queue(launch: Any, times: int) -> None:
        torch.cuda._sleep(8_000_000)  # a few ms: long enough to queue the rest
        for _ in range(times):
            launch()

    def across_streams() -> None:
        torch.cuda._sleep(8_000_000)
        for _ in range(20):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                one.add_(1.0)
            torch.cuda.current_stream().wait_stream(side)
            one.add_(1.0)

    def step(phase: Phase) -> Any:
        for blocks in (1, 132, 1056, 8448, 67584):
            with phase(f"empty_{blocks}"):
                full_queue(lambda n=blocks: empty(grid=(n, 1, 1), block=(128, 1, 1), args=()), 40)
        with phase("one_element"):
            full_queue(lambda: one.add_(1.0), 60)
        with phase("64k_elements"):
            full_queue(lambda: many.add_(1.0), 60)
        with phase("idle_launch"):
            for _ in range(40):
                torch.cuda.synchronize()
                one.add_(1.0)
        with phase("streams"):
            across_streams()
        with phase("graph"):
            graph.replay()
        torch.cuda.synchronize()

    return step


@workload("probe", "none")
def probe_pointwise_sizes(device):
    """Sums of 4 KiB to 256 MiB: where a kernel stops being overhead."""
    tensors = [randn(device, 1 << power) for power in range(10, 27, 2)]

    def step(phase: Phase) -> Any:
        for x in tensors:
            with phase(f"bytes_{x.nbytes}"):
                for _ in range(2):
                    y = x + 1.0
        return y

    return step


@workload("probe", "none")
def probe_gemm_sizes(device):
    """Cubes of 128 to 4096 in bf16: where a matrix product starts to saturate the card."""
    pairs = [
        (randn(device, n, n, dtype=BF16), randn(device, n, n, dtype=BF16))
        for n in (128, 256, 512, 1024, 2048, 4096)
    ]

    def step(phase: Phase) -> Any:
        for a, b in pairs:
            with phase(f"cube_{len(a)}"):
                for _ in range(2):
                    c = a @ b
        return c

    return step


def _no_phase(_: str) -> Any:
    return nullcontext()
