"""Record small steps on several GPUs, one profiler trace a rank, each case with one thing to be found.

    torchrun --nproc-per-node 2 reports/ranks/record.py --out tests/data/ranks            # NCCL, one GPU a rank
    torchrun --nproc-per-node 2 reports/ranks/record.py --out /tmp/try --device cpu       # gloo, to try the script

Cases: ``ddp`` (buckets of 25 MiB), ``buckets`` (of 0.05 MiB), ``asleep`` (rank 1 sleeps 20 ms before each forward
pass), ``slow`` (rank 1 multiplies matrices for about as long), ``fsdp2``, ``tensor`` (activations are gathered in the
forward pass), and on rank 0 alone ``dataparallel`` (one process, all devices). NVLink multicast is left off.
"""

import argparse
import gzip
import json
import os
import time
from pathlib import Path

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
# Ranks of one host only: no look at its network.
os.environ.setdefault("NCCL_IB_DISABLE", "1")

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

WIDTH, LAYERS, BATCH, SLEEP_S = 2048, 6, 512, 0.020
CASES = ("ddp", "buckets", "asleep", "slow", "fsdp2", "tensor")
KEPT_KEYS = (
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "traceEvents",
)


class Gathered(nn.Module):
    """A layer whose columns lie on several ranks: each makes its part, and the parts are gathered."""

    def __init__(self, width):
        super().__init__()
        self.part = nn.Linear(width, width // dist.get_world_size())

    def forward(self, x):
        return torch.cat(all_gather(self.part(x).contiguous()), dim=-1)


def model_of(case, device):
    torch.manual_seed(0)
    layer = Gathered if case == "tensor" else lambda width: nn.Linear(width, width)
    model = nn.Sequential(*(nn.Sequential(layer(WIDTH), nn.GELU()) for _ in range(LAYERS))).to(device)
    ids = [device.index] if device.type == "cuda" else None
    if case in ("ddp", "asleep", "slow"):
        return DistributedDataParallel(model, device_ids=ids)
    if case == "buckets":
        return DistributedDataParallel(model, device_ids=ids, bucket_cap_mb=0.05)
    if case == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in model:
            fully_shard(block)
        fully_shard(model)
    return DataParallel(model) if case == "dataparallel" else model


def step_of(case, model, device, rank):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(BATCH, WIDTH, device=device)
    burden = torch.randn(4096, 4096, device=device)

    def step():
        if rank == 1 and case == "asleep":
            time.sleep(SLEEP_S)
        if rank == 1 and case == "slow":
            for _ in range(8):
                burden @ burden
        with record_function("forward"):
            loss = model(x).square().mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step


def record(case, out, device, rank, steps):
    step = step_of(case, model_of(case, device), device, rank)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    path = out / f"{case}_rank{rank}.json"
    for _ in range(3):
        step()
    with profile(
        activities=activities,
        schedule=schedule(wait=0, warmup=1, active=steps),
        on_trace_ready=lambda p: p.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(steps + 1):
            step()
            profiler.step()
    scrub(path)


def scrub(path):
    """Keep what a reader looks at: no host name, no path, no environment."""
    trace = json.loads(path.read_bytes())
    kept = {key: trace[key] for key in KEPT_KEYS if key in trace}
    path.with_suffix(".json.gz").write_bytes(gzip.compress(json.dumps(kept).encode(), 9))
    path.unlink()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--cases", nargs="*", default=CASES)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rank = int(os.environ["RANK"])
    cuda = options.device == "cuda"
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    for case in options.cases:
        record(case, options.out, device, rank, options.steps)
        dist.barrier()
    if rank == 0 and cuda:
        record("dataparallel", options.out, device, rank, options.steps)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
