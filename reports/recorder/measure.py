"""What the recorder costs, as ratios in one run: ``python reports/recorder/measure.py [RESULT.json]``.

- a phase outside a recording against a no-op context manager class, and both as decorators;
- a phase within a recording against the bare pair ``record_function`` and ``nvtx.annotate``;
- on a GPU: an annotated GPT step under `profkit.record` against the same step without phases under bare
  torch.profiler with the same options; the training result with and without a recording; an out-of-memory.
"""

import contextlib
import importlib.util
import json
import os
import platform
import statistics
import sys
import tempfile
import time
import timeit
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "5")

import nvtx
import torch

import profkit
from profkit.recording import backends, nvtx_domain

GPT = Path(__file__).parents[2] / "examples" / "annotated_gpt.py"


class Nothing:
    """The no-op context manager class that a phase is measured against."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        return False

    def __call__(self, function):
        def call(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return call


def context_ns(factory, calls):
    return (
        min(timeit.repeat("\nwith f('x'): pass", globals={"f": factory}, number=calls, repeat=9))
        / calls
        * 1e9
    )


def decorator_ns(factory, calls):
    function = factory("x")(lambda: None)
    return min(timeit.repeat("f()", globals={"f": function}, number=calls, repeat=9)) / calls * 1e9


def pair_ns(calls):
    code = "\nwith record('x'), nvtx.annotate('x', domain='bare'): pass"
    names = {"record": torch.profiler.record_function, "nvtx": nvtx}
    return min(timeit.repeat(code, globals=names, number=calls, repeat=9)) / calls * 1e9


def pair_decorator_ns(calls):
    function = torch.profiler.record_function("x")(nvtx.annotate("x", domain="bare")(lambda: None))
    return min(timeit.repeat("f()", globals={"f": function}, number=calls, repeat=9)) / calls * 1e9


def phase_cost():
    """Costs in ns, and their ratios."""
    costs = {
        "nothing_context": context_ns(Nothing, 50_000),
        "phase_context": context_ns(profkit.phase, 50_000),
        "nothing_decorator": decorator_ns(Nothing, 50_000),
        "phase_decorator": decorator_ns(profkit.phase, 50_000),
    }
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        costs |= {"pair_context": pair_ns(2_000), "recorded_phase_context": context_ns(profkit.phase, 2_000)}
        costs |= {"pair_decorator": pair_decorator_ns(2_000)}
        costs |= {"recorded_phase_decorator": decorator_ns(profkit.phase, 2_000)}
    ratios = {
        "outside_context": costs["phase_context"] / costs["nothing_context"],
        "outside_decorator": costs["phase_decorator"] / costs["nothing_decorator"],
        "inside_context": costs["recorded_phase_context"] / costs["pair_context"],
        "inside_decorator": costs["recorded_phase_decorator"] / costs["pair_decorator"],
    }
    return {"ns": {name: round(value, 1) for name, value in costs.items()}, "ratios": rounded(ratios)}


def rounded(ratios):
    return {name: round(value, 3) for name, value in ratios.items()}


SMALL = {"LAYERS": 6}
"""The example's sizes: the host is the limit, and every microsecond of a phase shows."""
LARGE = {"LAYERS": 12, "WIDTH": 768, "HEADS": 12, "CONTEXT": 512, "VOCABULARY": 8192}
"""GPT-2 small: the GPU is the limit."""


def load_gpt(sizes, *, annotated):
    """The example as a module; without its phases, the marks are gone altogether."""
    phase = profkit.phase
    if not annotated:
        profkit.phase = lambda name=None, **_: Unmarked()
    try:
        spec = importlib.util.spec_from_file_location("gpt", GPT)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        profkit.phase = phase
    vars(module).update(sizes)
    return module


class Unmarked(contextlib.nullcontext):
    def __call__(self, function):
        return function


def timed_steps(gpt, step_done, steps):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, optimizer = gpt.build(device)
    generator = torch.Generator().manual_seed(1)
    times, losses = [], []
    for _ in range(steps):
        synchronize()
        began = time.perf_counter()
        losses.append(gpt.train_step(model, optimizer, gpt.next_batch(generator, device)))
        synchronize()
        times.append(time.perf_counter() - began)
        step_done()
    return times, torch.stack(losses), [parameter.detach().clone() for parameter in model.parameters()]


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def step_overhead(sizes, rounds=7, wait=2, warmup=3, steps=20):
    """The recorded, annotated step against bare torch.profiler over the unmarked one; medians of rounds."""
    marked, unmarked = load_gpt(sizes, annotated=True), load_gpt(sizes, annotated=False)
    total = wait + warmup + steps
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    bare, recorded = [], []
    for _ in range(rounds):
        schedule = torch.profiler.schedule(wait=wait, warmup=warmup, active=steps, repeat=1)
        profiler = torch.profiler.profile(activities=activities, schedule=schedule, record_shapes=True)
        with profiler:
            bare.append(statistics.median(timed_steps(unmarked, profiler.step, total)[0][wait + warmup :]))
        with tempfile.TemporaryDirectory() as folder:
            with profkit.record(Path(folder) / "run", wait=wait, warmup=warmup, steps=steps) as recorder:
                times = timed_steps(marked, recorder.step, total)[0]
            recorded.append(statistics.median(times[wait + warmup :]))
    ratio = statistics.median(a / b for a, b in zip(recorded, bare, strict=True))
    return {
        "bare_ms": [round(value * 1e3, 4) for value in bare],
        "recorded_ms": [round(value * 1e3, 4) for value in recorded],
        "ratio": round(ratio, 4),
    }


def identical():
    """Whether losses and weights are the same bits with and without a recording."""
    gpt = load_gpt({}, annotated=True)
    _, losses, weights = timed_steps(gpt, lambda: None, 8)
    with tempfile.TemporaryDirectory() as folder:
        with profkit.record(Path(folder) / "run", memory=torch.cuda.is_available()) as recorder:
            _, recorded_losses, recorded_weights = timed_steps(gpt, recorder.step, 8)
        files = [path.name for path in recorder.files]
    same = torch.equal(losses, recorded_losses)
    same = same and all(torch.equal(a, b) for a, b in zip(weights, recorded_weights, strict=True))
    return {"same": same, "files": files, "problems": recorder.problems}


def out_of_memory():
    """An out-of-memory within a phase: the program's own exception, and the snapshot."""
    torch.cuda.set_per_process_memory_fraction(0.02)
    kept = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            with profkit.record(Path(folder) / "run", wait=0, warmup=0, steps=100, memory=True) as recorder:
                while True:
                    with profkit.phase("forward"):
                        kept.append(torch.ones(64 << 20, device="cuda"))
                    recorder.step()
        except torch.OutOfMemoryError as error:
            text = str(error)
        kept.clear()
        torch.cuda.set_per_process_memory_fraction(1.0)
        sizes = {path.name: path.stat().st_size for path in recorder.files}
        state = json.loads((recorder.folder / "run.json").read_text())["state"]
    return {"error": text.split(".")[0], "state": state, "bytes": sizes, "problems": recorder.problems}


def main(result=None):
    measured = {
        "machine": {
            "processor": platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "nvtx_tool_attached": nvtx_domain.under_nsys() or backends.nvtx_attached(),
    }
    measured["phase_cost_before_cuda"] = phase_cost()
    measured["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    measured["identical"] = identical()
    if torch.cuda.is_available():
        measured["phase_cost"] = phase_cost()  # again, once CUDA and its memory history were in use
        measured["gpt_step"] = step_overhead(LARGE)
        measured["gpt_step_of_the_host"] = step_overhead(SMALL)
        measured["out_of_memory"] = out_of_memory()
    text = json.dumps(measured, indent=1) + "\n"
    if result:
        Path(result).write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
