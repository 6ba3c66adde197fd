"""Many small files that are made to cost much: ``python -m tests.fuzz.cost --runs 5000 --processes 2``.

Each is analysed in a process of its own, and rendered in every format. Prints each that fails, or takes more than 20 s
of the processor or 1 GB; a file depends on its seed and number alone.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import profkit
from tests.fuzz.costly import costly
from tests.fuzz.grown import fields
from tests.shared import DATA

MOST_SECONDS = 20.0
MOST_BYTES = 1 << 30
_ENDED_SECONDS = 90
_ENDED_BYTES = 8 << 30
_SAID_EVERY_S = 60.0


def main() -> int:
    """Share the files among processes; 1 where a file failed."""
    parser = argparse.ArgumentParser(description="Look for small files that cost much.")
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the number of the first file")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args()
    profkit.analyze(DATA / "kineto/elementwise_chain.json.gz").render("html")  # whatever is imported late
    fields()
    end = time.monotonic() + options.seconds
    numbers = range(options.start, options.start + options.runs)
    shares = [numbers[first :: options.processes] for first in range(options.processes)]
    children = [_forked(lambda mine=share: _try(mine, options.seed, end)) for share in shares]
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


def _try(numbers: range, seed: int, end: float) -> int:
    """Try some files; 1 where one failed."""
    failed, done, most = 0, 0, (0.0, 0)
    said = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="profkit-cost-") as folder:
        made = Path(folder) / "made"
        for number in numbers:
            code, *_ = cost_of(lambda n=number: _make(seed, n, made))
            assert code == 0, f"{number} could not be made"
            field, suffix = (made / "field").read_text().split("\n")
            code, seconds, size = cost_of(lambda end=suffix: use(made, end))
            done, most = done + 1, (max(most[0], seconds), max(most[1], size))
            if code or seconds > MOST_SECONDS or size > MOST_BYTES:
                failed += 1
                print(f"{number} {field}: exit {code}, {seconds:.1f} s, {size >> 20} MiB", flush=True)
            late = time.monotonic() > end or number == numbers[-1]
            if late or time.monotonic() - said > _SAID_EVERY_S:
                said = time.monotonic()
                print(
                    f"{done} files, {failed} failed, at most {most[0]:.1f} s, {most[1] >> 20} MiB", flush=True
                )
            if late:
                break
    return 1 if failed else 0


def _make(seed: int, number: int, folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    field, made = costly(seed, number)
    if made.suffix == "run":  # beside the recordings that it tells of
        for each in (DATA / "run_gpt").iterdir():
            (folder / each.name).symlink_to(each)
        (folder / "run.json").unlink()
        (folder / "run.json").write_bytes(made.data)
    else:
        (folder / "input").write_bytes(made.data)
    (folder / "field").write_text(f"{field}\n{made.suffix}")
    return 0


def use(folder: Path, suffix: str) -> int:
    """Analyse the input in a folder, and render it in every format, unless it is refused."""
    file = folder / "input"
    try:
        if suffix == ".report":
            report = profkit.load(file.rename(file.with_suffix(".json")))
            profkit.compare(report, report).render("html")
        else:
            report = profkit.analyze(folder if suffix == "run" else file)
    except profkit.ProfkitError:
        return 0
    for format_ in ("text", "json", "md", "csv", "html"):
        report.render(format_)
    return 0


def cost_of(task: Callable[[], int]) -> tuple[int, float, int]:
    """The exit code of a task in a process of its own, its seconds of the processor, and its most bytes of memory."""

    def bounded() -> int:
        resource.setrlimit(resource.RLIMIT_CPU, (_ENDED_SECONDS, _ENDED_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (_ENDED_BYTES, _ENDED_BYTES))
        return task()

    _, status, used = os.wait4(_forked(bounded), 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def _forked(task: Callable[[], int]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        code = task()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        print(f"{type(error).__name__}: {str(error)[:300]}", flush=True)
        code = 1
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
