"""Which changes help: each beside the unchanged program, then together."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from profkit.errors import RecordingError
from profkit.model.rows import Interval
from profkit.trial.ahead import Ahead, Names, at_once
from profkit.trial.changes import CHANGES, change_named, same_kind, weakest
from profkit.trial.curves import Curves, Likeness
from profkit.trial.document import TrialRow, TryDocument
from profkit.trial.final import final_of
from profkit.trial.messages import Block, Facts
from profkit.trial.ratio import spread_of_times
from profkit.trial.running import Failed, Program
from profkit.trial.sentences import closing_sentence, verdict_on
from profkit.trial.turns import Comparison, Side, compare

__all__ = ["Plan", "Trial"]

_LEAST_GAIN: Final = 0.01
"""Less is not worth a line of code."""
_UNSTEADY: Final = math.log(1.15)
"""Two unchanged programs that differ by more have nothing to tell about changes."""
_OTHER_SEEDS: Final = 2
_TURNS_OF_BASELINES: Final = 12
"""Enough to see 1 %; what tells a change from noise is its own interval."""
_FOR_THE_BASELINES: Final = 0.25
_FOR_THE_WHOLE: Final = 0.15
"""Shares of the budget that single changes leave."""
_FOR_A_START: Final = 0.6
"""The share of what is left that a start may take."""


@dataclass(frozen=True)
class Plan:
    """What is tried, and how long."""

    budget_s: float = 600.0
    steps: int = 20
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    keep_going: bool = False
    predicted: Mapping[str, Interval] = field(default_factory=dict)
    """The speed-ups that a recording promises."""


class Trial:
    """A trial of one program.

    Args:
        program: What is run.
        plan: What is tried.
        tell: Is told what happens, a line at a time.
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
        self._program, self._plan, self._tell, self._keep = program, plan, tell, keep
        self._done = {row.change: row for row in done}
        self._begun = time.monotonic()
        self._end = self._begun + plan.budget_s
        self._baseline = Side(program)
        self._facts = Facts()
        self._curves = Curves([], [])
        self._variation: Interval | None = None
        self._noise = _LEAST_GAIN
        self._rows: list[TrialRow] = []
        self._notes: list[str] = []
        self._baseline_ns: list[float] = []
        self._candidates: list[str] = []
        self._ahead = Ahead(self._new_side)
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
                        self._measure_baselines(seeds)
                    if self._is_steady():
                        self._try_each()
                        kept, whole = self._combine_or_tell()
                except KeyboardInterrupt:
                    self._notes.append("interrupted: what was not measured by then is missing")
        except Failed as failure:
            raise RecordingError(
                " ".join(self._program.command), failure.why, _HINTS.get(failure.kind, "")
            ) from None
        return self._document(kept, whole)

    def _left_s(self) -> float:
        return self._end - time.monotonic()

    def _measure_baselines(self, closing: contextlib.ExitStack) -> None:
        """The unchanged program beside itself: what time and loss are worth."""
        self._tell("the unchanged program")
        first = self._baseline.start()
        assert first.facts is not None
        self._facts = first.facts
        self._ahead.most = at_once(self._facts, self._baseline.peak_bytes)
        self._choose()
        sides = [Side(self._program, seed_shift=shift) for shift in range(1, _OTHER_SEEDS + 1)]
        for side in sides:
            closing.callback(side.stop)
        self._start_ahead([(name,) for name in self._candidates if not _is_compiler(name)], sides)
        share = _FOR_THE_BASELINES * self._plan.budget_s
        until = max(self._begun + share, time.monotonic() + share / 2)
        others = []
        for shift, other in enumerate(sides, 1):
            if shift > 1 and time.monotonic() > until and not other.is_up:
                self._notes.append("the budget allowed a single other seed")
                break
            self._tell(f"the unchanged program with another seed ({shift})")
            try:
                self._run_seed(other, until)
            except Failed as failure:
                self._notes.append(f"another seed: {failure.why}")
            others.append(other.losses)
            other.stop()
        if self._variation is not None:
            self._noise = max(_LEAST_GAIN, abs(self._variation.likely - 1))
        self._curves = Curves(self._baseline.losses, others)

    def _run_seed(self, other: Side, until: float) -> None:
        other.start()
        if self._variation is None:
            found = compare(self._baseline, other, self._plan.steps, 0.0, until, _TURNS_OF_BASELINES)
            self._variation = found.ratio
            self._baseline_ns += found.before_ns
        else:
            _run_as_long(other, self._baseline, time.monotonic() + self._left_s() / 4)

    def _is_steady(self) -> bool:
        apart = 0.0 if self._variation is None else abs(math.log(self._variation.likely))
        if apart < _UNSTEADY:
            return True
        self._notes.append(
            f"two unchanged programs differ by {math.expm1(apart):.0%}: time more steps (--steps), on an idle machine"
        )
        return self._plan.keep_going

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
        self._candidates.sort(key=lambda name: (_is_compiler(name), -self._promised(name)))

    def _try_each(self) -> None:
        for at, name in enumerate(self._candidates):
            share = (self._left_s() - self._reserve_s()) / (len(self._candidates) - at)
            if share <= 0:
                self._add(TrialRow(change=name, why="the budget ended before its turn"))
                continue
            if _is_compiler(name):
                chain = self._winners()
                self._start_ahead([(name,), (*chain, name), *_prefixes(chain)])
            else:
                self._start_ahead([(each,) for each in self._candidates[at:] if not _is_compiler(each)])
            self._add(self._try(name, [], self._baseline, 2 * share)[0])

    def _winners(self) -> list[str]:
        """What helps alone, in the order in which it is combined; one of a kind."""
        rows = [row for row in self._rows if row.kept and row.measured and not row.beside]
        rows.sort(key=lambda row: (_is_compiler(row.change), -row.measured.likely if row.measured else 0.0))
        chain: list[str] = []
        for row in rows:
            if same_kind(row.change, chain) is None:
                chain.append(row.change)
        return chain

    def _start_ahead(self, wanted: Sequence[Names], others: Sequence[Side] = ()) -> None:
        self._ahead.start(wanted, _FOR_A_START * (self._left_s() - self._reserve_s()), others)

    def _reserve_s(self) -> float:
        return _FOR_THE_WHOLE * self._plan.budget_s

    def _promised(self, name: str) -> float:
        predicted = self._plan.predicted.get(name)
        return predicted.likely if predicted else 1.0

    def _add(self, row: TrialRow) -> None:
        self._rows.append(row)
        self._keep(self._rows)
        beside = f" beside {', '.join(row.beside)}" if row.beside else ""
        self._tell(f"{row.change}{beside}: {row.why}")

    def _try(self, name: str, beside: list[str], rival: Side, within_s: float) -> tuple[TrialRow, Side]:
        """Measure a change beside a rival; the side that has it is closed unless it is kept."""
        self._tell(f"{name}: starting")
        side = self._ahead.take([*beside, name], within_s)
        row = TrialRow(change=name, beside=tuple(beside), predicted=self._plan.predicted.get(name))
        deadline = time.monotonic() + within_s
        try:
            found = self._timed(side, rival, name, deadline)
            row = self._judged(row, side, found)
        except Failed as failure:
            row = replace(row, why=f"{failure.kind.replace('-', ' ')}: {failure.why}")
        finally:
            if not row.kept or not beside:
                side.stop()
        return row, side

    def _new_side(self, names: Sequence[str], within_s: float) -> Side:
        environment: dict[str, str] = {}
        for name in names:
            environment |= change_named(name).environment(self._facts)
        patience = max(within_s, 10.0)
        return Side(self._program.within(patience), names, environment=environment)

    def _timed(self, side: Side, rival: Side, name: str, deadline: float) -> Comparison | str:
        try:
            first = side.start()
            if not first.applied.get(name):
                return first.refused.get(name, "it found nothing to change")
            return compare(rival, side, self._plan.steps, self._noise, deadline)
        except Failed as failure:
            if failure.kind != "out-of-memory":
                raise
        side.stop()
        self._ahead.stop()
        return self._timed_alone(side, rival, deadline)

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
        self._baseline_ns += [] if row.beside else found.before_ns
        self._curves.own = max(self._curves.own, self._baseline.losses, key=len)
        likeness = self._curves.judge(side.losses, weakest(side.changes))
        kept, why = verdict_on(found.ratio, self._noise, likeness)
        first = side.first or Block(steps=0, ns=0)
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

    def _combine_or_tell(self) -> tuple[list[str], tuple[Comparison, Likeness] | None]:
        try:
            return self._combine()
        except Failed as failure:  # what was measured alone is still known
            self._notes.append(f"what helps alone was not measured together: {failure.why}")
            return [], None

    def _combine(self) -> tuple[list[str], tuple[Comparison, Likeness] | None]:
        """Add what helps alone to what is kept, the best first, while it still helps."""
        winners = self._winners()
        if not winners:
            return [], None
        for row in [each for each in self._rows if each.kept and each.change not in winners]:
            rival = same_kind(row.change, winners)
            self._add(TrialRow(change=row.change, beside=(str(rival),), why=f"{rival} stands in its place"))
        self._start_ahead(_prefixes(winners))
        kept = winners[:1]
        best = self._ahead.take(kept, self._left_s())
        try:
            best.start()
            for name in winners[1:]:
                if self._left_s() < 0:
                    self._add(
                        TrialRow(change=name, beside=tuple(kept), why="the budget ended before its turn")
                    )
                    continue
                with_it, side = self._try(name, kept, best, self._left_s() / 2)
                self._add(with_it)
                if with_it.kept:
                    best.stop()
                    best, kept = side, [*kept, name]
            return self._whole(kept, best)
        finally:
            best.stop()

    def _whole(self, kept: list[str], best: Side) -> tuple[list[str], tuple[Comparison, Likeness] | None]:
        """All that is kept, measured anew beside the unchanged program."""
        self._tell(f"{' + '.join(kept)}: measured again")
        least = 2 * self._plan.steps * (best.step_s + self._baseline.step_s)
        try:
            found = compare(
                self._baseline,
                best,
                self._plan.steps,
                self._noise,
                time.monotonic() + max(self._left_s(), least),
            )
        except Failed as failure:
            if failure.kind != "out-of-memory":
                raise
            found = self._timed_alone(best, self._baseline, time.monotonic() + max(self._left_s(), least))
        likeness = self._curves.judge(best.losses, weakest(kept))
        holds, why = verdict_on(found.ratio, self._noise, likeness)
        if not holds:
            self._notes.append(f"{', '.join(kept)}: did not hold in a second measurement ({why})")
            self._refuted = True
            return [], None
        return kept, (found, likeness)

    def _document(self, kept: list[str], whole: tuple[Comparison, Likeness] | None) -> TryDocument:
        times = [ns / 1e6 for ns in self._baseline_ns]
        if not times:
            raise RecordingError(
                " ".join(self._program.command), "nothing was measured", "Give it a larger --budget"
            )
        baseline = spread_of_times(times)
        rows = [] if self._refuted else self._rows
        final, loss = final_of(kept, whole, rows, baseline, self._facts)
        return TryDocument(
            sentence=closing_sentence(final, loss, self._rows),
            command=list(self._program.command),
            baseline_ms=baseline,
            variation=self._variation,
            noise=self._noise,
            trials=self._rows,
            final=final,
            loss=loss,
            baseline_peak_bytes=self._baseline.peak_bytes,
            duration_s=time.monotonic() - self._begun,
            notes=self._notes,
        )


_HINTS: Final = {
    "hung": "Name what ends a step with --step-by, or give it a larger --budget",
    "ended": "A trial takes --warmup steps and more: let the program run longer, or ask for fewer",
    "crashed": "It has to run without a change first",
}


def _run_as_long(side: Side, as_long_as: Side, deadline: float) -> None:
    while len(side.losses) < len(as_long_as.losses) and time.monotonic() < deadline:
        side.turn(max(1, math.ceil((len(as_long_as.losses) - len(side.losses)) / 2)))


def _is_compiler(name: str) -> bool:
    return change_named(name).kind_of == "compiler"


def _prefixes(chain: Sequence[str]) -> list[Names]:
    return [tuple(chain[:count]) for count in range(1, len(chain) + 1)]
