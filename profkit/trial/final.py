"""What is kept in the end, and what to write."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from profkit.model.rows import Interval
from profkit.trial.changes import change_named
from profkit.trial.curves import Likeness
from profkit.trial.document import Kept, LossRow, TrialRow
from profkit.trial.messages import Facts
from profkit.trial.ratio import spread_of_times
from profkit.trial.turns import Comparison

__all__ = ["final_of"]


def final_of(
    kept: Sequence[str],
    whole: tuple[Comparison, Likeness] | None,
    rows: Sequence[TrialRow],
    baseline_ms: Interval,
    facts: Facts,
) -> tuple[Kept, LossRow]:
    """The last line of a trial.

    Args:
        kept: The changes that are kept.
        whole: Their measurement beside the unchanged program; None where the trial ended before it.
        rows: The trials, of which the best counts then.
        baseline_ms: The unchanged step.
        facts: Of the program.
    """
    alone = _best_alone(rows) if whole is None else None
    if alone is not None:
        kept = [alone.change]
    changes = [change_named(name) for name in kept]
    final = Kept(
        speedup=None,
        before_ms=baseline_ms.likely,
        after_ms=baseline_ms.likely,
        changes=list(kept),
        patch=[line for change in changes for line in change.patch(facts)],
        environment=[f"{k}={v}" for change in changes for k, v in change.environment(facts).items()],
    )
    if whole is not None:
        found, likeness = whole
        before_ms, after_ms = (
            spread_of_times(each).likely / 1e6 for each in (found.before_ns, found.after_ns)
        )
        final = replace(final, speedup=found.ratio, before_ms=before_ms, after_ms=after_ms)
        return final, LossRow(unchanged=likeness.same, why=likeness.why)
    if alone is not None and alone.measured is not None:
        final = replace(final, speedup=alone.measured, after_ms=baseline_ms.likely / alone.measured.likely)
        return final, LossRow(unchanged=None if alone.loss_distance is None else True, why=alone.why)
    return final, LossRow(unchanged=None, why="nothing is kept")


def _best_alone(rows: Sequence[TrialRow]) -> TrialRow | None:
    helping = [row for row in rows if row.kept and row.measured and not row.beside]
    return max(helping, key=lambda row: row.measured.likely if row.measured else 0.0, default=None)
