"""What is kept in the end, and what to write."""

from __future__ import annotations

import math
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
        rows: The trials, of which the best that is known counts then.
        baseline_ms: The unchanged step.
        facts: Of the program.
    """
    known = _best_known(rows) if whole is None else []
    if known:
        kept = [row.change for row in known]
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
    kept = {(*row.beside, row.change): row for row in rows if row.kept and row.measured}
    chains = [[kept.get(names[: at + 1]) for at in range(len(names))] for names in kept]
    whole = [[row for row in chain if row] for chain in chains if None not in chain]
    return max(whole, key=lambda chain: _product(chain).likely, default=[])


def _product(chain: Sequence[TrialRow]) -> Interval:
    """The speed-up of a chain; its interval is as wide as those of its changes together."""
    each = [row.measured for row in chain if row.measured]
    low, likely, high = (
        math.prod(values) for values in zip(*((i.low, i.likely, i.high) for i in each), strict=True)
    )
    return Interval(low=low, likely=likely, high=high)
