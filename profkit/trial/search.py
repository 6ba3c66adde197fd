"""Which changes help: each beside the unchanged program, then together."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from profkit.errors import RecordingError
from profkit.trial.ahead import Names, at_once
from profkit.trial.attempts import FOR_THE_WHOLE, NO_BLOCK, Attempts
from profkit.trial.baselines import BASELINES_SHARE
from profkit.trial.bundles import bundles_of, slow_first
from profkit.trial.changes import CHANGES, change_named, changes_named, is_compiler, same_kind
from profkit.trial.curves import Likeness
from profkit.trial.document import TrialRow, TryDocument
from profkit.trial.final import final_of
from profkit.trial.messages import Facts
from profkit.trial.observe import free_bytes_of_host
from profkit.trial.plan import Plan, likely_place
from profkit.trial.running import Failed, Tryable
from profkit.trial.sentences import NO_TURN, closing_sentence
from profkit.trial.short_budget import search_short, start_bundles
from profkit.trial.turns import FEW_TURNS, Comparison, Side

__all__ = ["Trial"]

_OTHER_SEEDS: Final = 2
_ALL_TURNS: Final = 12
"""Of two unchanged programs: enough to see 1 %; what tells a change from noise is its own interval."""
_SHORT_TURNS: Final = 6
_GUESSED_S: Final = 240.0
"""A budget that may be short by this measure starts before anything is known of the program."""
_TURNS_OF_A_CHANGE: Final = 1.5
"""Times the fewest turns: what telling a change takes, as a rule."""
_MEASURED_TWICE: Final = 1.5
"""Starts for a change, where half of them help alone and are then measured together."""


class Trial:
    """A trial of one program.

    Args:
        program: What is run.
        plan: What is tried.
        tell: Is told what happens, a line at a time, each with the seconds since the start.
        done: Trials of an earlier run, which are not made again.
        keep: Is called after each trial with all rows so far.
    """

    def __init__(
        self,
        program: Tryable,
        plan: Plan,
        tell: Callable[[str], None],
        done: Sequence[TrialRow] = (),
        keep: Callable[[Sequence[TrialRow]], None] = lambda rows: None,
    ) -> None:
        self._tries = Attempts(program, plan, tell, keep)
        self._done = {row.change: row for row in done}
        self._candidates: list[str] = []

    def run(self) -> TryDocument:
        """Make the trial. Ctrl-C ends it with what is known.

        Raises:
            RecordingError: The unchanged program does not run, or has no steps.
        """
        kept: list[str] = []
        whole: tuple[Comparison, Likeness] | None = None
        try:
            with contextlib.ExitStack() as closing:
                closing.callback(self._tries.baseline.stop)
                closing.callback(self._tries.ahead.stop)
                try:
                    with contextlib.ExitStack() as seeds:
                        self._prepare(seeds)
                    if self._tries.unchanged.is_steady():
                        kept, whole = self._search_or_tell()
                except KeyboardInterrupt:
                    self._tries.notes.append("interrupted: what was not measured by then is missing")
        except Failed as failure:
            raise RecordingError(
                " ".join(self._tries.program.command), failure.why, _HINTS.get(failure.kind, "")
            ) from None
        return self._document(kept, whole)

    def _prepare(self, closing: contextlib.ExitStack) -> None:
        """The unchanged program beside itself, and what is tried in which way."""
        tries = self._tries
        changes_named(tries.plan.only)  # an unknown one is told before anything runs
        within = tries.program.within(tries.program.patience_s, tries.end)
        sides = [Side(within, seed_shift=shift) for shift in range(1, _OTHER_SEEDS + 1)]
        for side in sides:
            closing.callback(side.stop)
        self._guess(sides[0])
        tries.facts = self._start_unchanged(sides[0])
        tries.ahead.most = max(at_once(tries.facts, tries.baseline.peak_bytes), tries.ahead.count)
        for side in sides:
            side.hurry(tries.patience_s([]), tries.end)
        self._choose()
        changes_s = self._changes_take_s()
        share_s = BASELINES_SHARE * tries.plan.budget_s
        lacks_time = share_s + changes_s > tries.left_s() - tries.reserve_s()
        tries.is_short = lacks_time or len(self._candidates) == 1  # which stands together with none
        if tries.is_short:
            if lacks_time and len(self._candidates) > 1:
                tries.notes.append(
                    "the budget is short: the changes that help most often were tried together first"
                )
            self._candidates.sort(key=lambda name: (-tries.plan.promised(name), likely_place(name)))
            start_bundles(tries, self._bundles(), sides[0])
            sides = sides[:1] if lacks_time else sides
        else:
            tries.ahead.start([(name,) for name in self._candidates if not is_compiler(name)], sides)
        with tries.ahead.standing_still():
            turns = (
                FEW_TURNS if tries.ahead.is_compiling() else _SHORT_TURNS if tries.is_short else _ALL_TURNS
            )
            tries.unchanged.measure(sides, tries.end, turns)

    def _guess(self, seed: Side) -> None:
        """Start what a short budget is likely to try beside the unchanged program, before anything is known of it."""
        tries = self._tries
        machine = Facts(cpus=len(os.sched_getaffinity(0)), host_free_bytes=free_bytes_of_host())
        tries.ahead.most = at_once(machine, None) - 1
        if tries.plan.budget_s > _GUESSED_S or not tries.program.starts_beside_others or tries.ahead.most < 2:
            return
        names = [name for name in tries.plan.only or CHANGES if name not in (*tries.plan.skip, *self._done)]
        tries.is_short = True
        tries.baseline.launch()
        tries.ahead.launch(slow_first(bundles_of(names, tries.plan.promised)), [seed])

    def _start_unchanged(self, seed: Side) -> Facts:
        tries = self._tries
        try:
            return tries.unchanged.start()
        except Failed as failure:
            if failure.kind != "out-of-memory":
                raise
        for each in (tries.ahead, seed, tries.baseline):  # it may have been the others' memory
            each.stop()
        return tries.unchanged.start()

    def _bundles(self) -> list[Names]:
        return bundles_of([*self._winners(), *self._candidates], self._tries.plan.promised)

    def _changes_take_s(self) -> float:
        """The starts of other seeds, then whatever is tried, measured alone and together."""
        start_s, count = self._tries.baseline.start_s, len(self._candidates)
        wave_s = start_s / self._tries.ahead.most
        each_s = wave_s + _TURNS_OF_A_CHANGE * self._tries.few_s(self._tries.baseline)
        compilers = sum(map(is_compiler, self._candidates))
        return _OTHER_SEEDS * wave_s + _MEASURED_TWICE * count * each_s + compilers * start_s

    def _larger_budget(self) -> str:
        start_s = self._tries.baseline.start_s
        needed_s = (start_s + self._changes_take_s()) / (1 - BASELINES_SHARE - FOR_THE_WHOLE)
        return f"a start takes {start_s:.0f} s here: --budget {math.ceil(needed_s / 10) * 10}s leaves time for all of these"

    def _choose(self) -> None:
        """Which changes are tried: compilers last, since they start slowly, and the most promising of each first."""
        for name in self._tries.plan.only or CHANGES:
            if name in self._tries.plan.skip:
                continue
            obstacle = change_named(name).obstacle(self._tries.facts)
            if obstacle is not None:
                self._tries.add(
                    TrialRow(change=name, predicted=self._tries.plan.predicted.get(name), why=obstacle)
                )
            elif name in self._done:
                self._tries.add(self._done[name])
            else:
                self._candidates.append(name)
        self._candidates.sort(key=lambda name: (is_compiler(name), -self._tries.plan.promised(name)))

    def _search_or_tell(self) -> tuple[list[str], tuple[Comparison, Likeness] | None]:
        try:
            if self._tries.is_short:
                names = [*self._winners(), *self._candidates]
                return self._tries.whole(*search_short(self._tries, self._bundles(), names))
            self._tries.restart_s = self._tries.baseline.start_s
            self._try_each()
            self._tries.restart_s = 0.0
            return self._combine()
        except Failed as failure:
            if not any(row.measured for row in self._tries.rows):
                raise
            self._tries.notes.append(f"what helps alone was not measured together: {failure.why}")
            return [], None

    def _try_each(self) -> None:
        for at, name in enumerate(self._candidates):
            if not self._tries.holds([name]):
                self._tries.add(TrialRow(change=name, why=NO_TURN))
                continue
            if is_compiler(name):
                chain = self._winners()
                self._tries.ahead.start([(name,), (*chain, name), *_prefixes(chain)])
            else:
                self._tries.ahead.start([(each,) for each in self._candidates[at:] if not is_compiler(each)])
            row, side = self._tries.attempt((name,), [], self._tries.baseline, len(self._candidates) - at)
            side.stop()
            self._tries.add(row)

    def _winners(self) -> list[str]:
        """What helps alone, in the order in which it is combined; one of a kind."""
        rows = [
            row
            for row in self._tries.rows
            if row.kept and row.measured and not row.beside and not row.together
        ]
        rows.sort(key=lambda row: (is_compiler(row.change), -row.measured.likely if row.measured else 0.0))
        chain: list[str] = []
        for row in rows:
            if same_kind(row.change, chain) is None:
                chain.append(row.change)
        return chain

    def _combine(self) -> tuple[list[str], tuple[Comparison, Likeness] | None]:
        """Add what helps alone to what is kept, the best first, while it still helps."""
        winners = self._winners()
        if not winners:
            return [], None
        for row in [each for each in self._tries.rows if each.kept and each.change not in winners]:
            rival = same_kind(row.change, winners)
            self._tries.add(
                TrialRow(change=row.change, beside=(str(rival),), why=f"{rival} stands in its place")
            )
        if self._tries.left_s() < self._tries.needs_s(winners[:1]):
            self._tries.notes.append("the budget ended before what helps alone was measured again")
            return [], None
        self._tries.ahead.start(_prefixes(winners))
        best = self._tries.ahead.take(winners[:1])
        try:
            best.start()
        except BaseException:
            best.stop()
            raise
        return self._tries.whole(*self._tries.stack(winners[1:], winners[:1], best))

    def _document(self, kept: list[str], whole: tuple[Comparison, Likeness] | None) -> TryDocument:
        baseline = self._tries.unchanged.step_ms()
        rows = [] if self._tries.refuted else self._tries.rows
        final, loss = final_of(kept, whole, rows, baseline, self._tries.facts)
        if whole is None and len(final.changes) > 1:
            self._tries.notes.append(
                "the whole is the product of its changes, which were not measured together"
            )
        if self._tries.is_short and not any(row.measured for row in self._tries.rows):
            self._tries.notes.append(self._larger_budget())
        self._tries.notes += self._of_the_program()
        return TryDocument(
            sentence=closing_sentence(final, loss, self._tries.rows),
            command=list(self._tries.program.command),
            baseline_ms=baseline,
            variation=self._tries.unchanged.variation,
            noise=self._tries.unchanged.noise,
            trials=self._tries.rows,
            final=final,
            loss=loss,
            baseline_peak_bytes=self._tries.baseline.peak_bytes,
            baseline_warmup_s=(self._tries.baseline.first or NO_BLOCK).ns / 1e9,
            duration_s=time.monotonic() - self._tries.begun,
            notes=self._tries.notes,
        )

    def _of_the_program(self) -> Iterator[str]:
        ended, outside = self._tries.baseline.ended, list(self._tries.baseline.outside)
        if ended is not None and ended.kind == "crashed":
            yield f"the unchanged program crashes by itself ({ended.why}), and was started anew"
        elif ended is not None:
            yield f"{ended.why}, and was started anew: a longer run leaves more time for turns"
        if outside:
            more = f" and {len(outside) - _FILES_TOLD} more" if len(outside) > _FILES_TOLD else ""
            told = ", ".join(outside[:_FILES_TOLD])
            yield f"outside its scratch folder the program has written {told}{more}"


_FILES_TOLD: Final = 3
_HINTS: Final = {
    "late": "If steps were over by then, name what ends one with --step-by",
    "hung": "Name what ends a step with --step-by",
    "ended": "A trial takes --warmup steps and more: let the program run longer, or ask for fewer",
    "crashed": "It has to run without a change first",
    "no-data": "It seems to need a download: let it run once by itself, so that its data is there",
}


def _prefixes(chain: Sequence[str]) -> list[Names]:
    return [tuple(chain[:count]) for count in range(1, len(chain) + 1)]
