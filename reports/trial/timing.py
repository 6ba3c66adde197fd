"""``python reports/trial/timing.py SECONDS CHANGES SCRIPT``: a program's step, timed by a clock of its own.

CHANGES are names joined with commas, or ``-`` for none: their hooks are installed and nothing else of a trial is.
``python reports/trial/timing.py SECONDS overhead SCRIPT`` times steps with and without what a trial listens with, in
turns within one process; ``record:FOLDER`` records some instead.

Several of these may start side by side: each prints READY once it has warmed up, and waits. A line on its standard input
lets it time some steps and print them as a line of JSON; the end of it ends the program.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from contextlib import ExitStack

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from profkit.recording.program_events import listen, unlisten
from profkit.recording.run_script import recorded, run_as_main
from profkit.recording.step_finder import StepFinder
from profkit.trial.changes import changes_named
from profkit.trial.forks import undone_in_children
from profkit.trial.losses import Losses
from profkit.trial.ratio import estimate

WARM_STEPS = 8
WARM_S = 2.0
LEAD_IN_S = 0.7
BLOCKS = 10


def wait():
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


class Steps:
    """Counts calls of optimizers; after the warm-up cuts the time into blocks of equal counts."""

    def __init__(self, seconds, each_block):
        self.seconds, self.each_block = seconds, each_block
        self.count = 0
        self.warmed = self.started = None
        self.size = self.left = 0
        self.leading_in = False
        self.lead_in_until = None
        self.recording = False
        self.times = []

    def stepped(self, *_):
        if self.recording:
            return
        self.count += 1
        if self.count == WARM_STEPS:
            wait()
            self.warmed = time.perf_counter()
            self.each_block.warmed_up()
        if self.started is None:
            self._warm()
            return
        if self.lead_in_until is not None:
            if time.perf_counter() < self.lead_in_until:
                return
            self.lead_in_until = None
            self._start()
            return
        if self.leading_in:
            self._start()
            return
        self.left -= 1
        if self.left == 0:
            self._ended()

    def _warm(self):
        if self.warmed is None or time.perf_counter() < self.warmed + WARM_S or self.count < WARM_STEPS + 4:
            return
        wait()
        step_s = (time.perf_counter() - self.warmed) / (self.count - WARM_STEPS)
        self.size = max(1, round(self.seconds / BLOCKS / step_s))
        self.started = self.warmed
        print("\nREADY", flush=True)
        self._wait_for_turn()

    def _wait_for_turn(self):
        if not sys.stdin.readline():
            os._exit(0)
        if isinstance(self.each_block, Recorded):
            self.recording = True
            self.each_block.begin()
            return
        self.times = []
        self.lead_in_until = time.perf_counter() + LEAD_IN_S

    def _start(self):
        self.leading_in = False
        self.left = self.size
        wait()
        self.started = time.perf_counter()

    def _ended(self):
        wait()
        self.times.append((time.perf_counter() - self.started) / self.size * 1e3)
        if len(self.times) < BLOCKS * self.each_block.rounds:
            self.each_block.between(len(self.times))
            self.leading_in = True
            return
        found = self.each_block.found(self.times)
        if torch.cuda.is_initialized():
            found["peak_bytes"] = torch.cuda.max_memory_allocated()
        print("\n" + json.dumps(found), flush=True)
        self._wait_for_turn()


class Changed:
    """Blocks of a program with some changes."""

    rounds = 1

    def __init__(self, names):
        self.undo = ExitStack()
        undone_in_children(self.undo)
        self.changes = changes_named(names)
        for change in self.changes:
            change.install(self.undo, self.changes)

    def warmed_up(self):
        for change in self.changes:
            change.warmed_up(self.undo)

    def between(self, done):
        pass

    def found(self, times):
        return {"step_ms": statistics.median(times), "blocks_ms": times}


class Recorded(Changed):
    """Steps that are recorded, in place of blocks."""

    def __init__(self, folder):
        super().__init__([])
        self.folder = folder

    def begin(self):
        options = {"folder": self.folder, "wait": 6, "warmup": 2, "steps": 3}
        recorder = self.undo.enter_context(recorded(options))
        recorder.when_done = self.done

    def done(self):
        print("\n" + json.dumps({"recorded_ms": 0.0}), flush=True)
        os._exit(0)


class Listening:
    """Every other pair of blocks is heard as a trial hears it: steps and losses."""

    rounds = 4

    def __init__(self):
        self.undo = ExitStack()
        self.heard = self.wanted = False
        backward = torch.Tensor.backward

        def switching(*args, **kwargs):
            if self.heard != self.wanted:  # not between hooks of an optimizer, which are being walked through
                self.switch()
            return backward(*args, **kwargs)

        torch.Tensor.backward = switching

    def warmed_up(self):
        pass

    def between(self, done):
        self.wanted = done % 4 in (1, 2)

    def switch(self):
        self.heard = self.wanted
        self.undo.close()
        self.undo = ExitStack()
        if self.heard:
            Losses().listen(self.undo)
            finder = StepFinder(lambda: None)
            listen(finder)
            self.undo.callback(unlisten, finder)

    def found(self, times):
        heard = [each for at, each in enumerate(times) if at % 4 in (1, 2)]
        bare = [each for at, each in enumerate(times) if at % 4 in (0, 3)]
        ratio = estimate(heard, bare)
        return {
            "bare_ms": statistics.median(bare),
            "heard_ms": statistics.median(heard),
            "ratio": [ratio.low, ratio.likely, ratio.high],
        }


def main():
    seconds, what, *program = sys.argv[1:]
    if what.startswith("record:"):
        blocks = Recorded(what.removeprefix("record:"))
    else:
        blocks = Listening() if what == "overhead" else Changed([] if what == "-" else what.split(","))
    steps = Steps(float(seconds), blocks)
    register_optimizer_step_post_hook(steps.stepped)
    run_as_main(program)


if __name__ == "__main__":
    # The script becomes __main__: what its worker processes unpickle must be found elsewhere.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH120, PTH100
    import timing

    timing.main()
