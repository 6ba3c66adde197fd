"""``python -m profkit.recording.run_script OPTIONS train.py ...``: an unchanged script, recorded.

The script runs as ``__main__`` with its own arguments. Each step of its first optimizer ends a training step.
"""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys
from pathlib import Path
from typing import Any

from profkit.errors import RecordingError
from profkit.recording.recorder import Recorder, record

__all__ = ["main", "recorded_command"]

_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")


def recorded_command(program: list[str], options: dict[str, Any]) -> list[str]:
    """The command that runs a Python program recorded.

    Args:
        program: ``python train.py ...``, ``python -m package.module ...`` or ``train.py ...``.
        options: Those of `record`, as JSON can hold them.

    Raises:
        RecordingError: It is no Python script or module.
    """
    interpreter = [sys.executable]
    rest = list(program)
    if rest and Path(rest[0]).name.startswith("python"):
        interpreter = [rest.pop(0)]
        while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c", "-"):
            interpreter += [rest.pop(0)]
            if interpreter[-1] in _OPTIONS_WITH_VALUE and rest:
                interpreter += [rest.pop(0)]
    is_module = len(rest) > 1 and rest[0] == "-m"
    if not is_module and not (rest and rest[0].endswith(".py")):
        raise RecordingError(
            " ".join(program) or "profkit record",
            "is not a Python script or module",
            "Write: -- python train.py ...; under torchrun: torchrun ... -m profkit.recording.run_script '{}' train.py",
        )
    return [*interpreter, "-m", "profkit.recording.run_script", json.dumps(options), *rest]


def main(arguments: list[str]) -> None:
    """Run ``arguments[1:]`` under `record` with the options of ``arguments[0]``."""
    options = json.loads(arguments[0])
    program = arguments[1:]
    if program[0] != "-m" and not Path(program[0]).exists():
        sys.exit(f"Error: {program[0]}: there is no such script")
    if importlib.util.find_spec("torch") is None:
        sys.exit(f"Error: {sys.executable}: torch is not installed here. Install profkit[torch]")
    with record(**options) as recorder:
        if options.get("steps", 3) is not None:
            _step_with_optimizer(recorder)
        if program[0] == "-m":
            sys.argv = program[1:]
            sys.path[0] = ""
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = program
            sys.path[0] = str(Path(program[0]).resolve().parent)
            runpy.run_path(program[0], run_name="__main__")


def _step_with_optimizer(recorder: Recorder) -> None:
    if recorder.folder is None:
        return
    from torch.optim import optimizer as optimizers

    first: list[int] = []

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not first:
            first.append(id(optimizer))
        if first[0] == id(optimizer):
            recorder.step_heard()

    optimizers.register_optimizer_step_post_hook(stepped)


if __name__ == "__main__":
    main(sys.argv[1:])
