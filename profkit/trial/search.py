"""Which changes help: each beside the unchanged program, then together."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from profkit.errors import RecordingError
from profkit.trial.ahead import Ahead, Names, at_once, likely_chains
from profkit.trial.baselines import BASELINES_SHARE, Baselines
from profkit.trial.changes import CHANGES, change_named, same_kind, weakest
from profkit.trial.curves import Likeness
from profkit.trial.document import TrialRow, TryDocument
from profkit.trial.final import final_of
from profkit.trial.messages import Block, Facts
from profkit.trial.plan import Plan, likely_place
from profkit.trial.running import Failed, Program
from profkit.trial.sentences import closing_sentence, verdict_on
from profkit.trial.turns import Comparison, Side, compare, few_turns_s

__all__ = ["Trial"]

_OTHER_SEEDS: Final = 2
_FOR_THE_WHOLE: Final = 0.15
"""The share of the budget that single changes leave at most."""
_FOR_A_COMPILER: Final = 0.6
"""The share of what is left that a compiler's start may take."""
_HANGS_AFTER_STARTS: Final = 3.0
_HANGS_AFTER_S: Final = 10.0
"""A start hangs that takes so many times the unchanged program's, and so much more."""
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
        program: Program,
        plan: Plan,
        tell: Callable[[str], None],
        done: Sequence[TrialRow] = (),
        keep: Callable[[Sequence[TrialRow]], None] = lambda rows: None,
    ) -> None:
        self._program, self._plan, self._keep = program, plan, keep
        self._done = {row.change: row for row in done}
        self._begun = time.monotonic()
        self._end = self._begun + plan.budget_s
        self._tell: Callable[[str], None] = lambda line: tell(
            f"{time.monotonic() - self._begun:3.0f} s: {line}"
        )
        self._baseline = Side(program)
        self._facts = Facts()
        self._rows: list[TrialRow] = []
        self._notes: list[str] = []
        self._unchanged = Baselines(self._baseline, plan, self._tell, self._notes)
        self._candidates: list[str] = []
        self._ahead = Ahead(self._new_side)
        self._is_short = False
        """Whether the budget does not hold all changes, each alone and then together."""
        self._restart_s = 0.0
        """What starting the winners together will take."""
        self._refuted = False
        """Whether what helped alone did not hold in the end."""

    def run(self) -> TryDocument:
        """Make the trial. Ctrl-C ends it with what is known.

        Raises:
            RecordingError: The unchanged program does not run, or has no steps.
        """
        kept: list[str] = []
        whole: tuple[Comparison, Likeness] | None = None
        try:
            with contextlib.ExitStack() as closing:
                closing.callback(self._baseline.stop)
                closing.callback(self._ahead.stop)
                try:
                    with contextlib.ExitStack() as seeds:
                        self._prepare(seeds)
                    if self._unchanged.is_steady():
                        kept, whole = self._search_or_tell()
                except KeyboardInterrupt:
                    self._notes.append("interrupted: what was not measured by then is missing")
        except Failed as failure:
            raise RecordingError(
                " ".join(self._program.command), failure.why, _HINTS.get(failure.kind, "")
            ) from None
        return self._document(kept, whole)

    def _left_s(self) -> float:
        return self._end - time.monotonic()

    def _prepare(self, closing: contextlib.ExitStack) -> None:
        """The unchanged program beside itself, and what is tried in which way."""
        self._facts = self._unchanged.start()
        self._ahead.most = at_once(self._facts, self._baseline.peak_bytes)
        self._choose()
        self._is_short = self._alone_takes_s() > self._left_s() - self._reserve_s()
        seeds = 1 if self._is_short else _OTHER_SEEDS
        sides = [Side(self._program, seed_shift=shift) for shift in range(1, seeds + 1)]
        for side in sides:
            closing.callback(side.stop)
        if self._is_short:
            self._notes.append("the budget is short: each change was tried beside those kept before it")
            self._candidates.sort(key=lambda name: (-self._plan.promised(name), likely_place(name)))
            self._ahead.start(likely_chains([], self._candidates), sides)
        else:
            self._ahead.start([(name,) for name in self._candidates if not _is_compiler(name)], sides)
        self._unchanged.measure(sides, self._end)

    def _alone_takes_s(self) -> float:
        """The baselines, then whatever is tried, measured alone and together."""
        start_s, count = self._baseline.start_s, len(self._candidates)
        wave_s = start_s / self._ahead.most
        baselines_s = BASELINES_SHARE * self._plan.budget_s + _OTHER_SEEDS * wave_s
        each_s = wave_s + _TURNS_OF_A_CHANGE * self._few_s(self._baseline)
        compilers = sum(map(_is_compiler, self._candidates))
        return baselines_s + _MEASURED_TWICE * count * each_s + compilers * start_s

    def _choose(self) -> None:
        """Which changes are tried: compilers last, since they start slowly, and the most promising of each first."""
        for name in self._plan.only or CHANGES:
            if name in self._plan.skip:
                continue
            obstacle = change_named(name).obstacle(self._facts)
            if obstacle is not None:
                self._add(TrialRow(change=name, predicted=self._plan.predicted.get(name), why=obstacle))
            elif name in self._done:
                self._add(self._done[name])
            else:
                self._candidates.append(name)
        self._candidates.sort(key=lambda name: (_is_compiler(name), -self._plan.promised(name)))

    def _search_or_tell(self) -> tuple[list[str], tuple[Comparison, Likeness] | None]:
        try:
            if self._is_short:
                return self._stack([*self._winners(), *self._candidates], [], self._baseline)
            self._restart_s = self._baseline.start_s
            self._try_each()
            self._restart_s = 0.0
            return self._combine()
        except Failed as failure:  # what was measured alone is still known
            self._notes.append(f"what helps alone was not measured together: {failure.why}")
            return [], None

    def _try_each(self) -> None:
        for at, name in enumerate(self._candidates):
            if not self._holds([name]):
                self._add(TrialRow(change=name, why="the budget ended before its turn"))
                continue
            if _is_compiler(name):
                chain = self._winners()
                self._ahead.start([(name,), (*chain, name), *_prefixes(chain)])
            else:
                self._ahead.start([(each,) for each in self._candidates[at:] if not _is_compiler(each)])
            row, side = self._try(name, [], self._baseline, len(self._candidates) - at)
            side.stop()
            self._add(row)

    def _holds(self, names: Sequence[str]) -> bool:
        return self._left_s() - self._reserve_s() > self._needs_s(names)

    def _needs_s(self, names: Sequence[str]) -> float:
        """A start of these, where it is not made, and a few turns."""
        return self._few_s(self._baseline) + (0.0 if self._ahead.has(names) else self._baseline.start_s)

    def _few_s(self, side: Side) -> float:
        return few_turns_s(self._baseline, side, self._plan.steps)

    def _winners(self) -> list[str]:
        """What helps alone, in the order in which it is combined; one of a kind."""
        rows = [row for row in self._rows if row.kept and row.measured and not row.beside]
        rows.sort(key=lambda row: (_is_compiler(row.change), -row.measured.likely if row.measured else 0.0))
        chain: list[str] = []
        for row in rows:
            if same_kind(row.change, chain) is None:
                chain.append(row.change)
        return chain

    def _reserve_s(self) -> float:
        """For what is kept together, measured again."""
        return self._restart_s + min(_FOR_THE_WHOLE * self._plan.budget_s, 2 * self._few_s(self._baseline))

    def _add(self, row: TrialRow) -> None:
        self._rows.append(row)
        self._keep(self._rows)
        beside = f" beside {', '.join(row.beside)}" if row.beside else ""
        self._tell(f"{row.change}{beside}: {row.why}")

    def _try(self, name: str, beside: list[str], rival: Side, still: int) -> tuple[TrialRow, Side]:
        """Measure a change beside a rival, with so many still to come; a side that is not kept is stopped."""
        self._tell(f"{name}: starting")
        side = self._ahead.take([*beside, name])
        row = TrialRow(change=name, beside=tuple(beside), predicted=self._plan.predicted.get(name))
        try:
            found = self._timed(side, rival, name, still)
            row = self._judged(row, side, found)
        except Failed as failure:
            kind = "" if failure.kind == "late" else f"{failure.kind.replace('-', ' ')}: "
            row = replace(row, why=f"{kind}{failure.why}")
        finally:
            if not row.kept:
                side.stop()
        return row, side

    def _new_side(self, names: Sequence[str]) -> Side:
        environment: dict[str, str] = {}
        for name in names:
            environment |= change_named(name).environment(self._facts)
        left_s, patience_s = self._left_s() - self._reserve_s() / 2, self._program.patience_s
        if any(map(_is_compiler, names)):
            left_s *= _FOR_A_COMPILER
        else:
            patience_s = _HANGS_AFTER_STARTS * self._baseline.start_s + _HANGS_AFTER_S
        program = self._program.within(patience_s, time.monotonic() + left_s)
        return Side(program, names, environment=environment)

    def _timed(self, side: Side, rival: Side, name: str, still: int) -> Comparison | str:
        try:
            first = side.start()
            if not first.applied.get(name):
                return first.refused.get(name, "it found nothing to change")
            return compare(rival, side, self._plan.steps, self._unchanged.noise, self._deadline(side, still))
        except Failed as failure:
            if failure.kind != "out-of-memory":
                raise
        side.stop()
        self._ahead.stop()
        if rival is not self._baseline:
            self._baseline.stop()
        return self._timed_alone(side, rival, self._deadline(side, still))

    def _deadline(self, side: Side, still: int) -> float:
        """Twice its share of what is left, since most need less, but a few turns at least."""
        now, few_s = time.monotonic(), self._few_s(side)
        left_s = self._left_s() - self._reserve_s()
        return min(max(now + min(2 / still, 1) * left_s, now + few_s), self._end)

    def _timed_alone(self, side: Side, rival: Side, deadline: float) -> Comparison:
        """One after the other, where the memory does not hold both."""
        rival.stop()
        found = Comparison()
        side.start()
        size = max(1, math.ceil(self._plan.steps / 6))
        while len(found.after_ns) < 6 and time.monotonic() < deadline:
            found.after_ns.append(side.turn(size))
        side.stop()
        while len(found.before_ns) < len(found.after_ns):
            found.before_ns.append(rival.turn(size))
        note = "the memory does not hold two programs: some were timed one after the other"
        if note not in self._notes:
            self._notes.append(note)
        return found

    def _judged(self, row: TrialRow, side: Side, found: Comparison | str) -> TrialRow:
        if isinstance(found, str):
            return replace(row, why=found)
        self._unchanged.ns += [] if row.beside else found.before_ns
        curves = self._unchanged.curves
        curves.own = max(curves.own, self._baseline.losses, key=len)
        likeness = curves.judge(side.losses, weakest(side.changes))
        kept, why = verdict_on(found.ratio, self._unchanged.noise, likeness)
        first = side.first or _NO_BLOCK
        return replace(
            row,
            measured=found.ratio,
            kept=kept,
            why=why,
            turns=len(found.before_ns),
            loss_distance=likeness.distance,
            first_step_s=None if first.first_ns is None else first.first_ns / 1e9,
            warmup_s=first.ns / 1e9,
            peak_bytes=side.peak_bytes,
        )

    def _combine(self) -> tuple[list[str], tuple[Comparison, Likeness] | None]:
        """Add what helps alone to what is kept, the best first, while it still helps."""
        winners = self._winners()
        if not winners:
            return [], None
        for row in [each for each in self._rows if each.kept and each.change not in winners]:
            rival = same_kind(row.change, winners)
            self._add(TrialRow(change=row.change, beside=(str(rival),), why=f"{rival} stands in its place"))
        if self._left_s() < self._needs_s(winners[:1]):
            self._notes.append("the budget ended before what helps alone was measured again")
            return [], None
        self._ahead.start(_prefixes(winners))
        best = self._ahead.take(winners[:1])
        try:
            best.start()
        except BaseException:
            best.stop()
            raise
        return self._stack(winners[1:], winners[:1], best)

    def _stack(
        self, names: Sequence[str], kept: list[str], best: Side
    ) -> tuple[list[str], tuple[Comparison, Likeness] | None]:
        """Add each of these to what is kept while it helps, then measure the whole."""
        try:
            for at, name in enumerate(names):
                if why := self._obstacle(name, kept):
                    self._add(TrialRow(change=name, beside=tuple(kept), why=why))
                    continue
                self._ahead.start(likely_chains(kept, names[at:]))
                row, side = self._try(name, kept, best, len(names) - at)
                self._add(row)
                if row.kept:
                    if best is not self._baseline:
                        best.stop()
                    best, kept = side, [*kept, name]
            return self._whole(kept, best) if kept else ([], None)
        finally:
            best.stop()

    def _obstacle(self, name: str, kept: Sequence[str]) -> str | None:
        if rival := same_kind(name, kept):
            return f"{rival} stands in its place"
        return None if self._holds([*kept, name]) else "the budget ended before its turn"

    def _whole(self, kept: list[str], best: Side) -> tuple[list[str], tuple[Comparison, Likeness] | None]:
        """All that is kept, measured anew beside the unchanged program."""
        self._tell(f"{' + '.join(kept)}: measured again")
        least = self._few_s(best)
        try:
            found = compare(
                self._baseline,
                best,
                self._plan.steps,
                self._unchanged.noise,
                time.monotonic() + max(self._left_s(), least),
            )
        except Failed as failure:
            if failure.kind != "out-of-memory":
                raise
            found = self._timed_alone(best, self._baseline, time.monotonic() + max(self._left_s(), least))
        likeness = self._unchanged.curves.judge(best.losses, weakest(kept))
        holds, why = verdict_on(found.ratio, self._unchanged.noise, likeness)
        if not holds:
            self._notes.append(f"{', '.join(kept)}: did not hold in a second measurement ({why})")
            self._refuted = True
            return [], None
        return kept, (found, likeness)

    def _document(self, kept: list[str], whole: tuple[Comparison, Likeness] | None) -> TryDocument:
        baseline = self._unchanged.step_ms()
        rows = [] if self._refuted else self._rows
        final, loss = final_of(kept, whole, rows, baseline, self._facts)
        if whole is None and len(final.changes) > 1:
            self._notes.append("the whole is the product of its changes, which were not measured together")
        return TryDocument(
            sentence=closing_sentence(final, loss, self._rows),
            command=list(self._program.command),
            baseline_ms=baseline,
            variation=self._unchanged.variation,
            noise=self._unchanged.noise,
            trials=self._rows,
            final=final,
            loss=loss,
            baseline_peak_bytes=self._baseline.peak_bytes,
            baseline_warmup_s=(self._baseline.first or _NO_BLOCK).ns / 1e9,
            duration_s=time.monotonic() - self._begun,
            notes=self._notes,
        )


_NO_BLOCK: Final = Block(steps=0, ns=0)
_HINTS: Final = {
    "hung": "Name what ends a step with --step-by, or give it a larger --budget",
    "ended": "A trial takes --warmup steps and more: let the program run longer, or ask for fewer",
    "crashed": "It has to run without a change first",
    "no-data": "It seems to need a download: let it run once by itself, so that its data is there",
}


def _is_compiler(name: str) -> bool:
    return change_named(name).kind_of == "compiler"


def _prefixes(chain: Sequence[str]) -> list[Names]:
    return [tuple(chain[:count]) for count in range(1, len(chain) + 1)]
