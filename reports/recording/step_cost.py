"""The processor time of a recorded step against bare torch.profiler: ``python step_cost.py [ROUNDS]``.

A small GPT on the CPU, one thread: bare torch.profiler, `profkit.record` with the example's phases, and the unmarked
program as ``profkit record torch`` hears it. Processor time, since a busy machine scatters the wall clock by more than
the 3 % that are asked about; in turns, in an order that is reversed from round to round.
"""

import importlib.util
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

os.environ["KINETO_LOG_LEVEL"] = "5"
import torch

from profkit.recording.run_script import recorded as heard

SIZES = {"LAYERS": 4, "WIDTH": 128, "HEADS": 4, "CONTEXT": 64, "VOCABULARY": 512}
STEPS = 12


def load_measure():
    path = Path(__file__).parents[1] / "recorder" / "measure.py"
    spec = importlib.util.spec_from_file_location("measure", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.time = SimpleNamespace(perf_counter=time.thread_time)
    return module


def unedited(marked, unmarked, steps):
    with (
        tempfile.TemporaryDirectory() as name,
        heard({"folder": f"{name}/run", "wait": 1, "warmup": 2, "steps": steps}),
    ):
        return unmarked.times(lambda: None, 3, steps)


def main(rounds="12"):
    torch.set_num_threads(1)
    measure = load_measure()
    marked, unmarked = (measure.Training(SIZES, annotated=annotated) for annotated in (True, False))
    ways = {"bare": measure.bare, "recorded": measure.recorded, "unedited": unedited}
    times = {name: [] for name in ways}
    for number in range(int(rounds)):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            times[name].append(statistics.median(ways[name](marked, unmarked, STEPS)))
    for name, found in times.items():
        ratio = statistics.median(a / b for a, b in zip(found, times["bare"], strict=True))
        print(f"{name}: {statistics.median(found) * 1e3:.1f} ms, {ratio:.3f} of bare torch.profiler")


if __name__ == "__main__":
    main(*sys.argv[1:])
