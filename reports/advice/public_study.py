"""What changes bring on models of public libraries: both sides timed in turns, then a trace of the first side.

    public_study.py OUT BUDGET_S [NAMES]

The model of prices is fixed by a commit before the run. All models are timed in a process in which no profiler ever
runs, every change in turns with the first side; then a fresh process records three steps of each first side, with
shapes. Every result is written at once: a time limit or a crash loses one model.
"""

from __future__ import annotations

import gc
import json
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import public_models as models
import torch

TURNS = 5
LOOP_S = 0.15
WARMUP = 6
_LIMIT_S = 75


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def loop(step: Callable[[], Any], count: int) -> float:
    """Milliseconds of a step, over ``count`` of them."""
    wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return (time.perf_counter() - start) / count * 1e3


def in_turns(sides: tuple[Callable[[], Any], Callable[[], Any]]) -> dict[str, Any]:
    """Medians of both sides, timed in turns, and the speed-up of each turn."""
    counts = []
    for step in sides:
        for _ in range(WARMUP):
            step()
        counts.append(max(3, round(LOOP_S * 1e3 / loop(step, 3))))
    turns = [[loop(step, n) for step, n in zip(sides, counts, strict=True)] for _ in range(TURNS)]
    ratios = [before / after for before, after in turns]
    before, after = (statistics.median(side) for side in zip(*turns, strict=True))
    return {
        "before_ms": round(before, 3),
        "after_ms": round(after, 3),
        "speedup": round(statistics.median(ratios), 4),
        "speedup_range": [round(min(ratios), 4), round(max(ratios), 4)],
    }


def timed(name: str, out: Path) -> None:
    """Every change of a model beside its first side; one line each."""
    _, way, changes = models.MODELS[name]
    first = models.step_of(name, way)
    for _ in range(WARMUP):
        first()
    loop(first, 3)
    plain = statistics.median(loop(first, max(3, round(LOOP_S * 1e3 / loop(first, 3)))) for _ in range(3))
    for change in changes:
        row: dict[str, Any] = {"model": name, "change": change, "plain_ms": round(plain, 3)}
        try:
            row |= in_turns((first, models.step_of(name, models.changed(way, change))))
        except Exception as error:  # noqa: BLE001 - one change that fails costs only itself
            row["error"] = f"{type(error).__name__}: {str(error)[:200]}"
        gc.collect()
        with (out / "pairs.jsonl").open("a") as lines:
            lines.write(json.dumps(row) + "\n")


def traced(name: str, out: Path) -> None:
    """Three steps of the first side, with shapes, as an ordinary program records them."""
    step = models.step_of(name, models.MODELS[name][1])
    for _ in range(WARMUP):
        step()
    wait()
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=3, repeat=1)
    with torch.profiler.profile(schedule=schedule, record_shapes=True) as profiler:
        for _ in range(5):
            step()
            wait()
            profiler.step()
    profiler.export_chrome_trace(str(out / f"{name}.json.gz"))


def hangs(*_: Any) -> None:
    raise TimeoutError(f"took more than {_LIMIT_S} s")


def stage(work: Callable[[str, Path], None], names: list[str], out: Path, until: float) -> None:
    """One stage for several models, in this process: each is started, then told; one that fails costs only itself."""
    signal.signal(signal.SIGALRM, hangs)
    for name in names:
        if time.time() > until:
            return
        with (out / f"{work.__name__}.txt").open("a") as started:
            started.write(name + "\n")
        start = time.monotonic()
        signal.alarm(_LIMIT_S)
        try:
            work(name, out)
        except Exception:  # noqa: BLE001
            print(f"{name}: {traceback.format_exc(limit=-3)}", flush=True)
        signal.alarm(0)
        gc.collect()
        torch.cuda.empty_cache()
        print(f"{work.__name__} {name}: {time.monotonic() - start:.1f} s", flush=True)


def survived(work: Callable[[str, Path], None], names: list[str], out: Path, until: float) -> None:
    """Run a stage in a process of its own, and again for what is left when that dies."""
    begun = out / f"{work.__name__}.txt"
    while time.time() < until:
        done = begun.read_text().split() if begun.exists() else []
        if not (left := [name for name in names if name not in done]):
            return
        subprocess.run([sys.executable, __file__, work.__name__, str(out), str(until), *left], check=False)


def main() -> None:
    if sys.argv[1] in STAGES:
        stage(STAGES[sys.argv[1]], sys.argv[4:], Path(sys.argv[2]), float(sys.argv[3]))
        return
    out, budget_s = Path(sys.argv[1]), float(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    names, now = sys.argv[3:] or list(models.MODELS), time.time()
    survived(timed, names, out, now + 0.7 * budget_s)
    begun = (out / "timed.txt").read_text().split()
    survived(traced, [name for name in names if name in begun], out, now + budget_s)


STAGES = {"timed": timed, "traced": traced}

if __name__ == "__main__":
    main()
