"""Two recordings of numerics: where, in the order of execution, they begin to hold other values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profkit.comparison.numerics_rows import NumericsChange, NumericsComparison
from profkit.comparison.side import Side
from profkit.model.report_numerics import Numerics, TensorRow

__all__ = ["numerics_changes"]

_ROUNDING: Final = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp32": 1e-5, "fp64": 1e-12}
"""The most that a norm changes when every value is rounded once (unit roundoff); of fp32 and fp64 more, since sums in
another order differ by more than that."""

_MOST_NAMES: Final = 20


def numerics_changes(before: Side, after: Side) -> NumericsComparison | None:
    """Where two sides part; None where one of them has no numerics. Ranks are compared with their like."""
    others = {row.rank: row for report in after.reports for row in report.numerics}
    mine = {row.rank: row for report in before.reports for row in report.numerics}
    pairs = [(row, others[rank]) for rank, row in mine.items() if rank in others]
    if not pairs:
        return None
    found = sorted((each for pair in pairs for each in _parted(*pair)), key=lambda row: row.step)
    shared = [(one, other) for pair in pairs for one, other in _shared(*pair)]
    return NumericsComparison(
        steps=len({step for one, other in shared for step in {*one.steps} & {*other.steps}}),
        tensors=len(shared),
        changes=found,
        only_in_one=[*dict.fromkeys(name for pair in pairs for name in _only_in_one(*pair))][:_MOST_NAMES],
    )


def _shared(before: Numerics, after: Numerics) -> list[tuple[TensorRow, TensorRow]]:
    """Tensors of both with a step in common, in the order of execution."""
    others = {(row.tensor, row.name): row for row in after.tensors}
    pairs = [(row, others.get((row.tensor, row.name))) for row in before.tensors]
    return [(one, other) for one, other in pairs if other is not None and {*one.steps} & {*other.steps}]


def _only_in_one(before: Numerics, after: Numerics) -> list[str]:
    """Names that the tensors of one recording have alone, in the order of execution."""
    mine, others = ({row.name for row in each.tensors} for each in (before, after))
    return [row.name for each in (before, after) for row in each.tensors if row.name in mine ^ others]


def _parted(before: Numerics, after: Numerics) -> Iterator[NumericsChange]:
    """Each tensor that parts, in its first step that does."""
    for one, other in _shared(before, after):
        allowed = max(_ROUNDING.get(row.dtype, 0.0) for row in (one, other))
        at = {step: place for place, step in enumerate(other.steps)}
        for place, step in enumerate(one.steps):
            if step not in at:
                continue
            norms = one.norms[place], other.norms[at[step]]
            if _differ(*norms, allowed) or _differ(one.largest[place], other.largest[at[step]], 2 * allowed):
                yield NumericsChange(
                    step=step, name=one.name, tensor=one.tensor, rank=before.rank, before=norms[0],
                    after=norms[1], dtype_before=one.dtype, dtype_after=other.dtype,
                )  # fmt: skip
                break


def _differ(one: float | None, other: float | None, allowed: float) -> bool:
    if one is None or other is None:
        return one is not other
    return abs(one - other) > allowed * max(abs(one), abs(other))
