"""The documents `profkit.compare/1` and `profkit.gate/1`: comparisons and limits with their sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from profkit.comparison import rows
from profkit.model.rows import Row
from profkit.rendering.sentences.comparison import (
    comparison_sentence,
    limit_sentence,
    reason_sentence,
    setup_sentence,
)

__all__ = [
    "COMPARE_SCHEMA",
    "GATE_SCHEMA",
    "ComparisonDocument",
    "GateDocument",
    "LimitRow",
    "SetupRow",
    "StepChange",
    "comparison_document",
    "gate_document",
]

Said = TypeVar("Said")

COMPARE_SCHEMA = "profkit.compare/1"
GATE_SCHEMA = "profkit.gate/1"


class SetupRow(rows.SetupWarning, frozen=True, kw_only=True):
    """A difference of the setup."""

    message: str
    """What differs, in one sentence."""


class StepChange(rows.Judgement, frozen=True, kw_only=True):
    """The step's change; times in ns per typical (median) step of one device."""

    reason: str | None
    """Why the sides are not comparable."""


class ComparisonDocument(rows.Comparison, frozen=True, kw_only=True, tag_field="schema", tag=COMPARE_SCHEMA):
    """What `profkit compare --format json` writes. Times are ns per step of one device, sizes bytes."""

    sentence: str
    """The verdict with its numbers and what explains it."""
    step: StepChange
    """The step's change, and how sure it is."""
    warnings: Sequence[SetupRow]
    """What differs in the setup; what forbids a conclusion first."""


class LimitRow(rows.LimitResult, frozen=True, kw_only=True):
    """What a gate finds about one limit."""

    message: str
    """The same as a sentence."""


class GateDocument(Row, frozen=True, kw_only=True, tag_field="schema", tag=GATE_SCHEMA):
    """What `profkit gate --format json` writes."""

    outcome: rows.Outcome
    """``kept`` where all limits are kept, ``broken`` where one is broken, else ``unknown``."""
    passed: bool
    """Whether the gate opens: all limits are kept, or unknown ones are allowed and none is broken."""
    limits: Sequence[LimitRow]
    """What was found about each limit."""
    comparison: ComparisonDocument | None
    """The report against its baseline; None without one."""


def comparison_document(comparison: rows.Comparison) -> ComparisonDocument:
    """A comparison with its sentences."""
    judged = comparison.step
    reason = reason_sentence(judged.incomparable) if judged.incomparable is not None else None
    return _with_words(
        ComparisonDocument,
        comparison,
        sentence=comparison_sentence(comparison),
        step=_with_words(StepChange, judged, reason=reason),
        warnings=[_with_words(SetupRow, row, message=setup_sentence(row)) for row in comparison.warnings],
    )


def gate_document(
    limits: Sequence[rows.LimitResult], comparison: ComparisonDocument | None, *, allow_unknown: bool
) -> GateDocument:
    """What a gate found, with its sentences."""
    found = {row.outcome for row in limits}
    outcome: rows.Outcome = "broken" if "broken" in found else "unknown" if "unknown" in found else "kept"
    return GateDocument(
        outcome=outcome,
        passed=outcome == "kept" or (allow_unknown and outcome == "unknown"),
        limits=[_with_words(LimitRow, row, message=limit_sentence(row)) for row in limits],
        comparison=comparison,
    )


def _with_words(kind: Callable[..., Said], row: msgspec.Struct, **words: object) -> Said:
    """A row as one of the document."""
    return kind(**{name: getattr(row, name) for name in row.__struct_fields__} | words)
