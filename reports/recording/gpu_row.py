"""Unedited programs on a GPU under nsys, torch.profiler and the memory history: ``python gpu_row.py OUT [SECONDS]``.

The same phases must be in all three, and as many kernels in a phase's call under nsys as under torch.profiler. Under
``record nsys --python`` the report of a slow host must name the Python function. Needs a CUDA device, nsys (PATH or
PROFKIT_NSYS) and profkit with torch. Each recording and report stays in OUT; OUT/result.json is complete after each, and
what did not fit into SECONDS (by default 180) is not in it. Exit code 1 if anything differs.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
PHASES = {"data", "forward", "loss", "backward", "optimizer"}
MODES = {
    "torch": ("torch", "gpu_training.py", ["--wait", "3", "--warmup", "2", "--steps", "5"], "trace*.json.gz"),
    "nsys": ("nsys", "gpu_training.py", [], "*.sqlite"),
    "memory": ("memory", "gpu_training.py", [], "memory*.pickle"),
    "python": ("nsys", "slow_host.py", ["--python"], "*.sqlite"),
}


def profkit(left_s, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "profkit", *arguments], capture_output=True, text=True, timeout=left_s
    )
    if done.returncode:
        raise RuntimeError(f"profkit {' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def record(name, folder, left_s):
    """The report of one recording; a plain run's loss is in its output."""
    mode, program, options, pattern = MODES[name]
    command = [sys.executable, str(PROGRAMS / program)]
    out = profkit(left_s, "record", mode, "-o", str(folder / name), *options, "--", *command)
    (file,) = (folder / name).glob(pattern)
    profkit(left_s, "analyze", str(file), "--format", "json", "-o", str(folder / f"{name}.json"))
    (folder / f"{name}.txt").write_text(profkit(left_s, "analyze", str(file), "--format", "text", "-o", "-"))
    report = json.loads((folder / f"{name}.json").read_text())
    losses = [line for line in out.splitlines() if line.replace(".", "").isdecimal()]
    return {"output": out, "losses": losses} | found_in(report)


def found_in(report):
    rows = [row for row in report["phases"] if row["path"] in PHASES and row["count"]]
    memory = (report["memory"] or {}).get("by_phase", [])
    text = json.dumps(report)
    return {
        "kernels_a_call": {row["path"]: round((row["kernel_count"] or 0) / row["count"], 3) for row in rows},
        "phases_of_memory": sorted({row["path"].split("/")[0] for row in memory}),
        "names_the_function": "slow_host.py" in text and "tokens_of" in text,
    }


def differences(found):
    torch, nsys, memory, python = (found.get(name) for name in MODES)
    if (
        torch
        and nsys
        and (torch["kernels_a_call"] != nsys["kernels_a_call"] or set(torch["kernels_a_call"]) != PHASES)
    ):
        yield "the kernels a call differ between torch.profiler and nsys"
    # A phase that allocates nothing on the device, as the loader's, is in no history of its memory.
    if memory and not set(memory["phases_of_memory"]) >= PHASES - {"data"}:
        yield "a phase is missing from the memory history"
    if len({tuple(each["losses"]) for each in (torch, nsys, memory) if each}) > 1:
        yield "the losses differ"
    if python and not python["names_the_function"]:
        yield "the slow function of Python is not named"


def main(where, seconds="180"):
    folder, ends = Path(where), time.monotonic() + float(seconds)
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in MODES:
        try:
            found[name] = record(name, folder, max(1.0, ends - time.monotonic()))
        except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
            (folder / f"{name}.error").write_text(str(error))
        (folder / "result.json").write_text(json.dumps(found, indent=1))
    missing = [name for name in MODES if name not in found]
    problems = [*differences(found), *(f"{name} was not recorded" for name in missing)]
    (folder / "problems.txt").write_text("\n".join(problems) + "\n")
    print("| phase | kernels a call, torch.profiler | nsys | in the memory history |\n|---|---|---|---|")
    for phase in sorted(PHASES):
        calls = [found.get(name, {}).get("kernels_a_call", {}).get(phase) for name in ("torch", "nsys")]
        print(
            f"| {phase} | {calls[0]} | {calls[1]} | {phase in found.get('memory', {}).get('phases_of_memory', [])} |"
        )
    sys.exit("\n".join(problems) if problems else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
