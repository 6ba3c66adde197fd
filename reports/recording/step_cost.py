"""The processor time of a recorded step against bare torch.profiler: ``python step_cost.py [ROUNDS]``.

A small GPT on the CPU, one thread: bare torch.profiler, `profkit.record` with the example's phases, and the unmarked
program as ``profkit record torch`` hears it. Processor time, since a busy machine scatters the wall clock by more than
the 3 % that are asked about. Many short turns, in an order that is reversed from round to round: other programs slow
the processor's caches for seconds, and then all three alike. The ratio of a round is that of its fastest steps; told are
the median of the rounds and an interval that covers it with 95 %, and the ratio of the fastest steps of all.
"""

import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

os.environ["KINETO_LOG_LEVEL"] = "5"
import torch

from profkit.recording.run_script import recorded as heard

SIZES = {"LAYERS": 4, "WIDTH": 128, "HEADS": 4, "CONTEXT": 64, "VOCABULARY": 512}
STEPS = 6


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


def main(rounds="40"):
    torch.set_num_threads(1)
    measure = load_measure()
    marked, unmarked = (measure.Training(SIZES, annotated=annotated) for annotated in (True, False))
    ways = {"bare": measure.bare, "recorded": measure.recorded, "unedited": unedited}
    times = {name: [] for name in ways}
    for number in range(int(rounds)):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            times[name].append(min(ways[name](marked, unmarked, STEPS)))
    for name, found in times.items():
        ratios = [a / b for a, b in zip(found, times["bare"], strict=True)]
        middle = measure.median_interval(ratios)
        print(
            f"{name}: {min(found) * 1e3:.1f} ms; {middle['median']:.3f} ({middle['low']:.3f} to {middle['high']:.3f}) of"
            f" bare torch.profiler; fastest of all {min(found) / min(times['bare']):.3f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
