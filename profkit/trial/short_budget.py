"""A budget that does not hold each change alone: bundles, then what their members add, then what else there is time for."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Final

from profkit.trial.ahead import Names
from profkit.trial.attempts import Attempts
from profkit.trial.bundles import slow_first, stands_for, without_suspects
from profkit.trial.changes import ALREADY, compiles, is_autocast, is_compiler
from profkit.trial.document import TrialRow, changes_of
from profkit.trial.plan import likely_place
from profkit.trial.ratio import ENOUGH_TURNS
from profkit.trial.sentences import NO_TURN
from profkit.trial.turns import Side

__all__ = ["search_short", "start_bundles"]

_BUNDLES_TURNS: Final = 12
"""To choose one: what is kept is measured again."""
_TURNS_BESIDE_A_COMPILER: Final = ENOUGH_TURNS
"""The same while a compiler stands still for them: three, or as many as a verdict takes."""


def start_bundles(tries: Attempts, bundles: Sequence[Names], seed: Side) -> None:
    """Start bundles with another seed, and wait for all but those with a compiler."""
    # Autocast runs on any device, if not well.
    idle = {row.change for row in tries.rows if row.why == ALREADY or not is_autocast(row.change)}
    tries.ahead.adopt(bundles, functools.partial(stands_for, idle=idle), tries.patience_s, tries.until)
    tries.ahead.launch(slow_first(bundles), [seed])
    tries.ahead.wait([names for names in bundles if not compiles(names)], [seed])


def search_short(tries: Attempts, bundles: Sequence[Names], names: Sequence[str]) -> tuple[list[str], Side]:
    """What helps, with its side; the unchanged program where nothing does.

    Args:
        tries: What was tried.
        bundles: The smallest first.
        names: All that may be tried.
    """
    best = _Best(tries)
    try:
        best.choose_of(bundles)
        if not best.kept and (fewer := without_suspects(bundles)):
            tries.ahead.start(fewer)
            best.choose_of(fewer)
            best.tried.clear()
        kept, side = _without_idle_ones(tries, best.kept, best.side)
    except BaseException:
        best.side.stop()
        raise
    told = best.tried if kept else {row.change for row in tries.rows if not (row.together or row.kept)}
    rest = [name for name in names if name not in (*kept, *told)]
    return tries.stack(rest, kept, side)


class _Best:
    """The best of some bundles."""

    def __init__(self, tries: Attempts) -> None:
        self._tries = tries
        self._row: TrialRow | None = None
        self.side, self.kept = tries.baseline, list[str]()
        self.tried: set[str] = set()
        self._gains: dict[frozenset[str], float] = {}

    def choose_of(self, bundles: Sequence[Names]) -> None:
        """Try each of them, while there is time."""
        tries, waiting = self._tries, list(bundles)
        while waiting:
            bundle = min(waiting, key=lambda names: _turn(tries, names))
            waiting.remove(bundle)
            if self._gains_no_more(bundle):
                continue
            if not tries.holds(bundle):
                tries.ahead.take(bundle).stop()
                tries.add(TrialRow(change=bundle[0], together=bundle[1:], why=NO_TURN))
                continue
            turns = _TURNS_BESIDE_A_COMPILER if tries.ahead.is_compiling() else _BUNDLES_TURNS
            row, side = tries.attempt(bundle, [], tries.baseline, len(waiting) + 1, turns)
            tries.add(row)
            self.tried |= set(bundle)
            if row.measured is not None:
                self._gains[frozenset(bundle)] = row.measured.likely
            if row.kept and _beats(row, self._row, tries.unchanged.noise):
                if self.side is not tries.baseline:
                    self.side.stop()
                self._row, self.side, self.kept = row, side, list(changes_of(row))
            else:
                side.stop()

    def _gains_no_more(self, bundle: Names) -> bool:
        """Whether a compiler has run with more changes, which do no harm without it: another run would show no more."""
        if not compiles(bundle) or self._tries.ahead.has(bundle):
            return False
        plain = frozenset(name for name in bundle if not is_compiler(name))
        for larger in [names for names in self._gains if names > set(bundle)]:
            with_more = self._gains.get(plain | (larger - set(bundle)))
            if with_more is not None and with_more > self._gains.get(plain, 1.0) * (
                1 - self._tries.unchanged.noise
            ):
                return True
        return False


def _turn(tries: Attempts, names: Names) -> tuple[bool, bool, int]:
    """When a bundle has its turn: compilers last, and of these what has started, then the largest."""
    if not compiles(names):
        return False, False, len(names)
    return True, not tries.ahead.has(names), -len(names)


def _beats(row: TrialRow, best: TrialRow | None, noise: float) -> bool:
    """Whether a bundle is better than another; the one that holds more has to be so by more than noise."""
    if best is None or best.measured is None or row.measured is None:
        return True
    handicap = math.copysign(noise, len(changes_of(row)) - len(changes_of(best)))
    return row.measured.likely > best.measured.likely * (1 + handicap)


def _without_idle_ones(tries: Attempts, kept: list[str], best: Side) -> tuple[list[str], Side]:
    """Leave out what the others do without, the least likely first, while there is time."""
    doubtful = sorted((name for name in kept if not is_compiler(name)), key=likely_place, reverse=True)
    unknown = []
    for at, name in enumerate(doubtful):
        others = tuple(each for each in kept if each != name)
        if not others:
            break
        if not tries.holds(others):
            unknown = doubtful[at:]
            break
        tries.ahead.start(_leaving_out(kept, doubtful[at:]))
        row, side = tries.attempt_without(name, kept, best)
        tries.add(row)
        if not row.kept and row.measured is not None:
            best.stop()
            best, kept = side, list(others)
    if len(unknown) > 1:
        tries.notes.append(
            f"{', '.join(unknown)}: kept together; a larger --budget tells what each of them adds"
        )
    return kept, best


def _leaving_out(kept: Sequence[str], doubtful: Sequence[str]) -> list[Names]:
    """What is left without the next one, and without those after it, whether that one is left out or not."""
    wanted = []
    for at in range(len(doubtful)):
        for gone in (doubtful[: at + 1], doubtful[at : at + 1]):
            wanted.append(tuple(name for name in kept if name not in gone))
    return [names for names in dict.fromkeys(wanted) if names]
