"""Record the study's pairs on a GPU, in two runs of one process each.

    record_pairs.py before OUT [NAMES]    a trace of every first side, with its plain times
    record_pairs.py after OUT [NAMES]     the plain times of both sides, after the predictions are committed

Each pair is written as soon as it is timed. A run that was cut off, or lost its device to a fault, goes on where it
stopped when it is started again, and tries a pair that failed only if it is named. The pairs are those of `examples/before_after` that `predictions.json` predicts.
"""

from __future__ import annotations

import gc
import gzip
import importlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAIRS = HERE.parents[1] / "examples" / "before_after"
sys.path[:0] = [str(PAIRS), str(HERE.parents[1])]

import steps as shared  # noqa: E402
import torch  # noqa: E402

Build = Callable[[], Callable[[], Any]]
STEPS = 3
NEEDLESS = frozenset(
    {
        "Record function id", "Input Strides", "Ev Idx", "Fwd thread id", "est. achieved occupancy %",
        "warps per SM", "blocks per SM", "queued",
    }
)  # fmt: skip


def pairs(only: set[str]) -> Iterator[tuple[str, Build, Build]]:
    predictions = HERE / "predictions.json"
    only = only or set(
        json.loads(predictions.read_text()) if predictions.exists() else ()
    )  # the study's, no others
    for path in sorted(PAIRS.glob("*.py")):
        module = importlib.import_module(path.stem)
        for name, (before, after) in getattr(module, "PAIRS", {}).items():
            if not only or name in only:
                yield name, before, after


def times(build: Build) -> tuple[Callable[[], Any], dict[str, Any]]:
    shared.defaults()
    step = build()
    median, each = shared.timed(step)
    return step, {"step_ms": median, "loops_ms": [round(t, 4) for t in each]}


def trace(step: Callable[[], Any], path: Path) -> None:
    """A torch.profiler trace with shapes; the file names no folder."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    raw = path.with_suffix("")
    with torch.profiler.profile(
        activities=activities,
        record_shapes=True,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=STEPS),
        on_trace_ready=lambda p: p.export_chrome_trace(str(raw)),
    ) as profiler:
        for _ in range(STEPS + 1):
            step()
            profiler.step()
    path.write_bytes(gzip.compress(slim(raw.read_text()).encode(), 9, mtime=0))
    raw.unlink()


def slim(text: str) -> str:
    """The trace without its arrows, and without arguments that follow from others; it names no folder."""
    document = json.loads(re.sub(r'("(?:traceName|kernel_file)": ")[^"]*/', r"\1", text))
    document["traceEvents"] = [e for e in document["traceEvents"] if e.get("cat") not in ("ac2g", "fwdbwd")]
    for event in document["traceEvents"]:
        for argument in NEEDLESS & set(event.get("args", ())):
            del event["args"][argument]
    return json.dumps(document, separators=(",", ":"))


def side(name: str, build: Build, out: Path, traced: bool) -> dict[str, Any]:
    try:
        step, row = times(build)
        if traced:
            trace(step, out / f"{name}.json.gz")
        row["peak_bytes"] = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    except Exception as error:  # noqa: BLE001 - each pair stands alone
        row = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
    step = None
    gc.collect()
    if torch.cuda.is_available() and not lost():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return row


def main(which: str, folder: str, only: str = "") -> None:
    out, wanted = Path(folder), set(filter(None, only.split(",")))
    out.mkdir(parents=True, exist_ok=True)
    started, written = time.time(), out / f"{which}.json"
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rows: dict[str, Any] = {"card": card, "torch": torch.__version__, "pairs": {}}
    if written.exists():
        rows = json.loads(written.read_text())
        if (rows["card"], rows["torch"]) != (card, torch.__version__):
            sys.exit(
                f"{written} is of {rows['card']} with torch {rows['torch']}: both sides of all pairs belong on one"
            )
    for name, before, after in pairs(wanted):
        if name in rows["pairs"] and name not in wanted:
            continue
        rows["pairs"][name] = {"before": side(name, before, out, which == "before")}
        if which == "after":
            rows["pairs"][name]["after"] = side(name, after, out, False)
        print(f"{time.time() - started:6.1f} s", name, json.dumps(rows["pairs"][name])[:160], flush=True)
        written.write_text(json.dumps(rows, indent=1) + "\n")
        if lost():
            sys.exit(f"the device is lost after {name}: start again, to go on with the next pair")
    failed = [n for n, sides in rows["pairs"].items() if any("error" in each for each in sides.values())]
    print(f"{len(rows['pairs'])} pairs in {written}, failed: {', '.join(failed) or 'none'}")


def lost() -> bool:
    """Whether an earlier fault has made the device unusable for this process."""
    try:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


if __name__ == "__main__":
    main(*sys.argv[1:])
