"""A blind study on models of public libraries: record a first side, predict from the trace, only then time every change.

    public_study.py OUT BUDGET_S [--ranks N] [NAMES]

Four stages, each in processes of its own, so that no profiler ever ran where a step is timed:

1. ``warmed``: compilers fill their cache on the disk, several models at a time;
2. ``traced``: three steps of each first side, with shapes, as an ordinary program records them;
3. ``predicted``: what profkit says of every change, from the trace alone, written before anything is timed;
4. ``timed``: both sides of each change in turns, and of the first advice where the study can make it.

OUT gets ``predictions.jsonl`` (the hashes of profkit's source, the models and each trace in it), ``pairs.jsonl``,
``traces.tar``, and ``hosts.jsonl``: what the host alone takes to issue a step, in a process without a profiler and in the one
that recorded, after it had. Every result is written at once: a time limit or a crash loses one model. With ``--ranks`` the models of
`RANKS` run under DistributedDataParallel, each rank on a GPU of this host.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import public_models as models  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from public_score import FLAGS  # noqa: E402

TURNS = 5
LOOP_S = 0.15
WARMUP = 6
_LIMIT_S = 110
_STAGES_END = {"warmed": 0.2, "traced": 0.4, "predicted": 0.55, "timed": 1.0}
"""Of the budget."""
_TRACES = Path(tempfile.gettempdir()) / "public_study_traces"

Step = Callable[[], Any]


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def agreed(value: Any) -> Any:
    """Rank 0's value, on every rank: all must run equally many steps."""
    if not dist.is_initialized():
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def loop(step: Step, count: int) -> float:
    """Milliseconds of a step, over ``count`` of them."""
    wait()
    if dist.is_initialized():
        dist.barrier()
        wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return (time.perf_counter() - start) / count * 1e3


def issued(step: Step) -> float:
    """Milliseconds that the host takes to issue a step to an idle device, where the step waits for nothing."""
    found = []
    for _ in range(2 * TURNS):
        wait()
        start = time.perf_counter()
        step()
        found.append((time.perf_counter() - start) * 1e3)
    wait()
    return round(statistics.median(found), 3)


def warm_count(step: Step) -> int:
    for _ in range(WARMUP):
        step()
    return int(agreed(max(3, round(LOOP_S * 1e3 / loop(step, 3)))))


def in_turns(sides: tuple[Step, Step]) -> dict[str, Any]:
    """Medians of both sides, timed in turns, and the speed-up of each turn."""
    counts = [warm_count(step) for step in sides]
    turns = [[loop(step, n) for step, n in zip(sides, counts, strict=True)] for _ in range(TURNS)]
    ratios = [before / after for before, after in turns]
    before, after = (statistics.median(side) for side in zip(*turns, strict=True))
    return {
        "before_ms": round(before, 3),
        "after_ms": round(after, 3),
        "speedup": round(statistics.median(ratios), 4),
        "speedup_range": [round(min(ratios), 4), round(max(ratios), 4)],
        "issued_ms": [issued(step) for step in sides],
    }


def model_of(name: str) -> tuple[models.Way, tuple[str, ...]]:
    """How a model runs before any change, and its changes: on one GPU, or on each of several."""
    if dist.is_initialized() or int(os.environ.get("STUDY_RANKS", "0")):
        return models.RANKS[name]
    return models.MODELS[name][1:]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def written(path: Path, row: dict[str, Any]) -> None:
    if not rank():
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def warmed(name: str, out: Path) -> None:
    """Two steps of each compiled side."""
    way, changes = model_of(name)
    for change in (each for each in changes if "compile" in each):
        step = models.step_of(name, models.changed(way, change))
        step()
        step()


def traced(name: str, out: Path) -> None:
    """Three steps of the first side, with shapes, as an ordinary program records them."""
    step = models.step_of(name, model_of(name)[0])
    for _ in range(WARMUP):
        step()
    wait()
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=3, repeat=1)
    with torch.profiler.profile(schedule=schedule, record_shapes=True) as profiler:
        for _ in range(5):
            step()
            wait()
            profiler.step()
    many = f".rank{rank()}" if dist.is_initialized() else ""
    _TRACES.mkdir(exist_ok=True)
    profiler.export_chrome_trace(str(_TRACES / f"{name}{many}.json.gz"))
    written(out / "hosts.jsonl", {"model": name, "recorded_before": True, **host_of(step)})
    if dist.is_initialized():
        dist.barrier()
    if not rank():
        with tarfile.open(out / "traces.tar", "a") as tar:
            for path in traces_of(name):
                tar.add(path, path.name)


def host_of(step: Step) -> dict[str, float]:
    count = warm_count(step)
    plain = statistics.median(loop(step, count) for _ in range(3))
    return {"plain_ms": round(plain, 3), "issued_ms": issued(step)}


def traces_of(name: str) -> list[Path]:
    return sorted([*_TRACES.glob(f"{name}.json.gz"), *_TRACES.glob(f"{name}.rank*.json.gz")])


def predictions_of(name: str) -> list[dict[str, Any]]:
    """What profkit says of every change of a model, and its advice, from the trace alone."""
    from profkit.advice import advise
    from profkit.readers import read
    from profkit.report.assembly import timelines
    from profkit.report.views import Options
    from profkit.simulation.answer import what_if

    paths = traces_of(name)
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    views, _ = timelines([read(path) for path in paths], Options())
    found = []
    for change in model_of(name)[1]:
        answer = what_if(views, [FLAGS[part] for part in change.split("+")])
        if answer is None:
            raise ValueError("no step can be replayed")
        said: dict[str, Any] = {"low": 1.0, "likely": 1.0, "high": 1.0, "limit": None}
        if answer.changes:
            speedup, limit = answer.changes[-1].speedup, answer.changes[-1].limit
            said = {"low": speedup.low, "likely": speedup.likely, "high": speedup.high, "limit": limit}
        refused = {row.name: row.reason for row in answer.refused}
        found.append({"model": name, "change": change, "said": said, "refused": refused})
    advice = [
        {
            "id": row.id,
            "change": row.change,
            "confidence": row.confidence,
            "speedup": row.speedup and row.speedup.likely,
        }
        for row in advise(views)
    ]
    return [{"model": name, "trace_sha256": hashes, "advice": advice}, *found]


def source_sha256() -> dict[str, str]:
    """Of all that a prediction depends on, and of the models."""
    root, found = HERE.parents[1], hashlib.sha256()
    for path in sorted((root / "profkit").rglob("*")):
        if path.suffix in (".py", ".csv"):
            found.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return {
        "profkit_sha256": found.hexdigest(),
        "models_sha256": hashlib.sha256((HERE / "public_models.py").read_bytes()).hexdigest(),
    }


def predict_all(names: list[str], out: Path, until: float) -> None:
    """The stage that needs no GPU: all models at once, each in a process."""
    path = out / "predictions.jsonl"
    done = {row.get("model") for row in lines(path)}
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    written(path, {"gpu": gpu, "torch": torch.__version__, **source_sha256()})
    left = [name for name in names if traces_of(name) and name not in done]
    with ProcessPoolExecutor(8) as pool:
        futures = {name: pool.submit(predictions_of, name) for name in left}
        for name, future in futures.items():
            try:
                for row in future.result(max(until - time.time(), 1)):
                    written(path, row)
            except Exception as error:  # noqa: BLE001 - one model that fails costs only itself
                future.cancel()
                print(f"predicted {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        for process in pool._processes.values():  # one that is late is not waited for
            process.terminate()


def first_advised(name: str, out: Path) -> list[str]:
    """The first advice with a price, if the study can make that change and does not time it anyway."""
    rows = [row for row in lines(out / "predictions.jsonl") if row.get("model") == name]
    advice = [each for row in rows for each in row.get("advice", []) if each["speedup"]]
    known = {flag: change for change, flag in FLAGS.items()}
    first = known.get(advice[0]["change"]) if advice else None
    way, changes = model_of(name)
    return [first] if first and first not in changes and models.changed(way, first) != way else []


def timed(name: str, out: Path) -> None:
    """Every change of a model beside its first side; one line each."""
    way, changes = model_of(name)
    said = {
        r["change"]: r["said"]
        for r in lines(out / "predictions.jsonl")
        if r.get("model") == name and "said" in r
    }
    first = models.step_of(name, way)
    host = host_of(first)
    written(out / "hosts.jsonl", {"model": name, "recorded_before": False, **host})
    for change in agreed([*changes, *first_advised(name, out)]):
        row: dict[str, Any] = {"model": name, "change": change, "plain_ms": host["plain_ms"]}
        if dist.is_initialized():
            row["ranks"] = dist.get_world_size()
        row |= {"said": said[change]} if change in said else {}
        try:
            row |= in_turns((first, models.step_of(name, models.changed(way, change))))
        except Exception as error:
            written(out / "pairs.jsonl", row | {"error": f"{type(error).__name__}: {str(error)[:200]}"})
            if dist.is_initialized():  # the other ranks are elsewhere
                raise
            continue
        gc.collect()
        written(out / "pairs.jsonl", row)


def hangs(*_: Any) -> None:
    raise TimeoutError(f"took more than {_LIMIT_S} s")


def guarded(work: Callable[[str, Path], None], name: str, out: Path) -> None:
    """One model; where it fails among ranks the others are lost, and the stage begins anew with the next."""
    signal.alarm(_LIMIT_S)
    try:
        work(name, out)
    except Exception:  # noqa: BLE001 - one model that fails costs only itself
        print(f"{name}: {traceback.format_exc(limit=-3)}", flush=True)
        if dist.is_initialized():
            os._exit(1)
    signal.alarm(0)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def stage(work: Callable[[str, Path], None], names: list[str], out: Path, until: float) -> None:
    """One stage for several models, in this process: each is started, then told."""
    if "RANK" in os.environ:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    signal.signal(signal.SIGALRM, hangs)
    for name in names:
        if agreed(time.time() > until):
            break
        if not rank():
            with (out / f"{work.__name__}.txt").open("a") as started:
                started.write(name + "\n")
        start = time.monotonic()
        guarded(work, name, out)
        if not rank():
            print(f"{work.__name__} {name}: {time.monotonic() - start:.1f} s", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def command(work: str, out: Path, until: float, names: list[str], ranks: int) -> list[str]:
    many = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks else []
    return [sys.executable, *many, __file__, work, str(out), str(until), *names]


def survived(work: str, names: list[str], out: Path, until: float, ranks: int) -> None:
    """Run a stage in processes of its own, and again for what is left when that dies."""
    begun = out / f"{work}.txt"
    while time.time() < until:
        done = begun.read_text().split() if begun.exists() else []
        if not (left := [name for name in names if name not in done]):
            return
        try:
            subprocess.run(
                command(work, out, until, left, ranks), check=False, timeout=until - time.time() + 15
            )
        except subprocess.TimeoutExpired:
            return


def warm_all(names: list[str], out: Path, until: float, ranks: int) -> None:
    """One process a model that compiles; none is waited for beyond the time of the stage."""
    mine = [name for name in names if any("compile" in change for change in model_of(name)[1])]
    running = [subprocess.Popen(command("warmed", out, until, [name], ranks)) for name in mine]
    for each in running:
        try:
            each.wait(max(until - time.time(), 1))
        except subprocess.TimeoutExpired:
            each.kill()


def main() -> None:
    if sys.argv[1] in STAGES:
        stage(STAGES[sys.argv[1]], sys.argv[4:], Path(sys.argv[2]), float(sys.argv[3]))
        return
    out, budget_s, names, ranks = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:], 0
    if names[:1] == ["--ranks"]:
        ranks, names = int(names[1]), names[2:]
        os.environ["STUDY_RANKS"] = str(ranks)
    out.mkdir(parents=True, exist_ok=True)
    names, began = names or list(models.RANKS if ranks else models.MODELS), time.time()
    ends = {name: began + share * budget_s for name, share in _STAGES_END.items()}
    warm_all(names, out, ends["warmed"], ranks)
    survived("traced", names, out, ends["traced"], ranks)
    predict_all(names, out, ends["predicted"])
    # A try on a CPU has no device to predict for, and times both sides all the same.
    predicted = {row.get("model") for row in lines(out / "predictions.jsonl")}
    ready = [name for name in names if name in predicted or not torch.cuda.is_available()]
    survived("timed", ready, out, ends["timed"] - 10, ranks)


STAGES = {"warmed": warmed, "traced": traced, "timed": timed}

if __name__ == "__main__":
    main()
