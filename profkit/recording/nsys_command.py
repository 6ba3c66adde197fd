"""Nsight Systems around a whole program: finds it, keeps its files small, exports SQLite."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from profkit.errors import RecordingError
from profkit.recording.environment import output_of

__all__ = ["NsysRun", "find_nsys", "gpu_metrics_obstacle", "profile_command", "record_with_nsys"]

SMALL_FILES: Final = ("-s", "none", "--cpuctxsw=none", "--backtrace=none", "--resolve-symbols=false")
"""Without CPU samples and symbols; with them the report of a small torch program was seen to reach 2 GB."""

_PLACES: Final = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
)


@dataclass(frozen=True, kw_only=True)
class NsysRun:
    """How to run nsys."""

    capture: bool = False
    """Record only the steps that the program chooses with ``profkit.record``."""
    gpu_metrics: bool = False
    """Sample the GPU's counters; needs permission."""
    graph_nodes: bool = False
    """Show the kernels within CUDA graphs; each then costs a little."""
    said: list[str] = field(default_factory=list)
    """What was run and what was left out, for the person."""


def find_nsys() -> Path:
    """The nsys binary: of ``PROFKIT_NSYS``, the PATH, or where NVIDIA's packages put it (the newest).

    Raises:
        RecordingError: There is none.
    """
    named = os.environ.get("PROFKIT_NSYS")
    found = shutil.which(named) if named else shutil.which("nsys")
    if found:
        return Path(found)
    if named:
        raise RecordingError("PROFKIT_NSYS", f"{named} is not a program", "Let it name the nsys binary")
    installed = [path for pattern in _PLACES for path in Path("/").glob(pattern.lstrip("/"))]
    if installed:
        return max(installed, key=_version_of_path)
    raise RecordingError(
        "nsys",
        "Nsight Systems was not found",
        "Install it (https://developer.nvidia.com/nsight-systems), or record without it: profkit record torch -- ...",
    )


def gpu_metrics_obstacle(nsys: Path) -> str | None:
    """Why the GPU's counters cannot be sampled here; None if they can."""
    asked = subprocess.run(
        [str(nsys), "profile", "--gpu-metrics-device=help"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    text = asked.stdout + asked.stderr
    if re.search(r"^\s*\d+:", text, re.MULTILINE):
        return None
    reason = " ".join(line.strip() for line in text.splitlines() if line.strip())
    return reason[:300] or "nsys lists no GPU"


def profile_command(nsys: Path, run: NsysRun, output: Path, program: list[str]) -> list[str]:
    """The nsys command line that records ``program`` into ``output.nsys-rep``."""
    options = ["-t", "cuda,nvtx", *SMALL_FILES]
    if run.capture:
        options += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    if run.gpu_metrics:
        options += ["--gpu-metrics-device=all"]
    if run.graph_nodes:
        options += ["--cuda-graph-trace=node"]
    return [str(nsys), "profile", *options, "-o", str(output), *program]


def record_with_nsys(run: NsysRun, folder: Path, program: list[str]) -> tuple[int, list[Path]]:
    """Run ``program`` under nsys and export what it recorded.

    Returns:
        The program's exit code, and the SQLite files.

    Raises:
        RecordingError: nsys is missing, or nothing was recorded.
    """
    nsys = find_nsys()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordingError(folder, f"cannot be made ({error})", "Choose another folder with -o") from error
    if run.gpu_metrics and (obstacle := gpu_metrics_obstacle(nsys)):
        run.said.append(f"GPU metrics are left out: {obstacle}")
        run = NsysRun(capture=run.capture, graph_nodes=run.graph_nodes, said=run.said)
    output = _free_name(folder)
    command = profile_command(nsys, run, output, program)
    run.said.append(" ".join(command))
    code = subprocess.run(command, check=False).returncode
    reports = sorted(folder.glob(f"{output.name}*.nsys-rep"))
    if not reports:
        hint = (
            "Does it call profkit.record (or cudaProfilerStart) on a GPU?"
            if run.capture
            else "nsys says above why"
        )
        raise RecordingError(
            output.with_suffix(".nsys-rep"), f"nsys wrote no report (exit code {code})", hint
        )
    return code, [_export(nsys, report, run) for report in reports]


def _export(nsys: Path, report: Path, run: NsysRun) -> Path:
    target = report.with_suffix(".sqlite")
    command = [
        str(nsys),
        "export",
        "--type=sqlite",
        "--force-overwrite=true",
        f"--output={target}",
        str(report),
    ]
    run.said.append(" ".join(command))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not target.exists():
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise RecordingError(
            report, f"nsys could not export it ({reason[-1] if reason else done.returncode})"
        )
    return target


def _free_name(folder: Path) -> Path:
    number = 1
    while True:
        path = folder / ("report" if number == 1 else f"report_{number}")
        if not list(folder.glob(f"{path.name}.*")):
            return path
        number += 1


def _version_of_path(path: Path) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", str(path))]


def nsys_version(nsys: Path) -> str | None:
    """What ``nsys --version`` says, e.g. ``2023.4.4.54``."""
    found = re.search(r"version (\S+?)(?:-|\s|$)", output_of([str(nsys), "--version"]) or "")
    return found[1] if found else None
