"""``python -m profkit.recording.run_script OPTIONS train.py ...``: an unchanged script, recorded.

The script runs as ``__main__`` with its own arguments. Its phases and steps are heard from torch.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import runpy
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from profkit.recording.children import record_children
from profkit.recording.event_marks import mark_recorded_steps
from profkit.recording.notices import plain_lines
from profkit.recording.program_events import in_backward, listen, unlisten
from profkit.recording.recorder import Recorder, record
from profkit.recording.signals import EndsFirst
from profkit.recording.step_finder import StepFinder

__all__ = ["main", "run_as_main"]


def main(
    arguments: list[str],
    recorder: Callable[[dict[str, Any]], AbstractContextManager[object]] | None = None,
) -> None:
    """Run ``arguments[1:]`` recorded, with the options of ``arguments[0]``.

    Args:
        arguments: The options are those of `record` as JSON, and of a script: ``modules``, ``step_by``, ``step_every``,
            ``stop_after``.
        recorder: Records with the options, where that is not `recorded`.
    """
    options = json.loads(arguments[0])
    program = arguments[1:]
    if program[0] not in ("-m", "-c") and not Path(program[0]).exists():
        sys.exit(f"Error: {program[0]}: there is no such script")
    if importlib.util.find_spec("torch") is None:
        sys.exit(f"Error: {sys.executable}: torch is not installed here. Install PyTorch")
    plain_lines()
    with (recorder or recorded)(options):
        run_as_main(program)


def run_as_main(program: list[str]) -> None:
    """Run a script, or ``-m`` and a module, or ``-c`` and code, as ``__main__`` with its own arguments."""
    if program[0] == "-m":
        sys.argv = program[1:]
        sys.path[0] = ""
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    elif program[0] == "-c":
        sys.argv = ["-c", *program[2:]]
        sys.path[0] = ""
        main_module = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(program[1], "<string>", "exec"), vars(main_module))
    else:
        sys.argv = program
        sys.path[0] = str(Path(program[0]).resolve().parent)
        runpy.run_path(program[0], run_name="__main__")


@contextmanager
def recorded(options: dict[str, Any]) -> Iterator[Recorder]:
    """Record a program that says nothing of its steps and phases."""
    options = options | {"folder": str(Path(options["folder"]).absolute())}  # wherever the program goes
    own = dict(options)
    script = {name: own.pop(name, None) for name in ("modules", "step_by", "step_every", "stop_after")}
    with ExitStack() as stack:
        recorder = stack.enter_context(record(**own))
        if recorder.folder is None and not script["stop_after"]:
            yield recorder
            return
        stack.callback(record_children(recorded, options))
        if recorder.folder is not None:
            stack.callback(EndsFirst(functools.partial(_end, recorder)).give_back)
            stack.push(lambda _kind, error, _where: recorder.stop(error))  # while signals still wait for it
            stack.callback(mark_recorded_steps(recorder, script["modules"] or 0))
        if own.get("steps", 3) is not None:
            ended = _stepper(recorder, own, bool(script["stop_after"]))
            finder = StepFinder(ended, script["step_by"], script["step_every"] or 1)
            recorder.heard = finder.heard
            listen(finder)
            stack.callback(unlisten, finder)
        yield recorder


def _end(recorder: Recorder, cause: str) -> bool | None:
    """End the recording, but never within backward, which a profiler that stops there takes down."""
    if recorder.stopping:
        return None
    if in_backward():
        return False
    recorder.stop(cause=cause)
    return True


def _stepper(recorder: Recorder, options: dict[str, Any], stop_after: bool) -> Callable[[], None]:
    """What a step that was heard does; ranks that do not record count, to end with those that do."""
    if not stop_after:
        return recorder.step_heard
    if recorder.folder is not None:
        recorder.when_done = functools.partial(sys.exit, 0)
        return recorder.step_heard
    left = options.get("wait", 2) + options.get("warmup", 2) + options.get("steps", 3)

    def count() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            sys.exit(0)

    return count


if __name__ == "__main__":
    # The script becomes __main__: what children unpickle must be found elsewhere.
    importlib.import_module("profkit.recording.run_script").main(sys.argv[1:])
