"""A long run: ``python -m tests.fuzz.long --seconds 3600 --seed 1 --reader kineto``.

Prints how many inputs were made, how many reached the analysis and what broke, each kind of failure once. Inputs
that broke something stay in the folder of ``--keep``; ``--only N`` makes the N-th input of a seed again. Each input
depends on the seed and its number alone.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.fuzz import kineto_inputs, nsys_inputs, snapshot_inputs
from tests.fuzz.damage import Made
from tests.fuzz.properties import MOST_SECONDS, check

READERS: dict[str, Callable[[Random], Made]] = {
    "kineto": kineto_inputs.make,
    "nsys": nsys_inputs.make,
    "snapshot": snapshot_inputs.make,
}
THOROUGH_EVERY = 10


def nth(reader: str, seed: int, number: int) -> Made:
    """The input of that number."""
    return READERS[reader](Random(f"{reader} {seed} {number}"))


def main() -> int:
    options = _options()
    failures: Counter[str] = Counter()
    runs = analysed = 0
    slowest = 0.0
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(prefix="profkit-fuzz-") as folder:
        number = options.start if options.only is None else options.only
        while time.monotonic() < end and (options.only is None or not runs):
            made = nth(options.reader, options.seed, number)
            faulthandler.dump_traceback_later(4 * MOST_SECONDS, exit=True)
            started = time.monotonic()
            try:
                analysed += check(made, Path(folder), thorough=number % THOROUGH_EVERY == 0) is None
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what the run looks for
                _note(error, failures, made, number, options)
            slowest = max(slowest, time.monotonic() - started)
            runs, number = runs + 1, number + 1
    faulthandler.cancel_dump_traceback_later()
    print(
        f"{options.reader} seed {options.seed}: {runs} inputs (to number {number - 1}), {analysed} analysed"
        f" ({analysed / max(runs, 1):.0%}), slowest {slowest:.1f} s, {failures.total()} failures of {len(failures)} kinds"
    )
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Look for inputs that break profkit.")
    parser.add_argument("--seconds", type=float, default=60.0)
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
