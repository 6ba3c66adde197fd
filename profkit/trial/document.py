"""`profkit.try/1`: what a trial found."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from profkit.model.rows import Interval, Row
from profkit.rendering.report_json import ascii_json
from profkit.rendering.schema import schema_of

__all__ = [
    "TRY_SCHEMA",
    "ByHand",
    "Kept",
    "LossRow",
    "TrialRow",
    "TryDocument",
    "changes_of",
    "encode",
    "try_schema",
]

TRY_SCHEMA: Final = "profkit.try/1"


class TrialRow(Row, frozen=True, kw_only=True):
    """One change, tried or not."""

    change: str
    """Its name."""
    beside: tuple[str, ...] = ()
    """The changes that both sides had."""
    together: tuple[str, ...] = ()
    """More changes that only the changed side had: they were measured as one."""
    predicted: Interval | None = None
    """The speed-up by a recording's replay; null where none was given."""
    measured: Interval | None = None
    """The speed-up of the step with its 95 % interval; null where it was not measured."""
    kept: bool = False
    """Whether it was faster beyond the noise and the loss stayed."""
    undecided: bool = False
    """Whether the interval holds no gain as well as one of more than 10 %."""
    why: str = ""
    """Why it was kept, or not, or not tried."""
    turns: int = 0
    """Pairs of blocks that were timed."""
    loss_distance: float | None = None
    """How far the losses were from the baseline's, relative to the loss; null where there are none."""
    first_step_s: float | None = None
    """The program's start until its first step has ended; null where it did not get there."""
    warmup_s: float | None = None
    """The program's start until the warm-up has ended, with compilation, which is at the second step."""
    peak_bytes: int | None = None
    """The most memory that torch held on the GPU; null without one."""


def changes_of(row: TrialRow) -> tuple[str, ...]:
    """All that the changed side of a trial had."""
    return (*row.beside, row.change, *row.together)


class ByHand(Row, frozen=True, kw_only=True):
    """A change that cannot be made from outside, as a recording's replay prices it."""

    change: str
    """Its name."""
    what: str
    """What it does, as an order."""
    predicted: Interval
    """The speed-up by the replay."""
    code: list[str]
    """Lines to write; empty where there is no pattern for it."""


class LossRow(Row, frozen=True, kw_only=True):
    """What became of the loss."""

    unchanged: bool | None
    """Null where there is nothing to compare."""
    why: str
    """By how much it differs, and by how much other seeds do."""


class Kept(Row, frozen=True, kw_only=True):
    """What is kept, together."""

    speedup: Interval | None
    """Measured anew, beside the unchanged program; null where nothing is kept."""
    before_ms: float
    """The unchanged step in that measurement."""
    after_ms: float
    """The changed step."""
    changes: list[str]
    """In the order in which they were added."""
    patch: list[str]
    """Lines to write."""
    environment: list[str]
    """Variables to set before the command."""


class TryDocument(Row, frozen=True, kw_only=True):
    """A whole trial."""

    schema: str = TRY_SCHEMA
    """The name of this format."""
    sentence: str
    """What came of it, in a line."""
    command: list[str]
    """The program."""
    baseline_ms: Interval
    """The unchanged step."""
    variation: Interval | None
    """The ratio of two unchanged programs; null where it was not measured."""
    noise: float
    """The least gain that counts, as a share of the step."""
    trials: list[TrialRow]
    """In the order in which they were made."""
    final: Kept
    """What is kept."""
    loss: LossRow
    """The loss with all that is kept."""
    baseline_peak_bytes: int | None
    """The most memory that torch held on the GPU without a change; null without one."""
    baseline_warmup_s: float
    """The unchanged program's start until the warm-up has ended."""
    duration_s: float
    """What the trial took."""
    notes: list[str]
    """What else is to be known."""
    by_hand: tuple[ByHand, ...] = ()
    """What a recording promises of changes that cannot be made from outside, the largest first."""


def try_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `profkit.try/1`."""
    return schema_of(TryDocument, TRY_SCHEMA, "What `profkit try --format json` writes. Unknown is null.")


def encode(document: TryDocument) -> str:
    """As JSON, indented."""
    return ascii_json(msgspec.json.format(msgspec.json.encode(document), indent=1).decode()) + "\n"
