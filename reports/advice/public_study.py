"""What changes bring on models of public libraries: both sides timed in turns, then a trace of the first side.

    public_study.py OUT [BUDGET_S] [NAMES]

The model of prices is fixed by a commit before the run. Each model is timed in a process in which no profiler ever ran,
every change in turns with the first side; then a fresh process records three steps of the first side with shapes. Every
result is written at once: a time limit loses one model. The parent imports the libraries and never touches the GPU, so
that each process starts quickly.
"""

from __future__ import annotations

import gc
import json
import multiprocessing as mp
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import public_models as models
import torch

STARTED = time.monotonic()
TURNS = 5
LOOP_S = 0.15
WARMUP = 6
_TIMING_S, _TRACING_S = 90, 40


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


def apart(work: Callable[[str, Path], None], name: str, out: Path, limit_s: float) -> None:
    """Run in a process of its own; one that fails or hangs is told and left behind."""
    child = mp.get_context("fork").Process(target=quiet, args=(work, name, out))
    child.start()
    child.join(limit_s)
    if child.is_alive():
        child.kill()
        print(f"{name}: {work.__name__} took over {limit_s:.0f} s", flush=True)
    child.join()


def quiet(work: Callable[[str, Path], None], name: str, out: Path) -> None:
    try:
        work(name, out)
    except Exception:  # noqa: BLE001
        print(f"{name}: {traceback.format_exc(limit=-3)}", flush=True)


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    budget_s = float(sys.argv[2]) if len(sys.argv) > 2 else 1e9
    for library in ("transformers", "timm", "torchvision", "torchaudio", "torch_geometric"):
        try:
            __import__(library)
        except Exception as error:  # noqa: BLE001
            print(f"no {library}: {error}", flush=True)
    for name in sys.argv[3:] or models.MODELS:
        if time.monotonic() - STARTED > budget_s:
            print(f"{name}: no time left", flush=True)
            continue
        start = time.monotonic()
        apart(timed, name, out, _TIMING_S)
        apart(traced, name, out, _TRACING_S)
        print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
