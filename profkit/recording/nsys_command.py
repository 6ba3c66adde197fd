"""Nsight Systems around a whole program: finds it, keeps its files small, exports SQLite."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from profkit.errors import RecordingError
from profkit.recording.environment import output_of
from profkit.recording.python_samples import add_python_samples
from profkit.recording.signals import run_and_wait

__all__ = ["NsysRun", "find_nsys", "gpu_metrics_obstacle", "profile_command", "record_with_nsys"]

SMALL_FILES: Final = ("-s", "none", "--cpuctxsw=none", "--backtrace=none", "--resolve-symbols=false")
"""Without CPU samples and symbols; with them the report of a small torch program was seen to reach 2 GB."""

_UNKNOWN_FUNCTION: Final = "Unknown runtime API function"
"""What an importer says that is older than the CUDA runtime."""

_SIGNS: Final = (
    _UNKNOWN_FUNCTION.encode(), b"Importer error", b"importer version", b"Failed to create", b"No space left",
    b"events were lost", b"Illegal --", b"unrecognised option", b"Executable not found",
)  # fmt: skip
"""Parts of the lines in which nsys 2023.4 tells of a problem."""

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
    python: bool = False
    """Sample Python's call stacks, and keep those of CUDA calls."""
    trace: str = "cuda,nvtx"
    """What nsys traces."""
    delay_s: float | None = None
    """When to begin; None: at once."""
    duration_s: float | None = None
    """How long to record; None: to the end."""
    more: tuple[str, ...] = ()
    """Further options of ``nsys profile``, which win over those above."""
    said: list[str] = field(default_factory=list)
    """What was left out and what nsys complained of, for the person."""


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
        raise RecordingError(
            "PROFKIT_NSYS", f"{named} is not a program", "Set it to the path of the nsys binary"
        )
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
    options = ["-t", run.trace, *SMALL_FILES]
    if run.python:
        options += ["--python-sampling=true", "--python-backtrace=cuda"]
    if run.delay_s is not None:
        options += [f"--delay={run.delay_s:g}"]
    if run.duration_s is not None:
        options += [f"--duration={run.duration_s:g}", "--kill=none"]  # the program goes on to its own end
    if run.capture:
        options += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    if run.gpu_metrics:
        options += ["--gpu-metrics-device=all"]
    if run.graph_nodes:
        options += ["--cuda-graph-trace=node"]
    return [str(nsys), "profile", *options, *run.more, "-o", str(output), *program]


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
        raise RecordingError(
            folder, f"cannot be created ({error})", "Choose another folder with -o"
        ) from error
    if run.gpu_metrics and (obstacle := gpu_metrics_obstacle(nsys)):
        run.said.append(f"GPU metrics are left out: {obstacle}")
        run = replace(run, gpu_metrics=False)
    output = _free_name(folder)
    command = profile_command(nsys, run, output, program)
    code, told = _run_and_read(command)
    reports = sorted(folder.glob(f"{output.name}*.nsys-rep"))
    if not reports:
        raise _no_report(run, output, code, told)
    exported, failures = [], []
    for report in reports:
        try:
            database = _export(nsys, report)
        except RecordingError as error:
            failures.append(error)
            continue
        exported.append(database)
        told += _diagnostics(database)
        if run.python:
            run.said.extend(_python_problem(nsys, report, database))
    run.said.extend([*problems_in(told), *map(str, failures if exported else failures[1:])])
    if not exported:
        raise failures[0]
    return code, exported


def _no_report(run: NsysRun, output: Path, code: int, told: list[str]) -> RecordingError:
    """Why nsys wrote none, as far as it tells, and what to do."""
    left = sorted(output.parent.glob(f"{output.name}*.qdstrm"))
    if left:
        hint = f"{left[0]} is what it recorded: a whole Nsight Systems, on any machine, opens it"
    elif told:
        hint = "See what nsys says above"
    elif run.capture:
        hint = "Does it call profkit.record (or cudaProfilerStart) on a GPU?"
    elif run.delay_s is not None:
        hint = f"The program ended before --delay {run.delay_s:g}"
    else:
        hint = "See what nsys says above"
    reason = f": {told[-1]}" if told else ""
    return RecordingError(
        output.with_suffix(".nsys-rep"), f"nsys wrote no report (exit code {code}){reason}", hint
    )


def problems_in(told: list[str]) -> list[str]:
    """What nsys itself said that went wrong, each kind once, and what it costs.

    An importer that is older than the CUDA runtime does not know its functions, loses their rows, and ends with 0.
    """
    kinds = [re.sub(r"\d+", "N", text) for text in told]
    count = Counter(kinds)
    first = dict(zip(reversed(kinds), reversed(told), strict=True))
    lines = [f"nsys: {first[kind]}" + (f" ({n} times)" if n > 1 else "") for kind, n in count.most_common(5)]
    if any(_UNKNOWN_FUNCTION in text for text in told):
        lines.append(
            "this nsys is older than the CUDA runtime, so it loses rows of newer calls: install a newer Nsight Systems"
        )
    return lines


def _run_and_read(command: list[str]) -> tuple[int, list[str]]:
    """Run nsys, and read beside the person what it and its program write to standard error.

    Returns:
        The exit code, and the lines in which nsys tells of a problem.
    """
    # The program may ask whether it writes to a terminal, so it gets one where there is one.
    outlet, inlet = os.openpty() if sys.stderr.isatty() else os.pipe()
    told: list[str] = []

    def copy() -> None:
        rest = b""
        with contextlib.suppress(OSError):  # a terminal whose last writer has gone raises
            while chunk := os.read(outlet, 1 << 16):
                os.write(2, chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                told.extend(line.decode("utf-8", "replace").strip() for line in lines if _tells(line))

    reader = threading.Thread(target=copy, daemon=True)
    reader.start()
    try:
        code = run_and_wait(command, stderr=inlet)
    finally:
        os.close(inlet)
        reader.join(5)  # what the program left running may still hold it open
        os.close(outlet)
    return code, told


def _tells(line: bytes) -> bool:
    return any(sign in line for sign in _SIGNS)


def _python_problem(nsys: Path, report: Path, database: Path) -> list[str]:
    try:
        found = add_python_samples(nsys, report, database)
    except (OSError, sqlite3.Error) as error:
        return [f"samples of Python are left out: {error}"]
    return [] if found else [f"nsys has no samples of Python in {report.name}"]


def _diagnostics(database: Path) -> list[str]:
    """Errors and warnings that nsys 2024 and later keep in the export."""
    wanted = "SELECT text FROM DIAGNOSTIC_EVENT WHERE severity >= 2 ORDER BY timestamp"
    connection = sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)
    try:
        told = [str(text).strip() for (text,) in connection.execute(wanted)]
    except sqlite3.Error:
        return []  # an export without that table
    finally:
        connection.close()
    return [text for text in told if text]


def _export(nsys: Path, report: Path) -> Path:
    target = report.with_suffix(".sqlite")
    command = [
        str(nsys),
        "export",
        "--type=sqlite",
        "--force-overwrite=true",
        f"--output={target}",
        str(report),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    if done.returncode or not _is_whole(target):
        target.unlink(missing_ok=True)
        said = [line.rpartition("tag_message*] = ")[2] for line in done.stderr.splitlines() if line.strip()]
        raise RecordingError(
            report,
            f"nsys could not export it ({said[-1].strip() if said else f'exit code {done.returncode}'})",
            f"The report is kept: {shlex.join([str(nsys), 'export', '--type=sqlite', str(report)])}",
        )
    return target


def _is_whole(database: Path) -> bool:
    """Whether a SQLite file has all its pages: on a full disk nsys leaves an empty one and ends with 0."""
    try:
        with database.open("rb") as file:
            header = file.read(32)
        (page_bytes,), (pages,) = struct.unpack(">H", header[16:18]), struct.unpack(">I", header[28:32])
    except (OSError, struct.error):
        return False
    return bool(pages) and database.stat().st_size >= pages * (65536 if page_bytes == 1 else page_bytes)


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
