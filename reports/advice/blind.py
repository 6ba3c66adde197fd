"""The second blind study, in one run on a GPU: record a first side, predict from the trace, only then time both sides.

    blind.py OUT [BUDGET_S] [NAMES]

The pairs (`blind_pairs.py`) and the model are fixed by a commit before the run; ``blind.json`` carries the hashes of
both. For each pair it holds the prediction, made and written before either side was timed, with the SHA-256 of its
trace. The run stops cleanly before the budget is spent, and what it has is written after every pair; a pair that fails
costs only itself.
"""

from __future__ import annotations

import gc
import hashlib
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

STARTED = time.monotonic()
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "examples" / "before_after")]

import blind_pairs  # noqa: E402
import predict  # noqa: E402
import record_pairs as recorder  # noqa: E402
import steps as shared  # noqa: E402
import torch  # noqa: E402

_TAKES_S = 4.0
_COMPILING_TAKES_S = 25.0
_HANGS_S = 60
_LOOPS = 7


def hangs(*_: Any) -> None:
    raise TimeoutError(f"the pair took more than {_HANGS_S} s")


def cleaned() -> None:
    gc.collect()
    if torch.cuda.is_available() and not recorder.lost():
        torch.cuda.empty_cache()


def recorded(name: str, out: Path) -> tuple[dict[str, Any], Any]:
    """The prediction for a pair from a fresh trace of its first side, and that side."""
    names, workers, _, before, _ = blind_pairs.PAIRS[name]
    shared.defaults()
    step = before()
    for _ in range(5):
        step()
    shared.wait()
    path = out / f"{name}.json.gz"
    recorder.trace(step, path)
    # A try on a CPU has no device to predict for, and times both sides all the same.
    return predict.from_trace(path, names, workers) if torch.cuda.is_available() else {}, step


def timed(step: Any) -> dict[str, Any]:
    median, each = shared.timed(step, loops=_LOOPS)
    return {"step_ms": round(median, 4), "loops_ms": [round(t, 4) for t in each]}


def pair(name: str, out: Path, write: Any) -> dict[str, Any]:
    """Everything of one pair; the prediction is on disk before the timing starts."""
    row: dict[str, Any] = {}
    signal.alarm(_HANGS_S)
    try:
        row["predicted"], step = recorded(name, out)
        write(row)
        row["before"] = timed(step)
        del step
        cleaned()
        shared.defaults()
        row["after"] = timed(blind_pairs.PAIRS[name][4]())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - each pair stands alone
        row["error"] = f"{type(error).__name__}: {str(error)[:200]}"
    signal.alarm(0)
    cleaned()
    return row


def main(folder: str, budget: str = "165", only: str = "") -> None:
    out = Path(folder)
    signal.signal(signal.SIGALRM, hangs)
    out.mkdir(parents=True, exist_ok=True)
    wanted = set(filter(None, only.split(",")))
    found: dict[str, Any] = {
        "card": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "torch": torch.__version__,
        "model_sha256": predict.model_sha256(),
        "pairs_sha256": hashlib.sha256((HERE / "blind_pairs.py").read_bytes()).hexdigest(),
        "pairs": {},
    }

    def write(name: str, row: dict[str, Any]) -> None:
        found["pairs"][name] = row
        (out / "blind.json").write_text(json.dumps(found, indent=1) + "\n")

    for name in blind_pairs.PAIRS:
        if wanted and name not in wanted:
            continue
        spent = time.monotonic() - STARTED
        if spent + (_COMPILING_TAKES_S if name in blind_pairs.COMPILED else _TAKES_S) > float(budget):
            print(f"{spent:6.1f} s {name} left out: the budget is spent", flush=True)
            continue
        row = pair(name, out, lambda made, name=name: write(name, made))
        write(name, row)
        took = time.monotonic() - STARTED
        sides = [row.get(side, {}).get("step_ms") for side in ("before", "after")]
        likely = row.get("predicted", {}).get("speedup")
        print(f"{took:6.1f} s {name} {sides} predicted {likely} {row.get('error', '')}", flush=True)
        if recorder.lost():
            print(f"the device is lost after {name}", flush=True)
            break


if __name__ == "__main__":
    main(*sys.argv[1:])
