"""A long run: ``python -m tests.fuzz.long --runs 200000 --seed 1 --reader kineto``.

Prints how many inputs were made, how many reached the analysis and what broke, each kind of failure once. Inputs
that broke something stay in the folder of ``--keep``; ``--only N`` makes the N-th input of a seed again. Each input
depends on the seed and its number alone.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.damage import Made
from tests.fuzz.inputs import READERS, nth
from tests.fuzz.properties import MOST_SECONDS, check, check_reading

THOROUGH_EVERY = 10
ANALYSED_EVERY = {"kineto": 2, "nsys": 2, "snapshot": 1}
"""Every so many inputs are analysed, which takes three times as long as reading; the others are only read."""
_SAID_EVERY_S = 60.0
_WATCHED_S = 12 * MOST_SECONDS
"""Ten inputs that take longer by the clock on the wall end the run, with where it hangs."""


class Run:
    """Counts of one run."""

    def __init__(self, reader: str, seed: int) -> None:
        self.name = f"{reader} seed {seed}"
        self.failures: Counter[str] = Counter()
        self.runs = self.analysed = 0
        self.slowest_s = 0.0
        self.started = self.said = time.monotonic()

    def __str__(self) -> str:
        took = time.monotonic() - self.started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        return (
            f"{self.name}: {self.runs} inputs, {self.analysed} analysed ({self.analysed / max(self.runs, 1):.0%}),"
            f" slowest {self.slowest_s:.1f} s of the processor, most memory {peak} MiB, {self.failures.total()} failures of"
            f" {len(self.failures)} kinds, {self.runs / took:.0f} a second"
        )

    def say(self, *, at_last: bool = False) -> None:
        """Print the counts, no more than once a minute before the end."""
        if at_last or time.monotonic() - self.said > _SAID_EVERY_S:
            self.said = time.monotonic()
            print(self, flush=True)


def main() -> int:
    options = _options()
    run = Run(options.reader, options.seed)
    first = options.start if options.only is None else options.only
    last = first + (options.runs if options.only is None else 1)
    end = time.monotonic() + options.seconds
    nth(options.reader, options.seed, 0)
    gc.freeze()  # the recordings stay: no need to look through them again and again
    with tempfile.TemporaryDirectory(prefix="profkit-fuzz-") as folder:
        for number in range(first, last):
            if time.monotonic() > end:
                break
            if not run.runs % THOROUGH_EVERY:  # costs as much as a small input
                faulthandler.dump_traceback_later(_WATCHED_S, exit=True)
            _one(number, run, Path(folder), options)
            run.say()
    faulthandler.cancel_dump_traceback_later()
    run.say(at_last=True)
    return 1 if run.failures else 0


def _one(number: int, run: Run, folder: Path, options: argparse.Namespace) -> None:
    made = nth(options.reader, options.seed, number)
    started = time.process_time()
    try:
        if number % ANALYSED_EVERY[options.reader]:
            check_reading(made, folder)
        else:
            run.analysed += check(made, folder, thorough=number % THOROUGH_EVERY == 0) is None
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the run looks for
        _note(error, run.failures, made, number, options)
    run.slowest_s = max(run.slowest_s, time.process_time() - started)
    run.runs += 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Look for inputs that break profkit.")
    parser.add_argument("--runs", type=int, default=10**9, help="how many inputs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reader", choices=READERS, required=True)
    parser.add_argument("--start", type=int, default=0, help="the number of the first input")
    parser.add_argument("--only", type=int, help="make this input only")
    parser.add_argument("--keep", type=Path, help="where inputs that broke something are kept")
    return parser.parse_args()


def _note(
    error: Exception, failures: Counter[str], made: Made, number: int, options: argparse.Namespace
) -> None:
    frames = traceback.extract_tb(error.__traceback__)
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[:-6:-1])
    kind = f"{type(error).__name__} at {places}"
    failures[kind] += 1
    if failures[kind] > 1:
        return
    print(f"{options.reader} {number}: {kind}: {str(error)[:300]}", flush=True)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        (options.keep / f"{options.reader}-{options.seed}-{number}{made.suffix}").write_bytes(made.data)


if __name__ == "__main__":
    sys.exit(main())
