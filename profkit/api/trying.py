"""Trials, as the command line and notebooks make them: what ``profkit.try_`` does."""

from __future__ import annotations

import platform
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as with_fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from profkit.api.inputs import PathLike
from profkit.api.output_files import write_whole
from profkit.errors import ReadError, RecordingError
from profkit.trial.attempts import AFTER, BEFORE
from profkit.trial.document import TrialRow, TryDocument, encode
from profkit.trial.page import try_page
from profkit.trial.plan import Plan
from profkit.trial.running import Program, Tryable
from profkit.trial.search import Trial
from profkit.trial.sentences import is_part, trial_text
from profkit.units import parse_duration_ns

if TYPE_CHECKING:
    from profkit.api.comparing import ComparisonReport
    from profkit.simulation.answer import WhatIfChange

__all__ = ["Tried", "compared", "try_", "try_program"]


@dataclass(frozen=True, eq=False, repr=False)
class Tried:
    """A finished trial. It shows itself in a notebook.

    ``document.trials`` are its rows, ``document.final`` what is kept: its changes, speed-up and lines to write.
    """

    document: TryDocument
    """The trial as typed rows: what is published as `profkit.try/1`."""
    comparison: ComparisonReport | None = None
    """Of the recordings of the unchanged step and of the kept one, where they were asked for and made."""

    def save(self, path: PathLike) -> Path:
        """Write the trial to a file: a page if its name ends in .html, else JSON.

        Raises:
            OutputError: It cannot be written there.
        """
        is_page = str(path).endswith((".html", ".htm"))
        write_whole(Path(path), try_page(self.document) if is_page else encode(self.document))
        return Path(path)

    def keep(self, database: PathLike) -> None:
        """Add what was predicted and measured to a history, which is made where there is none.

        Raises:
            OutputError: It cannot be written.
        """
        from profkit.saved_runs import History

        with History(database, create=True) as history:
            history.save_trials(
                [_kept_row(self.document, row) for row in self.document.trials if row.measured]
            )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(trial_text(self.document))}</pre>"

    def __str__(self) -> str:
        return trial_text(self.document)

    def __repr__(self) -> str:
        return f"<Tried: {self.document.sentence}>"


def try_(  # noqa: PLR0913 - options by name, as on the command line
    step: Callable[[], object] | Sequence[str],
    *,
    budget: str = "10m",
    steps: int = 20,
    warmup: int = 5,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
    keep_going: bool = False,
    recording: str | None = None,
    compare: PathLike | None = None,
    tell: Callable[[str], None] | None = print,
) -> Tried:
    """Apply changes to a step function or to an unchanged program, measure each, and keep what helps.

    A step function runs in this process, and each trial of a change has its own copy of weights, gradients, optimizer
    states and random states. After it all is as it was before. Loaders were made before, and so stay as they are.

    Args:
        step: Makes one training step: forward, backward and the optimizer. Or the command of a program, such as
            ``["python", "train.py"]``, which runs in processes of its own.
        budget: Time for the whole trial: ``90s``.
        steps: Steps to time of each side, unless fewer tell.
        warmup: Steps to run first.
        only: Names of changes: try only these.
        skip: Try all but these.
        keep_going: Go on where two unchanged programs differ by much.
        recording: Predict savings by a replay of this recording, and try the largest first.
        compare: Record the unchanged step and the kept one into this folder, and compare them.
        tell: Is told what happens, a line at a time; None tells nobody.

    Raises:
        RecordingError: The unchanged step fails, or a change is unknown.
        ReadError: The recording cannot be read.
        ProfkitError: The budget is no duration.
    """
    if callable(step):
        from profkit.trial.step_function import StepFunction

        program: Tryable = StepFunction(step, warmup)
    elif isinstance(step, list | tuple) and step and all(isinstance(word, str) for word in step):
        program = Program(tuple(step), warmup)
    else:
        raise RecordingError(
            "profkit.try_", f"cannot run {step!r}", 'Give a function, or ["python", "train.py"]'
        )
    plan = Plan(
        budget_s=parse_duration_ns(budget) / 1e9,
        steps=steps,
        only=tuple(only),
        skip=tuple(skip),
        keep_going=keep_going,
        compared_in=None if compare is None else str(compare),
    )
    document = try_program(program, plan, tell or (lambda line: None), recording)
    return Tried(document, compared(document, plan))


def compared(found: TryDocument, plan: Plan) -> ComparisonReport | None:
    """The recordings that a trial has made, compared, with a page beside them; None where it has made none.

    Raises:
        ReadError: They cannot be read.
        OutputError: The page cannot be written.
    """
    if plan.compared_in is None:
        return None
    sides = [Path(plan.compared_in) / name for name in (BEFORE, AFTER)]
    if not found.final.changes or not all((side / "run.json").exists() for side in sides):
        return None
    from profkit.api.comparing import compare

    steps_ns = (round(found.final.before_ms * 1e6), round(found.final.after_ms * 1e6))
    comparison = compare(*sides, plain_step_ns=steps_ns)
    comparison.save(sides[0].parent / "comparison.html")
    return comparison


def _kept_row(found: TryDocument, row: TrialRow) -> dict[str, str | float | None]:
    columns: dict[str, str | float | None] = {
        "command": " ".join(found.command),
        "step_ms": found.baseline_ms.likely,
        "changes": " + ".join((row.change, *row.together)),
        "beside": " + ".join(row.beside),
        "kept": int(is_part(row, found)),
        "why": row.why,
    }
    for name, interval in (("predicted", row.predicted), ("measured", row.measured)):
        low, likely, high = (
            (None, None, None) if interval is None else (interval.low, interval.likely, interval.high)
        )
        columns |= {f"{name}_low": low, name: likely, f"{name}_high": high}
    return columns


class _State(msgspec.Struct):
    """What a state file holds."""

    program: list[str]
    machine: str
    rows: list[TrialRow]


def try_program(
    program: Tryable,
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


def _tried(program: Tryable, plan: Plan, tell: Callable[[str], None], state: str | None) -> TryDocument:
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


def _read(path: Path, program: Tryable, machine: str) -> list[TrialRow]:
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
