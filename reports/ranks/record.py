"""Record small steps on several GPUs of one machine, one profiler trace a rank, each case with one thing to be found.

    python reports/ranks/record.py                                   # all cases on 2 and on 4 GPUs, as far as there are
    python reports/ranks/record.py --out FOLDER --archive ranks.tar  # ... and in one file, to be carried home
    python reports/ranks/record.py --device cpu --out FOLDER         # the same over gloo, to try the script
    python reports/ranks/record.py --trim FOLDER                     # only make traces that are there smaller

Files hold what profkit's reader looks at, and of ``buckets``, whose steps have thousands of events, two steps instead
of three; ``--trim`` does the same to traces that were recorded before that was so.

The traces lie in ``tests/data/ranks/2_gpus`` and ``4_gpus`` afterwards (the tests take them from there), without paths,
names of hosts, or environment, and what profkit says of each case is printed. Every case is a job of its own with a
time limit: one that fails or hangs costs the others nothing.
"""

import argparse
import gzip
import json
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[2]
CASES = {
    "ddp": "few large buckets, which overlap the backward pass",
    "buckets": "a bucket for every small tensor",
    "asleep": "rank 1 sleeps 20 ms before each forward pass",
    "slow": "rank 1 multiplies matrices before each forward pass",
    "fsdp": "FullyShardedDataParallel",
    "fsdp2": "fully_shard",
    "tensor": "linear layers by column and by row, on a mesh called tp",
    "pipeline": "torch.distributed.pipelining, 1F1B: sends and receives in batches",
    "messages": "two passes of single sends and receives from rank to rank; the last rank works twice",
    "dataparallel": "one process, all devices",
}
FEW_STEPS = {"buckets": 2}
SLEEP_S, TIME_LIMIT_S = 0.020, 90
KEPT = (
    "schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit", "baseTimeNanoseconds", "traceEvents",
)  # fmt: skip
KEPT_ARGS = frozenset((
    "Collective name", "Dst Rank", "Group size", "In msg nelems", "Input Dims", "Input type", "Out msg nelems",
    "Process Group Description", "Process Group Name", "Seq", "Sequence number", "Src Rank", "block", "bytes", "context",
    "correlation", "device", "dtype", "fromDevice", "grid", "inDevice", "kind", "labels", "name", "registers per thread",
    "shared memory", "sort_index", "stream", "toDevice",
))  # fmt: skip
LOCAL_ONLY = {
    "MASTER_ADDR": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NVLS_ENABLE": "0",
    "OMP_NUM_THREADS": "1",
}


class Job:
    """What a rank knows of its case."""

    def __init__(self, case, device, rank, ranks):
        self.case, self.device, self.rank, self.ranks = case, device, rank, ranks
        on_gpu = device.type == "cuda"
        self.width, self.batch, self.layers = (2048, 2048, 6) if on_gpu else (128, 32, 6)
        if case == "buckets":
            self.width, self.layers = (256, 48) if on_gpu else (64, 40)
        self.burden = 4096 if on_gpu else 512

    def model(self):
        import torch
        from torch import nn
        from torch.nn.parallel import DataParallel, DistributedDataParallel

        torch.manual_seed(0)
        blocks = [
            nn.Sequential(nn.Linear(self.width, self.width), nn.GELU(), nn.Linear(self.width, self.width))
            for _ in range(self.layers // 2)
        ]
        model = nn.Sequential(*blocks).to(self.device)
        ids = [self.device.index] if self.device.type == "cuda" else None
        if self.case in ("ddp", "asleep", "slow"):
            return DistributedDataParallel(model, device_ids=ids)
        if self.case == "buckets":
            return DistributedDataParallel(model, device_ids=ids, bucket_cap_mb=0.05)
        if self.case == "dataparallel":
            return DataParallel(model)
        return getattr(self, f"_{self.case}", lambda made: made)(model)

    def _fsdp(self, model):
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        from torch.nn import Sequential

        policy = ModuleWrapPolicy({Sequential})
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=self.device)

    def _fsdp2(self, model):
        from torch.distributed.fsdp import fully_shard

        for block in model:
            fully_shard(block)
        return fully_shard(model)

    def _tensor(self, model):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        mesh = init_device_mesh(self.device.type, (self.ranks,), mesh_dim_names=("tp",))
        for block in model:
            parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        return model

    def step(self):
        """The function that does one step."""
        import torch
        from torch.profiler import record_function

        model = self.model()
        x = torch.randn(self.batch, self.width, device=self.device)
        if self.case == "pipeline":
            return self._pipeline_step(model, x)
        if self.case == "messages":
            return self._message_step(model, x)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        burden = torch.randn(self.burden, self.burden, device=self.device)

        def step():
            if self.rank == 1 and self.case == "asleep":
                time.sleep(SLEEP_S)
            if self.rank == 1 and self.case == "slow":
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

    def _pipeline_step(self, model, x):
        """Each rank is a stage; a step is a schedule of four micro-batches."""
        import torch
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B

        stage = PipelineStage(model, self.rank, self.ranks, self.device)
        schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
        target = torch.randn_like(x)

        def step():
            first, last = self.rank == 0, self.rank == self.ranks - 1
            schedule.step(*([x] if first else []), **({"target": target} if last else {}))

        return step

    def _message_step(self, model, x):
        import torch
        import torch.distributed as dist

        def step():
            for _ in range(4):
                if self.rank:
                    dist.recv(x, self.rank - 1)
                with torch.no_grad():
                    for _ in range(2 if self.rank == self.ranks - 1 else 1):
                        y = model(x)
                if self.rank < self.ranks - 1:
                    dist.send(y, self.rank + 1)

        return step

    def record(self, folder, steps):
        from torch.profiler import ProfilerActivity, profile, schedule

        step = self.step()
        activities = [ProfilerActivity.CPU]
        activities += [ProfilerActivity.CUDA] if self.device.type == "cuda" else []
        path = folder / f"{self.case}_rank{self.rank}.json"
        for _ in range(3):
            step()
        with profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=1, active=steps),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        ) as profiler:
            for _ in range(steps + 1):
                step()
                profiler.step()
        scrub(path)


def scrub(path):
    """Keep what a reader looks at: no name of a host, no path, no environment, no arrows."""
    trace = json.loads(path.read_bytes())
    path.unlink()
    write({key: trace[key] for key in KEPT if key in trace}, path.with_suffix(".json.gz"))


def write(trace, path):
    """A trace without what no reader of profkit looks at."""
    steps = FEW_STEPS.get(path.name.partition("_")[0])
    events = trace["traceEvents"]
    events = [
        e for e in events if e.get("ph") not in ("s", "f", "t") and e.get("cat") != "gpu_user_annotation"
    ]
    for event in events:
        if "args" in event:
            event["args"] = {k: v for k, v in event["args"].items() if k in KEPT_ARGS}
    made = {**trace, "traceEvents": first_steps(events, steps) if steps else events}
    path.write_bytes(gzip.compress(json.dumps(made, separators=(",", ":")).encode(), 9, mtime=0))


def first_steps(events, steps):
    """The events up to the end of a step, and the device work that was launched until then."""
    marks = {e["name"]: e["ts"] + e["dur"] for e in events if e["name"].startswith("ProfilerStep#")}
    if len(marks) <= steps:
        return events
    until = sorted(marks.values())[steps - 1]
    host = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
    late = {id(e) for e in events if e.get("cat") in host and e["ts"] >= until}
    launches = {e["args"].get("correlation") for e in events if id(e) in late and "args" in e} - {None, 0}
    return [e for e in events if id(e) not in late and e.get("args", {}).get("correlation") not in launches]


def work(options):
    """One rank of one case."""
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank) if options.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    job = Job(options.work, device, rank, ranks)
    if options.work == "dataparallel":
        job.record(options.out, options.steps)
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    job.record(options.out, options.steps)
    dist.barrier()
    dist.destroy_process_group()


def run(case, ranks, options, folder):
    """A job of its own; what went wrong with it, or nothing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, __file__, "--work", case, "--device", options.device, "--out", str(folder)]
    command += ["--steps", str(min(options.steps, FEW_STEPS.get(case, options.steps)))]
    with ExitStack() as stack:
        workers, told = [], []
        for rank in range(1 if case == "dataparallel" else ranks):
            own = {**LOCAL_ONLY, "MASTER_PORT": port, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            env = {**os.environ, **own, "WORLD_SIZE": str(ranks)}
            told.append(stack.enter_context(tempfile.TemporaryFile()))
            workers.append(subprocess.Popen(command, env=env, stderr=told[-1]))
            stack.callback(workers[-1].kill)
        until = time.monotonic() + TIME_LIMIT_S * (5 if options.device == "cpu" else 1)
        for worker, stderr in zip(workers, told, strict=True):
            try:
                if worker.wait(timeout=max(until - time.monotonic(), 1)):
                    stderr.seek(0)
                    return (stderr.read().decode(errors="replace").strip().splitlines() or ["?"])[-1]
            except subprocess.TimeoutExpired:
                return "it took too long"
    return ""


def say(case, folder):
    """What profkit finds in the traces of a case."""
    import profkit

    files = sorted(folder.glob(f"{case}_rank*.json.gz"))
    result = profkit.analyze(files).document
    kinds = [row["kind"] for row in result.method.get("ranks", {}).get("parallelism", [])]
    late = [row["rank"] for row in result.ranks if row["straggler"]]
    codes = [f["code"] for f in result.health["findings"] if f["severity"] == "info"]
    size = sum(file.stat().st_size for file in files) // 1000
    matched = result.method.get("ranks", {}).get("matched")
    print(f"  {case:12} {size:4} kB  {kinds}  matched {matched}  stragglers {late}  {codes}")
    print(f"               {result.verdict['sentence']}")


def pack(folder, archive):
    """All traces in one file, which says nothing of who packed it."""

    def nobody(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w") as made:
        for file in sorted(folder.glob("*_[gc]pus/*.json.gz")):
            made.add(file, file.relative_to(folder), filter=nobody)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "data" / "ranks")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ranks", type=int, nargs="*", help="2 and 4 by default, as far as there are GPUs")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--archive", type=Path, help="also pack the traces into this tar file")
    parser.add_argument(
        "--trim", type=Path, help="make the traces of this folder smaller, and record nothing"
    )
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options)
        return
    if options.trim:
        for file in sorted(options.trim.rglob("*_rank*.json.gz")):
            write(json.loads(gzip.decompress(file.read_bytes())), file)
        return
    devices = 2
    if options.device == "cuda":
        import torch

        devices = torch.cuda.device_count()
    failed = 0
    for ranks in options.ranks or [n for n in (2, 4) if n <= devices]:
        folder = options.out / (f"{ranks}_gpus" if options.device == "cuda" else f"{ranks}_cpus")
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{ranks} ranks, to {folder.name}:")
        for case in options.cases:
            problem = run(case, ranks, options, folder)
            failed += bool(problem)
            if problem:
                print(f"  {case:12} FAILED: {problem}")
            else:
                say(case, folder)
    if options.archive:
        pack(options.out, options.archive)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
