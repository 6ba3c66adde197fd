"""The command line that runs a program recorded: of Python itself, and of what starts ranks."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from profkit.errors import RecordingError

__all__ = ["RUNNER", "marked_command", "missing_profkit", "recorded_command"]

RUNNER: Final = "profkit.recording.run_script"

_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")

_LAUNCHERS: Final = ("torchrun", "accelerate", "deepspeed")
_LAUNCHER_MODULES: Final = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "deepspeed.launcher.runner",
    "deepspeed",
)
_MODULE_FLAGS: Final = ("-m", "--module")


def recorded_command(program: list[str], options: dict[str, Any], runner: str = RUNNER) -> list[str]:
    """The command that runs a Python program recorded, in each of its ranks.

    Args:
        program: ``python train.py ...``, ``python -m package.module ...``, ``python -c ...``, ``train.py ...`` or an
            installed program that is written in Python; or ``torchrun``, ``accelerate launch``, ``deepspeed`` (or
            ``python -m`` of them) around such a script.
        options: Those of the runner, as JSON can hold them.
        runner: The module that runs the script: `profkit.recording.run_script`, or one like it.

    Raises:
        RecordingError: It is no Python script or module.
    """
    started, rest = _interpreter(program)
    if started is None:
        raise _not_python(program)
    if _launches(rest):
        at = _script_of_launcher(rest)
        if at is None:
            raise RecordingError(
                " ".join(program),
                "starts no Python script to record",
                f"Write: -- {' '.join([*program[:1], *_subcommand(rest)])} [its options] train.py ...",
            )
        if options.get("on") == "signal":
            raise RecordingError(
                " ".join(program),
                "ends by the signal, before its ranks hear of it",
                "Ask by a file: --on FILE",
            )
        head = rest[: at - 1] if rest[at - 1] in _MODULE_FLAGS else rest[:at]
        script = ["-m", rest[at]] if rest[at - 1] in _MODULE_FLAGS else [rest[at]]
        flag = "--module" if "deepspeed" in " ".join(rest[:2]) else "-m"
        return [*started, *head, flag, runner, json.dumps(options), *script, *rest[at + 1 :]]
    given = len(rest) > 1 and rest[0] in ("-m", "-c")
    if not given and not (rest and (rest[0].endswith(".py") or Path(rest[0]).exists())):
        raise _not_python(program)
    return [*started, "-m", runner, json.dumps(options), *rest]


def marked_command(program: list[str], folder: str) -> list[str]:
    """The command that marks the phases and steps of a Python program for nsys; any other program as it is.

    Args:
        program: The program and its arguments.
        folder: Where ``run.json`` goes.
    """
    everything = {"folder": folder, "wait": 0, "warmup": 0, "steps": sys.maxsize, "capture": False}
    try:
        line = recorded_command(program, everything)
    except RecordingError:
        return program
    return program if missing_profkit(line) else line


def missing_profkit(command: list[str]) -> RecordingError | None:
    """What is wrong if the program's own Python has no profkit; None where it has."""
    python = _python_of(command[0])
    if python is None or Path(python).absolute() == Path(sys.executable).absolute():
        return None
    asked = [python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('profkit') is None)"]
    try:
        missing = subprocess.run(asked, check=False, capture_output=True, timeout=60).returncode == 1
    except (OSError, subprocess.TimeoutExpired):
        return None
    if not missing:
        return None
    here = f"this profkit is of {sys.executable}"
    return RecordingError(
        python,
        f"has no profkit: {here}",
        f"Install it there, in the clone of profkit: {shlex.join([python, '-m', 'pip'])} install .",
    )


def _python_of(program: str) -> str | None:
    """The Python that a program is, or that a script of a Python environment runs with."""
    found = shutil.which(program)
    if found is None or Path(program).name.startswith("python"):
        return found
    with contextlib.suppress(OSError), open(found, "rb") as file:  # noqa: PTH123
        first = file.readline(200)
        if first.startswith(b"#!") and b"python" in first:
            return first[2:].decode("utf-8", "replace").split()[0]
    return None


def _interpreter(program: list[str]) -> tuple[list[str] | None, list[str]]:
    """Python with its own options, and what it runs; nothing before a launcher that is a program."""
    if not program:
        return None, []
    name = Path(program[0]).name
    if name in _LAUNCHERS:
        return [], list(program)
    if not name.startswith("python"):
        found, python = shutil.which(program[0]), _python_of(program[0])
        if found and python:
            return [python], [found, *program[1:]]
        return ([sys.executable], list(program)) if name.endswith(".py") or not found else (None, [])
    rest, interpreter = list(program[1:]), [program[0]]
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
        interpreter += [rest.pop(0)]
        if interpreter[-1] in _OPTIONS_WITH_VALUE and rest:
            interpreter += [rest.pop(0)]
    return interpreter, rest


def _launches(rest: list[str]) -> bool:
    if rest[:1] == ["-m"]:
        return len(rest) > 1 and rest[1] in _LAUNCHER_MODULES
    return bool(rest) and Path(rest[0]).name in _LAUNCHERS


def _subcommand(rest: list[str]) -> list[str]:
    return ["launch"] if Path(rest[0]).name == "accelerate" else rest[:2] if rest[0] == "-m" else []


def _script_of_launcher(rest: list[str]) -> int | None:
    """Where the script or module stands: after the launcher's own options, whose values are no Python files."""
    first = 2 if rest[0] == "-m" else 1
    for at in range(first, len(rest)):
        if rest[at - 1] in _MODULE_FLAGS and at - 1 >= first:
            return at
        if rest[at].endswith(".py") and (not rest[at - 1].startswith("--") or os.path.exists(rest[at])):  # noqa: PTH110
            return at
    return None


def _not_python(program: list[str]) -> RecordingError:
    return RecordingError(
        " ".join(program) or "profkit record",
        "is not a Python script or module",
        "Write: -- python train.py ..., or torchrun, accelerate launch or deepspeed with a script",
    )
