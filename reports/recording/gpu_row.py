"""Unedited programs on a GPU under nsys, torch.profiler and the memory history: ``python gpu_row.py OUT [SECONDS]``.

A step must have the same phases in all three, and as many kernels in each phase under nsys as under torch.profiler. Under
``record nsys --python`` the report of a slow host must name the Python function. Needs a CUDA device, nsys (PATH or
PROFKIT_NSYS) and profkit with torch. OUT gets each recording, what its command said and its report as soon as they are
there, and OUT/result.json and OUT/summary.txt are complete after each. What fails or does not fit into SECONDS (by default
180) is a problem in the summary, and the others still run. Exit code 1 if there is any.
"""

import json
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import profkit

PROGRAMS = Path(__file__).parent / "programs"
PHASES = {"data", "forward", "loss", "backward", "optimizer"}
TORCH = ["torch", "--wait", "3", "--warmup", "2", "--steps", "5"]
WAYS = {
    "torch": (TORCH, "gpu_training.py", "trace*.json.gz"),
    "nsys": (["nsys"], "gpu_training.py", "*.sqlite"),
    "memory": (["memory"], "gpu_training.py", "memory*.pickle"),
    "python": (["nsys", "--python"], "slow_host.py", "*.sqlite"),
}
KEPT_S = 15
"""For each recording that is still to come."""


def record(name, folder, limit_s):
    """What one recording shows, and what was printed: the program's loss too."""
    (mode, *options), program, pattern = WAYS[name]
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "profkit", "record", mode, "-o", str(folder / name), *options]
    with log.open("wb") as out:
        running = subprocess.Popen(
            [*command, "--", sys.executable, str(PROGRAMS / program)], stdout=out, stderr=subprocess.STDOUT
        )
        try:
            code = running.wait(limit_s)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGTERM)  # it then keeps what it has
            code = f"stopped after {limit_s:.0f} s"
            try:
                running.wait(KEPT_S / 2)
            except subprocess.TimeoutExpired:
                running.kill()
    lines = log.read_text(errors="replace").splitlines()
    files = sorted((folder / name).glob(pattern))
    if not files:
        raise RuntimeError(f"exit code {code}: {' | '.join(lines[-4:])}")
    report = profkit.analyze(files[0])
    for kind in ("json", "txt"):
        report.save(folder / f"{name}.{kind}")
    losses = [line for line in lines if line.replace(".", "").isdecimal()]
    return {"exit_code": code, "losses": losses} | found_in(report)


def found_in(report):
    launches, memory = report.launches, report.document.memory
    kernels = launches[launches["grid"].notna() & launches["step"].notna() & launches["phase"].notna()]
    outermost = kernels["phase"].str.split("/").str[0]
    counts = kernels.groupby([outermost, "step"]).size()
    text = report.render("json")
    held = memory.by_phase if memory else []
    return {
        "phases": sorted({path.split("/")[0] for path in report.phases["path"]} & PHASES),
        # Of most steps: the first one fills the optimizer's state, and warms libraries up.
        "kernels_a_step": {
            phase: Counter(counts[phase].tolist()).most_common(1)[0][0]
            for phase in sorted(set(counts.index.get_level_values(0)) & PHASES)
        },
        "phases_of_memory": sorted({row.path.split("/")[0] for row in held}),
        "names_the_function": "slow_host.py" in text and "tokens_of" in text,
    }


def problems_of(found):
    torch, nsys, memory, python = (found.get(name) for name in WAYS)
    for name, seen in (("torch.profiler", torch), ("nsys", nsys)):
        if seen and set(seen["phases"]) != PHASES:
            yield f"a phase is missing under {name}: {', '.join(sorted(PHASES - set(seen['phases'])))}"
    if torch and nsys and (not torch["kernels_a_step"] or torch["kernels_a_step"] != nsys["kernels_a_step"]):
        yield "the kernels of a step differ between torch.profiler and nsys"
    # A phase that allocates nothing on the device, as the loader's, is in no history of its memory.
    if memory and (missing := PHASES - {"data"} - set(memory["phases_of_memory"])):
        yield f"a phase is missing from the memory history: {', '.join(sorted(missing))}"
    if len({tuple(each["losses"]) for each in (torch, nsys, memory) if each}) > 1:
        yield "the losses differ"
    if python and not python["names_the_function"]:
        yield "the slow function of Python is not named"
    for name, seen in found.items():
        if seen["exit_code"]:
            yield f"{name}: exit code {seen['exit_code']}"


def summary(found, problems):
    torch, nsys, memory = (found.get(name, {}) for name in ("torch", "nsys", "memory"))
    yield "| phase | kernels a step, torch.profiler | nsys | in the memory history |\n|---|---|---|---|"
    for phase in sorted(PHASES):
        counts = [each.get("kernels_a_step", {}).get(phase, "-") for each in (torch, nsys)]
        held = "yes" if phase in memory.get("phases_of_memory", ()) else "no"
        yield f"| {phase} | {counts[0]} | {counts[1]} | {held} |"
    counts = [each.get("kernels_a_step", {}) for each in (torch, nsys)]
    equal = [phase for phase, number in counts[0].items() if counts[1].get(phase) == number]
    yield (
        f"phases in torch.profiler {len(torch.get('phases', ()))}, nsys {len(nsys.get('phases', ()))}, memory history"
        f" {len(memory.get('phases_of_memory', ()))} of {len(PHASES)}; kernels of a step equal in {len(equal)} phases"
        f" ({sum(counts[0].values())} and {sum(counts[1].values())} kernels);"
        f" Python function named: {found.get('python', {}).get('names_the_function', False)}"
    )
    yield "; ".join(problems) if problems else "no problem"


def main(where, seconds="180"):
    folder, ends = Path(where), time.monotonic() + float(seconds)
    folder.mkdir(parents=True, exist_ok=True)
    found, failed, problems = {}, [], []
    for number, name in enumerate(WAYS, 1):
        began, to_come = time.monotonic(), len(WAYS) - number
        try:
            found[name] = record(name, folder, max(1.0, ends - began - KEPT_S * to_come))
        except Exception as error:  # noqa: BLE001 - the next recording is still wanted
            failed.append(f"{name} failed: {error}")
            (folder / f"{name}.error").write_text(traceback.format_exc())
        problems = [*problems_of(found), *failed]
        (folder / "result.json").write_text(json.dumps(found, indent=1))
        (folder / "summary.txt").write_text("\n".join(summary(found, problems)) + "\n")
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print((folder / "summary.txt").read_text())
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
