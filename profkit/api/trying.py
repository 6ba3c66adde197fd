"""Trials, as the command line and notebooks make them."""

from __future__ import annotations

import platform
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace as with_fields
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from profkit.api.output_files import write_whole
from profkit.errors import ReadError
from profkit.trial.document import TrialRow, TryDocument
from profkit.trial.plan import Plan
from profkit.trial.running import Program
from profkit.trial.search import Trial

if TYPE_CHECKING:
    from profkit.simulation.answer import WhatIfChange

__all__ = ["try_program"]


class _State(msgspec.Struct):
    """What a state file holds."""

    program: list[str]
    machine: str
    rows: list[TrialRow]


def try_program(
    program: Program,
    plan: Plan,
    tell: Callable[[str], None] = lambda line: None,
    recording: str | None = None,
    state: str | None = None,
) -> TryDocument:
    """Try changes on a program, in processes of its own.

    Args:
        program: The command and how its steps are counted.
        plan: What is tried, and how long.
        tell: Is told what happens, a line at a time.
        recording: A recording of the program, whose replay says what each change would bring.
        state: A file that holds the finished trials, and is gone on from where it exists.

    Raises:
        RecordingError: The unchanged program does not run, or has no steps.
        ReadError: The recording or the state cannot be read.
    """
    if recording is None:
        return _tried(program, plan, tell, state)
    from profkit.trial.by_hand import by_hand

    priced = _prices(recording)
    plan = with_fields(plan, predicted={row.name: row.speedup for row in priced})
    return replace(_tried(program, plan, tell, state), by_hand=by_hand(priced))


def _tried(program: Program, plan: Plan, tell: Callable[[str], None], state: str | None) -> TryDocument:
    if state is None:
        with _ended_by_sigterm():
            return Trial(program, plan, tell).run()
    path, machine = Path(state), platform.node()
    known = _read(path, program, machine)

    def keep(rows: Sequence[TrialRow]) -> None:
        alone = [row for row in rows if not row.beside and not row.together and row.measured]
        write_whole(path, msgspec.json.encode(_State(list(program.command), machine, alone)))

    with _ended_by_sigterm():
        return Trial(program, plan, tell, known, keep).run()


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends a trial as Ctrl-C does: a scheduler's time limit loses nothing that is known."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _read(path: Path, program: Program, machine: str) -> list[TrialRow]:
    if not path.exists():
        return []
    try:
        state = msgspec.json.decode(path.read_bytes(), type=_State)
    except (OSError, msgspec.MsgspecError) as error:
        raise ReadError(
            path, f"not the state of a trial ({error})", "Name another file with --state"
        ) from error
    if state.program != list(program.command) or state.machine != machine:
        raise ReadError(path, "the state of another program or machine", "Name another file with --state")
    return state.rows


def _prices(recording: str) -> list[WhatIfChange]:
    from profkit.readers import read
    from profkit.report.assembly import timelines
    from profkit.report.views import Options
    from profkit.simulation.answer import what_if

    views, _ = timelines([read(recording)], Options())
    found = what_if(views, ())
    return [] if found is None else list(found.changes)
