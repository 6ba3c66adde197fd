"""What is kept in the end, and what to write."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from profkit.model.rows import Interval
from profkit.trial.changes import change_named
from profkit.trial.curves import Likeness
from profkit.trial.document import Kept, LossRow, TrialRow, changes_of
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
        rows: The trials, of which the best that is known counts then.
        baseline_ms: The unchanged step.
        facts: Of the program.
    """
    known = _best_known(rows) if whole is None else []
    if known:
        kept = changes_of(known[-1])
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
    if known:
        speedup = _product(known)
        final = replace(final, speedup=speedup, after_ms=baseline_ms.likely / speedup.likely)
        last = known[-1]
        return final, LossRow(unchanged=None if last.loss_distance is None else True, why=last.why)
    return final, LossRow(unchanged=None, why="nothing is kept")


def _best_known(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """The chain of kept changes that gains most, each measured beside those before it."""
    chains: dict[tuple[str, ...], list[TrialRow]] = {(): []}
    for row in rows:
        if row.kept and row.measured and row.beside in chains:
            chains[changes_of(row)] = [*chains[row.beside], row]
    return max(chains.values(), key=lambda chain: _product(chain).likely)


def _product(chain: Sequence[TrialRow]) -> Interval:
    """The speed-up of a chain; its interval is as wide as those of its changes together."""
    product = Interval(low=1.0, likely=1.0, high=1.0)
    for each in (row.measured for row in chain if row.measured):
        product = Interval(
            low=product.low * each.low, likely=product.likely * each.likely, high=product.high * each.high
        )
    return product
