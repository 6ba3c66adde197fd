"""One unedited program on a GPU under nsys, torch.profiler and the memory history: ``python gpu_row.py [FOLDER]``.

The same phases must be in all three, and as many kernels in a phase's call under nsys as under torch.profiler. Needs a
CUDA device, nsys (PATH or PROFKIT_NSYS) and profkit with torch. Prints a table; exit code 1 if anything differs.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).parent / "programs" / "gpu_training.py"
PHASES = {"data", "forward", "loss", "backward", "optimizer"}
OPTIONS = {"torch": ["--wait", "3", "--warmup", "2", "--steps", "5"], "nsys": [], "memory": []}


def profkit(*arguments):
    done = subprocess.run([sys.executable, "-m", "profkit", *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"profkit {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def record(mode, folder):
    """The report of one recording; a plain run's loss is in its output."""
    out = profkit(
        "record", mode, "-o", str(folder / mode), *OPTIONS[mode], "--", sys.executable, str(PROGRAM)
    )
    patterns = {"torch": "trace*.json.gz", "nsys": "*.sqlite", "memory": "memory*.pickle"}
    (file,) = (folder / mode).glob(patterns[mode])
    report = json.loads(profkit("analyze", str(file), "--format", "json", "-o", "-"))
    return report, out


def kernels_a_call(report):
    rows = [row for row in report["phases"] if row["path"] in PHASES and row["count"]]
    return {row["path"]: round((row["kernel_count"] or 0) / row["count"], 3) for row in rows}


def main(where=None):
    folder = Path(where or tempfile.mkdtemp())
    reports, losses = {}, {}
    for mode in OPTIONS:
        reports[mode], out = record(mode, folder)
        losses[mode] = [line for line in out.splitlines() if line.replace(".", "").isdecimal()]
    calls = {mode: kernels_a_call(reports[mode]) for mode in ("torch", "nsys")}
    memory = {row["path"].split("/")[0] for row in (reports["memory"]["memory"] or {}).get("by_phase", [])}
    print("| phase | kernels a call, torch.profiler | nsys | in the memory history |\n|---|---|---|---|")
    for phase in sorted(PHASES):
        row = [calls["torch"].get(phase), calls["nsys"].get(phase), "yes" if phase in memory else "no"]
        print(f"| {phase} | {row[0]} | {row[1]} | {row[2]} |")
    print(f"losses: {losses}")
    same = calls["torch"] == calls["nsys"] and set(calls["torch"]) == PHASES
    # A phase that allocates nothing on the device, as the loader's, is in no history of its memory.
    same = same and memory >= PHASES - {"data"} and len({tuple(each) for each in losses.values()}) == 1
    sys.exit(0 if same else "the recordings differ")


if __name__ == "__main__":
    main(*sys.argv[1:])
