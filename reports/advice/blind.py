"""A blind study in one run on a GPU: record a first side, predict from the trace, only then time both sides.

    blind.py OUT [BUDGET_S] [NAMES]

The pairs (`third_pairs.py`) and the model are fixed by a commit before the run; ``blind.json`` carries the hashes of
both. For each pair it holds the prediction, made and written before either side was timed, with the SHA-256 of its
trace. Both sides are timed in a process of their own, in which no profiler ever ran, in turns: a host that is slow for a
minute is slow for both. While time is left they are timed again, minutes later. The run stops cleanly before the budget
is spent, and what it has is written after every pair; a pair that fails costs only itself.
"""

from __future__ import annotations

import gc
import hashlib
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

STARTED = time.monotonic()
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples" / "before_after")]

import predict  # noqa: E402
import record_pairs as recorder  # noqa: E402
import steps as shared  # noqa: E402
import third_pairs as study  # noqa: E402
import torch  # noqa: E402

PAIR_FILES = ("third_pairs.py", "third_models.py", "third_ways.py")
_TAKES_S = 5.0
_COMPILING_TAKES_S = 12.0
_HANGS_S = 40
_TURNS = 5
_LOOP_S = 0.04
_WARMING = 8
_WARMING_S = 70
"""Compilers fill their cache on the disk first, several at a time: nothing is timed meanwhile."""

Step = Callable[[], Any]


def hangs(*_: Any) -> None:
    raise TimeoutError(f"the pair took more than {_HANGS_S} s")


def cleaned() -> None:
    gc.collect()
    if torch.cuda.is_available() and not recorder.lost():
        torch.cuda.empty_cache()


def recorded(name: str, out: Path) -> dict[str, Any]:
    """The prediction for a pair, from a fresh trace of its first side."""
    names, workers, _, before, _ = study.PAIRS[name]
    shared.defaults()
    step = before()
    for _ in range(5):
        step()
    shared.wait()
    path = out / f"{name}.json.gz"
    recorder.trace(step, path)
    # A try on a CPU has no device to predict for, and times both sides all the same.
    return predict.from_trace(path, names, workers) if torch.cuda.is_available() else {}


def built(build: Callable[[], Step]) -> tuple[Step, tuple[str, bool]]:
    """A side, and the settings of torch that it wants: the other side may want others."""
    shared.defaults()
    return build(), (torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark)


def in_turns(name: str) -> dict[str, list[float]]:
    """Milliseconds of a step of both sides, in turns."""
    sides = [built(build) for build in study.PAIRS[name][3:5]]
    counts = []
    for step, settings in sides:
        wanting(settings)
        for _ in range(5):
            step()
        counts.append(max(3, round(_LOOP_S * 1e3 / loop(step, 2))))
    found: dict[str, list[float]] = {"before": [], "after": []}
    for _ in range(_TURNS):
        for side, (step, settings), count in zip(found, sides, counts, strict=True):
            wanting(settings)
            step()
            found[side].append(round(loop(step, count), 4))
    return found


def wanting(settings: tuple[str, bool]) -> None:
    torch.set_float32_matmul_precision(settings[0])
    torch.backends.cudnn.benchmark = settings[1]


def loop(step: Step, count: int) -> float:
    shared.wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    shared.wait()
    return (time.perf_counter() - start) / count * 1e3


def guarded(run: Callable[[], Any]) -> Any:
    """What a pair gives, or its error: each stands alone."""
    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(_HANGS_S)
    try:
        return run()
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    finally:
        signal.alarm(0)
        cleaned()


def serve() -> None:
    """Time the pairs whose names come in, one a line."""
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        print(json.dumps(guarded(partial(in_turns, line.strip()))), file=answers, flush=True)


def warm(part: str) -> None:
    """Build and run every so many of the sides that compile."""
    for name in sorted(study.COMPILED)[int(part) :: _WARMING]:
        for build in study.PAIRS[name][3:5]:
            guarded(lambda build=build: built(build)[0]())


def other_process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *arguments], text=True, **options)


def warmed() -> None:
    parts = [other_process("--warm", str(part)) for part in range(_WARMING)]
    for each in parts:
        try:
            each.wait(max(_WARMING_S - (time.monotonic() - STARTED), 1))
        except subprocess.TimeoutExpired:
            each.kill()


class Timer:
    """The process that times; one that failed may have lost its device, and is replaced."""

    def __init__(self) -> None:
        self._process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        return other_process("--time", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def asked(self, name: str) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        print(name, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline() or '{"error": "the process that times is gone"}'
        found: dict[str, Any] = json.loads(answer)
        if "error" in found:
            self.close()
            self._process = self._started()
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait(20)


def timed(timer: Timer, name: str, row: dict[str, Any]) -> None:
    found = timer.asked(name)
    if "error" in found:
        row["error"] = found["error"]
        return
    for side, loops in found.items():
        each = row.setdefault(side, {"rounds_ms": []})
        each["rounds_ms"].append(loops)
        each["step_ms"] = round(statistics.median(t for one in each["rounds_ms"] for t in one), 4)


def main(folder: str, budget: str = "450", only: str = "") -> None:
    out, wanted = Path(folder), set(filter(None, only.split(",")))
    out.mkdir(parents=True, exist_ok=True)
    names = [name for name in study.PAIRS if not wanted or name in wanted]
    hashed = hashlib.sha256(b"".join((HERE / file).read_bytes() for file in PAIR_FILES))
    found: dict[str, Any] = {
        "card": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "model_sha256": predict.model_sha256(),
        "pairs_sha256": hashed.hexdigest(),
        "pairs": {},
    }
    if study.COMPILED & set(names):
        warmed()
    timer = Timer()

    def written(name: str, row: dict[str, Any], since: float) -> None:
        found["pairs"][name] = row
        (out / "blind.json").write_text(json.dumps(found, indent=1) + "\n")
        sides = [row.get(side, {}).get("step_ms") for side in ("before", "after")]
        likely = row.get("predicted", {}).get("speedup")
        print(f"{since:6.1f} s {name} {sides} predicted {likely} {row.get('error', '')}", flush=True)

    def in_time(name: str) -> bool:
        takes = _COMPILING_TAKES_S if name in study.COMPILED else _TAKES_S
        return time.monotonic() - STARTED + takes <= float(budget)

    for name in names:
        if not in_time(name):
            print(f"{name} left out: the budget is spent", flush=True)
            continue
        predicted = guarded(partial(recorded, name, out))
        row = {"error": predicted["error"]} if "error" in predicted else {"predicted": predicted}
        written(name, row, time.monotonic() - STARTED)
        if "error" not in row:
            timed(timer, name, row)
            written(name, row, time.monotonic() - STARTED)
        if recorder.lost():
            print(f"the device is lost after {name}", flush=True)
            break
    for name in names:
        row = found["pairs"].get(name, {"error": ""})
        if "error" not in row and name not in study.COMPILED and in_time(name):
            timed(timer, name, row)
            written(name, row, time.monotonic() - STARTED)
    timer.close()


if __name__ == "__main__":
    if sys.argv[1] == "--time":
        serve()
    elif sys.argv[1] == "--warm":
        warm(sys.argv[2])
    else:
        main(*sys.argv[1:])
