"""Memory and time of changed steps of public models: predicted from one recording, then measured on a GPU.

    HF_HUB_OFFLINE=1 PYTHONPATH=. python3 reports/memory/public_study.py OUT BUDGET_S [NAMES]

For each model a fresh process records the step as it is (`profkit.record`, memory and trace). Another one predicts each
change with `profkit.fit` and writes ``predictions.jsonl``. Only then is each change measured, in a process of its own:
``measured.jsonl`` gets the peaks of allocated and reserved memory, and the time of a step. Some rows have a limit
(`torch.cuda.set_per_process_memory_fraction`): does it run? ``max`` is the largest batch that profkit names, and one 15 %
larger.

Processes import and build in parallel; one at a time has the GPU. Rows are written at once, and models take turns: a
time limit costs the last changes of each, and the unchanged step comes last. The recordings are packed into some
``runs_*.tar.xz`` for looking into what was missed.
``public_score.py OUT`` scores. With ``QUIET=1`` nothing loads while something is measured, for the times of steps that the host
paces. ``TINY=1`` tries everything on a CPU with
tiny models: nothing is measured, and STAND_IN names a run folder to predict from.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import queue
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
QUIET = bool(os.environ.get("QUIET"))
WORKERS = 16 if QUIET else 10
_CHILD_S = 120
_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
_ARCHIVES = 3
"""The recordings of twenty models are larger than one file may be on the way back."""
_TURN_OF_BASE = 20
LIMITS = (0.96, 1.08, 1.2)
"""Of the likely peak: for the first two changes of a limited model, whether the step runs in so much."""
ROOM = 2.5
"""The largest batch is asked for in so many times what the recorded step reserves."""
LARGER = 1.15


def wait() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ready() -> None:
    """Tell that all is prepared; return when this process has the GPU."""
    wait()  # the context is made beside other processes: nothing is allocated in it
    print("ready", flush=True)
    sys.stdin.readline()


def leave() -> None:
    """Another process may have the GPU."""
    wait()
    print("free", flush=True)


def record(out: Path, name: str) -> None:
    """The step as it is, for `predict`."""
    import public_steps as steps

    import profkit

    way, folder = steps.MODELS[name].way, out / "runs" / name
    model, inputs = steps.make(name, way)
    ready()
    step = steps.place(model, inputs, way)
    on_gpu = steps.DEVICE == "cuda"
    with profkit.record(folder, memory=on_gpu, wait=2, warmup=2, steps=3) as recorder:
        for _ in range(8):
            step()
            recorder.step()
        leave()
    if not on_gpu:
        shutil.copytree(os.environ["STAND_IN"], folder, dirs_exist_ok=True)


def predict(out: Path, name: str) -> None:
    """What profkit says of each change of a model, and of some limits."""
    import public_steps as steps

    import profkit

    folder, known = out / "runs" / name, steps.MODELS[name]

    def say(change: str, limit: float | None = None, **more: Any) -> Any:
        start = time.monotonic()
        row: dict[str, Any] = {"model": name, "change": change, "limit_bytes": limit and round(limit)}
        found = None
        try:
            found = profkit.fit(folder, **{**steps.asked(change), **more}, memory_bytes=row["limit_bytes"])
            after = found.after
            row |= {
                "peak": interval(after.peak_bytes),
                "reserved": interval(after.reserved_bytes),
                "step_ns": interval(after.step_ns),
                "fits": found.fits,
                "batch": int(known.batch * float(found.settings.get("batch", 1))),
            }
        except Exception as error:  # noqa: BLE001 - a refusal is an answer, and counts
            row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
        row["seconds"] = round(time.monotonic() - start, 2)
        append(out / "predictions.jsonl", {**row, **({"max": True} if more else {})})
        return found

    for i, change in enumerate(known.changes.split()):
        found = say(change)
        if not known.limited or found is None:
            continue
        if i < 2:
            for share in LIMITS:
                say(change, share * found.after.peak_bytes.likely)
        if i == 0:
            say("base", ROOM * found.after.reserved_bytes.likely, batch="max")


def interval(found: Any) -> list[float] | None:
    return None if found is None else [found.low, found.likely, found.high]


def measure(out: Path, name: str, change: str, limit: str, batch: str) -> None:
    """One change in this process: peaks after three steps of warm-up, and of the whole run."""
    import public_steps as steps
    import torch

    way = steps.changed(steps.MODELS[name].way, change)
    row: dict[str, Any] = {
        "model": name,
        "change": change,
        "limit_bytes": int(limit) or None,
        "batch": int(batch),
    }
    model, inputs = steps.make(name, way, int(batch) or None)
    ready()
    on_gpu = steps.DEVICE == "cuda"
    if on_gpu:
        total = torch.cuda.get_device_properties(0).total_memory
        row |= {"card_bytes": total, "gpu": torch.cuda.get_device_name()}
        if row["limit_bytes"]:
            torch.cuda.set_per_process_memory_fraction(min(row["limit_bytes"] / total, 1.0))
    try:
        row |= run(steps.place(model, inputs, way), on_gpu)
        row["out_of_memory"] = False
    except torch.OutOfMemoryError:
        row["out_of_memory"] = True
    except Exception:  # noqa: BLE001 - one change that fails costs only itself
        row["error"] = traceback.format_exc(limit=-2)[-600:]
    append(out / "measured.jsonl", row)
    leave()


def run(step: Callable[[], None], on_gpu: bool) -> dict[str, Any]:
    """Peaks and the time of a step."""
    import torch

    def loop(count: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(count):
            step()
        wait()
        return (time.perf_counter() - start) / count * 1e3

    found: dict[str, Any] = {}
    first_ms, once_ms = loop(2), loop(1)
    if on_gpu:
        found["first_peak_bytes"] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    count = min(max(round(200 / once_ms), 2), 30)
    times = sorted(loop(count) for _ in range(3))
    found |= {"step_ms": round(times[1], 3), "steps": 3 * count, "first_ms": round(first_ms, 1)}
    if on_gpu:
        found |= {
            "peak_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
            "retries": torch.cuda.memory_stats()["num_alloc_retries"],
        }
    return found


def append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Study:
    """Tasks in order of their turn; some workers, of whom one at a time has the GPU."""

    def __init__(self, out: Path, until: float) -> None:
        self.out, self.until = out, until
        self.gpu = threading.Lock()
        self.turn = threading.Condition()
        self.loading = self.waiting = 0
        self.tasks: queue.PriorityQueue[tuple[int, int, tuple[str, ...]]] = queue.PriorityQueue()
        self.count = 0
        self.counting = threading.Lock()

    def add(self, turn: int, *task: str) -> None:
        with self.counting:
            self.count += 1
            self.tasks.put((turn, self.count, task))

    def work(self) -> None:
        """Do tasks until none is left, or the time is over."""
        while time.time() < self.until:
            try:
                turn, _, task = self.tasks.get(timeout=1)
            except queue.Empty:
                if self.tasks.unfinished_tasks == 0:
                    return
                continue
            try:
                self.do(turn, task)
            finally:
                self.tasks.task_done()

    def do(self, turn: int, task: tuple[str, ...]) -> None:
        self.begin()
        start = time.monotonic()
        stage, name = task[:2]
        ended = self.child(task, gpu=stage != "predict")
        print(f"{time.monotonic() - start:5.1f} s  {' '.join(task)}  {ended}", flush=True)
        if stage == "record" and ended == "done":
            self.add(turn, "predict", name)
        elif stage == "predict":
            self.measure_all(name)

    def measure_all(self, name: str) -> None:
        """Everything that was said of a model, the limits of a change in the turn behind it."""
        said = [row for row in rows(self.out / "predictions.jsonl") if row["model"] == name]
        plain = [row for row in said if row["limit_bytes"] is None]
        largest = [row for row in said if row.get("max") and "error" not in row]
        limited = [row for row in said if row["limit_bytes"] and not row.get("max")]
        for turn, row in enumerate(plain):
            late = _TURN_OF_BASE if row["change"] == "base" else 0
            self.add(late + turn + 1, "measure", name, row["change"], "0", "0")
        for row in largest:
            for batch in (row["batch"], -int(-row["batch"] * LARGER // 1)):
                self.add(4, "measure", name, "base", str(row["limit_bytes"]), str(batch))
        for place, row in enumerate(limited):
            self.add(2 + place // len(LIMITS), "measure", name, row["change"], str(row["limit_bytes"]), "0")

    def begin(self) -> None:
        """A process begins to load, in a quiet study not before all that wait have been measured."""
        with self.turn:
            self.turn.wait_for(lambda: not QUIET or not self.waiting or time.time() > self.until)
            self.loading += 1

    def loaded(self, *, waits: bool) -> None:
        with self.turn:
            self.loading -= 1
            self.waiting += waits
            self.turn.notify_all()

    def quiet(self) -> None:
        """Wait until nothing loads, in a quiet study."""
        with self.turn:
            self.turn.wait_for(lambda: not QUIET or not self.loading or time.time() > self.until)

    def left(self) -> None:
        with self.turn:
            self.waiting -= 1
            self.turn.notify_all()

    def child(self, task: tuple[str, ...], gpu: bool) -> str:
        """Run a stage in a process of its own, which gets the GPU when it is ready for it."""
        command = [sys.executable, __file__, task[0], str(self.out), *task[1:]]
        grows = {_ALLOCATOR: "expandable_segments:True"} if task[1].endswith("_expandable") else {}
        with (
            (self.out / "log.txt").open("a") as log,
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | grows,
            ) as process,
        ):
            too_long = threading.Timer(
                max(min(_CHILD_S * (1 + QUIET), self.until - time.time()), 1), process.kill
            )
            too_long.start()
            ready = gpu and said(process, "ready")
            if not gpu:
                process.wait()
            self.loaded(waits=ready)
            if ready:
                with self.gpu, contextlib.suppress(BrokenPipeError):
                    self.quiet()
                    print("go", file=process.stdin, flush=True)
                    said(process, "free")
                self.left()
            process.wait()
            in_time = too_long.is_alive()
            too_long.cancel()
        if not in_time:
            return "too long"
        return "done" if process.returncode == 0 else f"exit code {process.returncode}"


def said(process: subprocess.Popen[str], word: str) -> bool:
    """Whether a process says a word, before it ends."""
    assert process.stdout is not None
    return any(line.strip() == word for line in iter(process.stdout.readline, ""))


def pack(out: Path) -> None:
    """All recordings in some files; their traces are not compressed twice."""
    runs = sorted((out / "runs").iterdir())
    threads = [
        threading.Thread(target=pack_some, args=(out / f"runs_{i}.tar.xz", runs[i::_ARCHIVES]))
        for i in range(_ARCHIVES)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def pack_some(archive: Path, runs: list[Path]) -> None:
    with tarfile.open(archive, "w:xz", preset=1) as packed:
        for path in sorted(file for run in runs for file in run.iterdir()):
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.compress(gzip.decompress(data), compresslevel=0)
            entry = tarfile.TarInfo(f"runs/{path.parent.name}/{path.name}")
            entry.size = len(data)
            packed.addfile(entry, io.BytesIO(data))


def main() -> None:
    if sys.argv[1] in STAGES:
        STAGES[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
        return
    out, until = Path(sys.argv[1]), time.time() + float(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    import public_steps as steps

    source = b"".join(path.read_bytes() for path in sorted((HERE.parents[1] / "profkit").rglob("*.py")))
    (out / "model.json").write_text(json.dumps({"profkit_sha256": hashlib.sha256(source).hexdigest()}))
    study = Study(out, until)
    for name in sys.argv[3:] or list(steps.MODELS):
        study.add(0, "record", name)
    workers = [threading.Thread(target=study.work) for _ in range(WORKERS)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    print(f"{len(rows(out / 'measured.jsonl'))} rows measured", flush=True)
    pack(out)
    shutil.rmtree(out / "runs")


STAGES = {"record": record, "predict": predict, "measure": measure}

if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
