"""The changes that are tried have the names that advice, what-if and fit use."""

from __future__ import annotations

from profkit.simulation import CHANGES as PRICED
from profkit.simulation.change_help import CHANGE_HELP
from profkit.trial.changes import CHANGES as TRIED


def test_every_change_is_in_the_one_list() -> None:
    assert set(TRIED) <= set(CHANGE_HELP)
    assert set(PRICED) <= set(CHANGE_HELP)
    assert [name for name in CHANGE_HELP if name in PRICED] == list(PRICED)
