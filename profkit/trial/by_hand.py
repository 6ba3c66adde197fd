"""What a recording promises of changes that cannot be made from outside: its price, and the code to write."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.advice import RULES
from profkit.simulation.answer import WhatIfChange
from profkit.simulation.change_help import CHANGE_HELP
from profkit.trial.changes import CHANGES
from profkit.trial.document import ByHand

__all__ = ["by_hand"]


def by_hand(priced: Iterable[WhatIfChange]) -> tuple[ByHand, ...]:
    """Those of the priced changes that a trial cannot apply, the largest first.

    Args:
        priced: The answer of a replay, by change.
    """
    code = {rule.change: rule.code for rule in reversed(RULES) if rule.change}
    rows = [
        ByHand(
            change=row.name,
            what=CHANGE_HELP[row.name],
            predicted=row.speedup,
            code=code.get(row.name, "").splitlines(),
        )
        for row in priced
        if row.name in CHANGE_HELP and row.name not in CHANGES and row.speedup.likely > 1
    ]
    return tuple(sorted(rows, key=lambda row: -row.predicted.likely))
