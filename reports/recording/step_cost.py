"""What a recorded step costs against bare torch.profiler: ``python step_cost.py [ROUNDS]``.

A small GPT on the CPU, one thread: bare torch.profiler, `profkit.record` with the example's phases, and the unmarked
program as ``profkit record torch`` hears it. A step lasts from one call of the profiler's or recorder's ``step`` to the
next, so that call counts; the last one, in which the profiler stops and exports, does not. Both clocks are read in the
same steps: the wall's, and the thread's processor time, which a busy machine scatters less. Many short turns, in an order
that is reversed from round to round: other programs slow the processor's caches for seconds, and then all three alike. The
ratio of a round is that of its fastest steps; told are the median of the rounds, an interval that covers it with 95 %, and
the ratio of the fastest steps of all. On a busy machine run it before all others: ``chrt -f 1``.
"""

import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy

os.environ["KINETO_LOG_LEVEL"] = "5"
import torch

from profkit.recording.run_script import recorded as heard

SIZES = {"LAYERS": 4, "WIDTH": 128, "HEADS": 4, "CONTEXT": 64, "VOCABULARY": 512}
STEPS = 7
CLOCKS = {"wall": time.perf_counter, "processor": time.thread_time}


def load_measure():
    path = Path(__file__).parents[1] / "recorder" / "measure.py"
    spec = importlib.util.spec_from_file_location("measure", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.Training.times = times
    return module


def times(training, step_done, skipped, steps):
    """By both clocks, from one end of a step to the next; the first after the skipped ones and the last are left out."""
    ends = []
    for _ in range(skipped + steps):
        training.step()
        step_done()
        ends.append([clock() for clock in CLOCKS.values()])
    return numpy.diff(ends, axis=0)[skipped:-1]


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
    fastest = {name: [] for name in ways}
    for number in range(int(rounds)):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            fastest[name].append(ways[name](marked, unmarked, STEPS).min(axis=0))
    for column, clock in enumerate(CLOCKS):
        bare = numpy.array(fastest["bare"])[:, column]
        for name, each in fastest.items():
            found = numpy.array(each)[:, column]
            middle = measure.median_interval(list(found / bare))
            print(
                f"{clock}, {name}: {found.min() * 1e3:.1f} ms; {middle['median']:.3f} ({middle['low']:.3f} to"
                f" {middle['high']:.3f}) of bare torch.profiler; fastest of all {found.min() / bare.min():.3f}"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
