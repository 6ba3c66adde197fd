"""Record the pairs and the repetitions that `score.py` compares, by profkit.record, on one GPU.

    python reports/comparison/record.py OUT                   # pairs and repetitions: a GPU, four minutes
    python reports/comparison/record.py OUT --device cpu      # tiny steps, to try the script
    python reports/comparison/record.py OUT --changes planted # the repetitions only

Each round is a process of its own; in each, recordings of the same step and of the slower one take turns, every one of
a model that is built anew. OUT/reports.jsonl.xz keeps a report of each recording, without the tables that no comparison
reads; OUT/traces keeps a slim trace of one of each. No file names a folder, a host or an environment.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import lzma
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import torch  # noqa: E402
from cases import CHANGES, MODELS, Step, build, burden_of, step_s  # noqa: E402

import profkit  # noqa: E402

STEPS, PLANTED = 8, 0.05
ROUNDS, SAME, SLOWER = 3, 21, 20
EMPTIED = ("operators", "ranges", "advice")
"""Tables of a report that no comparison reads; the timeline's are emptied too."""
NEEDLESS = frozenset({"Input Strides", "Ev Idx", "Fwd thread id", "est. achieved occupancy %", "queued"})
LEAK = re.compile(r"/(?:tmp|root|home|work|opt|usr)/|HOME=|PATH=")


def record(name: str, step: Step, out: Path, facts: dict[str, Any]) -> None:
    """One recording: a line of reports.jsonl, and a trace of the first of its kind."""
    for _ in range(3):
        step()
    with tempfile.TemporaryDirectory() as scratch:
        with profkit.record(Path(scratch) / "run", wait=4, warmup=2, steps=STEPS) as recorder:
            for _ in range(4 + 2 + STEPS):
                step()
                recorder.step()
        if not recorder.files:
            sys.exit(f"{name} was not recorded: {recorder.problems}")
        report = slim_report(json.loads(profkit.analyze(Path(scratch) / "run").render("json")))
        trace = out / "traces" / f"{facts['model']}_{facts['change']}.json.gz"
        slim = None if trace.exists() else slim_trace(recorder.files[0])
        if slim is not None:
            trace.parent.mkdir(parents=True, exist_ok=True)
            trace.write_bytes(gzip.compress(slim.encode(), 9, mtime=0))
    line = json.dumps({"name": name, **facts, "report": report})
    if LEAK.search(line):
        raise ValueError(f"{name}: its report names a folder; it must not be stored")
    with (out / "reports.jsonl").open("a") as lines:
        print(line, file=lines)
    steps = [step["wall_ns"] for step in report["window"]["steps"]]
    print(
        f"{name} {len(steps)} steps, {sum(steps) / max(len(steps), 1) / 1e6:.3f} ms of the host each",
        flush=True,
    )


def slim_report(report: dict[str, Any]) -> dict[str, Any]:
    """A report of the same schema without what no comparison reads."""
    report |= {table: [] for table in EMPTIED}
    if report["timeline"] is not None:  # it is, without a device
        report["timeline"] = {k: [] if isinstance(v, list) else v for k, v in report["timeline"].items()}
    report["idle"]["gaps"] = []
    report["totals"]["kernels"] = []
    return report


def slim_trace(path: Path) -> str | None:
    """The trace without its arrows, and without arguments that follow from others; None where it names a folder."""
    text = gzip.decompress(path.read_bytes()).decode()
    document = json.loads(re.sub(r'("(?:traceName|kernel_file)": ")[^"]*/', r"\1", text))
    document["traceEvents"] = [e for e in document["traceEvents"] if e.get("cat") not in ("ac2g", "fwdbwd")]
    for event in document["traceEvents"]:
        for argument in NEEDLESS & set(event.get("args", ())):
            del event["args"][argument]
    slim = json.dumps(document, separators=(",", ":"))
    found = LEAK.search(slim)
    if found:
        print(
            f"{path.name} failed: it names a folder: {slim[max(0, found.start() - 40) : found.end() + 40]!r}"
        )
        return None
    return slim


def pairs(out: Path, device: str, changes: set[str]) -> None:
    """Both sides of every change, the unchanged side once a model."""
    for model in MODELS:
        for change in ["none", *sorted(changes - {"none", "planted"})]:
            try:
                step = build(model, change, device)
                record(f"{model}_{change}", step, out, {"model": model, "change": change, "round": None})
            except Exception as error:  # noqa: BLE001 - a compiler that fails must not end the study
                print(f"{model}_{change} failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
            step = None
            free(device)


def repetitions(out: Path, device: str, number: int) -> None:
    """One round of the same step and of the slower one, in turns."""
    step = build("gpt", "none", device)
    plain = step_s(step, device)
    for place in range(number, SAME, ROUNDS):
        for change, count in (("none", SAME), ("planted", SLOWER)):
            if place < count:
                step = None
                free(device)
                burden = burden_of(PLANTED * plain, device) if change == "planted" else None
                step = build("gpt", change, device, burden)
                facts = {"model": "gpt", "change": change, "round": number, "plain_ms": round(plain * 1e3, 4)}
                record(f"repeated_{change}_{place:02}", step, out, facts)


def free(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--changes", default=",".join(CHANGES), help="comma-separated")
    parser.add_argument("--round", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    changes = set(options.changes.split(","))
    if not changes <= set(CHANGES):
        sys.exit(f"no change named {sorted(changes - set(CHANGES))}")
    options.out.mkdir(parents=True, exist_ok=True)
    if options.round is not None:
        one_round(options.out, options.device, changes, options.round)
        return
    (options.out / "reports.jsonl").unlink(missing_ok=True)
    shutil.rmtree(options.out / "traces", ignore_errors=True)
    for number in range(-1, ROUNDS if "planted" in changes else 0):
        command = [sys.executable, __file__, str(options.out), "--device", options.device]
        subprocess.run([*command, "--changes", options.changes, "--round", str(number)], check=False)
    if not (options.out / "reports.jsonl").exists():
        sys.exit("nothing was recorded")
    lines = (options.out / "reports.jsonl").read_bytes()
    (options.out / "reports.jsonl.xz").write_bytes(lzma.compress(lines, preset=9 | lzma.PRESET_EXTREME))
    (options.out / "reports.jsonl").unlink()


def one_round(out: Path, device: str, changes: set[str], number: int) -> None:
    """Round -1 is that of the pairs."""
    if number < 0:
        pairs(out, device, changes)
    else:
        repetitions(out, device, number)


if __name__ == "__main__":
    main()
