"""What the recorder costs, as ratios in one run: ``python reports/recorder/measure.py [RESULT.json [SECONDS]]``.

- a phase outside a recording against a no-op context manager class, and both as decorators;
- a phase within a recording against the bare pair ``record_function`` and ``nvtx.annotate``;
- a GPT step, small and (on a GPU) of GPT-2 small's size, for SECONDS together (by default 60): annotated under
  `profkit.record` against unmarked under bare torch.profiler with the same options (``recorded``), and annotated while
  the recorder's schedule waits against unmarked without any profiler (``idle``). The four take turns, in an order that
  is reversed from round to round; each ratio is the median of the rounds with its 95 % interval;
- the training result with and without a recording; on a GPU, an out-of-memory.
"""

import contextlib
import importlib.util
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
import timeit
import warnings
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


def phase_cost(share=1.0):
    """Costs in ns, and their ratios, from a share of the usual number of calls."""
    calls, recorded_calls = round(50_000 * share), round(2_000 * share)
    costs = {
        "nothing_context": context_ns(Nothing, calls),
        "phase_context": context_ns(profkit.phase, calls),
        "nothing_decorator": decorator_ns(Nothing, calls),
        "phase_decorator": decorator_ns(profkit.phase, calls),
    }
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        costs |= {
            "pair_context": pair_ns(recorded_calls),
            "recorded_phase_context": context_ns(profkit.phase, recorded_calls),
        }
        costs |= {"pair_decorator": pair_decorator_ns(recorded_calls)}
        costs |= {"recorded_phase_decorator": decorator_ns(profkit.phase, recorded_calls)}
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


class Training:
    """A model under training, marked or not."""

    def __init__(self, sizes, *, annotated):
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.gpt = load_gpt(sizes, annotated=annotated)
        self.model, self.optimizer = self.gpt.build(self.device)
        self.generator = torch.Generator().manual_seed(1)

    def step(self):
        batch = self.gpt.next_batch(self.generator, self.device)
        return self.gpt.train_step(self.model, self.optimizer, batch)

    def times(self, step_done, skipped, steps):
        """Seconds of each step but the first ones, each waited for."""
        times = []
        for _ in range(skipped + steps):
            synchronize()
            began = time.perf_counter()
            self.step()
            synchronize()
            times.append(time.perf_counter() - began)
            step_done()
        return times[skipped:]


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


WAIT, WARMUP = 1, 2


def plain(marked, unmarked, steps):
    """Unmarked, without any profiler."""
    return unmarked.times(lambda: None, WAIT + WARMUP, steps)


def idle(marked, unmarked, steps):
    """Marked, while the recorder's schedule waits."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        run = profkit.record(Path(folder) / "run", wait=WAIT + WARMUP + steps + 1)
        with run as recorder:
            return marked.times(recorder.step, WAIT + WARMUP, steps)


def bare(marked, unmarked, steps):
    """Unmarked, under torch.profiler."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    schedule = torch.profiler.schedule(wait=WAIT, warmup=WARMUP, active=steps, repeat=1)
    with torch.profiler.profile(activities=activities, schedule=schedule, record_shapes=True) as profiler:
        return unmarked.times(profiler.step, WAIT + WARMUP, steps)


def recorded(marked, unmarked, steps):
    """Marked, under profkit.record."""
    with tempfile.TemporaryDirectory() as folder:
        run = profkit.record(Path(folder) / "run", wait=WAIT, warmup=WARMUP, steps=steps)
        with run as recorder:
            return marked.times(recorder.step, WAIT + WARMUP, steps)


WAYS = (plain, idle, bare, recorded)


def step_overhead(sizes, budget_s, steps, least=6, most=25):
    """Rounds of all four ways for so many seconds, at least six, since fewer have no 95 % interval."""
    marked, unmarked = (Training(sizes, annotated=annotated) for annotated in (True, False))
    began, rounds = time.perf_counter(), []
    for training in (marked, unmarked):
        training.times(lambda: None, 0, 5)
    while len(rounds) < least or (time.perf_counter() - began < budget_s and len(rounds) < most):
        order = WAYS if len(rounds) % 2 == 0 else WAYS[::-1]
        found = {way.__name__: statistics.median(way(marked, unmarked, steps)) for way in order}
        rounds.append(found)
    ratios = {
        name: median_interval([found[name] / found[against] for found in rounds])
        for name, against in (("recorded", "bare"), ("idle", "plain"))
    }
    ms = {
        way.__name__: round(statistics.median(found[way.__name__] for found in rounds) * 1e3, 4)
        for way in WAYS
    }
    return {"rounds": len(rounds), "steps_a_round": steps, "median_ms": ms, "ratios": ratios}


def median_interval(values):
    """The median, and the narrowest interval of order statistics that holds the true one with 95 %."""
    ordered, count = sorted(values), len(values)
    outside, drop = 2 * 0.5**count, 0
    while outside + 2 * math.comb(count, drop + 1) * 0.5**count <= 0.05:
        drop += 1
        outside += 2 * math.comb(count, drop) * 0.5**count
    return {
        "median": round(statistics.median(ordered), 4),
        "low": round(ordered[drop], 4),
        "high": round(ordered[count - 1 - drop], 4),
        "covers": round(1 - outside, 4),
        "rounds": [round(value, 4) for value in values],
    }


def trained(step_done, steps=8):
    """Losses and weights of the annotated example after some steps."""
    training = Training({}, annotated=True)
    losses = []
    for _ in range(steps):
        losses.append(training.step())
        step_done()
    return torch.stack(losses), [parameter.detach().clone() for parameter in training.model.parameters()]


def identical():
    """Whether losses and weights are the same bits with and without a recording."""
    losses, weights = trained(lambda: None)
    with tempfile.TemporaryDirectory() as folder:
        with profkit.record(Path(folder) / "run", memory=torch.cuda.is_available()) as recorder:
            recorded_losses, recorded_weights = trained(recorder.step)
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


def main(result=None, seconds="60"):
    on_gpu, budget_s = torch.cuda.is_available(), float(seconds)
    share = min(1.0, budget_s / 60)  # a trial of a few seconds makes fewer calls and steps
    measured = {
        "machine": {
            "processor": platform.machine(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
        "nvtx_tool_attached": nvtx_domain.under_nsys() or backends.nvtx_attached(),
    }
    measured["phase_cost_before_cuda"] = phase_cost(share)
    measured["gpu"] = torch.cuda.get_device_name() if on_gpu else None
    measured["identical"] = identical()
    if on_gpu:
        measured["phase_cost"] = phase_cost(share)  # again, once CUDA and its memory history were in use
        measured["gpt_step"] = step_overhead(LARGE, 0.65 * budget_s, steps=6)
    measured["gpt_step_of_the_host"] = step_overhead(
        SMALL if on_gpu else {}, 0.35 * budget_s, steps=max(3, round(10 * share))
    )
    if on_gpu:
        measured["out_of_memory"] = out_of_memory()
    text = json.dumps(measured, indent=1) + "\n"
    if result:
        Path(result).write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
