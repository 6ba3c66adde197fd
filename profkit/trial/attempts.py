"""Changes that are measured beside a rival, within what is left of the budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from profkit.trial.ahead import Ahead, Names, likely_chains
from profkit.trial.baselines import Baselines
from profkit.trial.changes import Promise, change_named, compiles, same_kind, weakest
from profkit.trial.curves import Likeness
from profkit.trial.document import TrialRow
from profkit.trial.messages import Block, Facts
from profkit.trial.plan import Plan
from profkit.trial.running import Failed, Tryable
from profkit.trial.sentences import NO_TURN, verdict_on
from profkit.trial.turns import MOST_TURNS, Comparison, Side, compare, few_turns_s

__all__ = [
    "AFTER",
    "BEFORE",
    "FOR_THE_WHOLE",
    "NO_BLOCK",
    "Attempts",
]

FOR_THE_WHOLE: Final = 0.15
"""The share of the budget that single changes leave at most."""
_FOR_A_COMPILER: Final = 0.6
"""The share of what is left that a compiler's start may take, where others still wait for their turn."""
_FOR_RECORDINGS_S: Final = 20.0
"""What two take as a rule, with what a profiler needs to start and to write."""
BEFORE: Final = "before"
AFTER: Final = "after"
"""Folders of recordings."""
_HANGS_AFTER_STARTS: Final = 3.0
_HANGS_AFTER_S: Final = 10.0
"""A start hangs that takes so many times the unchanged program's, and so much more."""
NO_BLOCK: Final = Block(steps=0, ns=0)


class Attempts:
    """What was tried, and what there is time to try.

    Args:
        program: What is run.
        plan: What is tried.
        tell: Is told what happens, a line at a time.
        keep: Is called after each trial with all rows so far.
    """

    def __init__(
        self,
        program: Tryable,
        plan: Plan,
        tell: Callable[[str], None],
        keep: Callable[[Sequence[TrialRow]], None],
    ) -> None:
        self.program, self.plan, self._keep = program, plan, keep
        self.begun = time.monotonic()
        self.end = self.begun + plan.budget_s - (_FOR_RECORDINGS_S if plan.compared_in else 0.0)
        self.tell: Callable[[str], None] = lambda line: tell(
            f"{time.monotonic() - self.begun:3.0f} s: {line}"
        )
        self.rows: list[TrialRow] = []
        self.notes: list[str] = []
        self.facts = Facts()
        self.baseline = Side(program.within(program.patience_s, self.end))
        self.unchanged = Baselines(self.baseline, plan, self.tell, self.notes)
        self.ahead = Ahead(self.new_side)
        self.restart_s = 0.0
        """What starting the winners together will take."""
        self.refuted = False
        """Whether what is kept did not hold in the end."""
        self.is_short = False
        """Whether the budget does not hold all changes, each alone and then together."""
        self._compiler_s = 0.0
        """What the slowest start with a compiler has taken."""

    def left_s(self) -> float:
        """Of the budget."""
        return self.end - time.monotonic()

    def holds(self, names: Sequence[str]) -> bool:
        """Whether there is time for these."""
        return self.left_s() - self.reserve_s() > self.needs_s(names)

    def needs_s(self, names: Sequence[str]) -> float:
        """A start of these, where it is not made, and a few turns."""
        if self.ahead.has(names):
            return self.few_s(self.baseline)
        start_s = self._compiler_s if compiles(names) else 0.0
        return self.few_s(self.baseline) + max(start_s, self.baseline.start_s)

    def few_s(self, side: Side) -> float:
        """A few turns of a side and the unchanged program."""
        return few_turns_s(self.baseline, side, self.plan.steps)

    def reserve_s(self) -> float:
        """For what is kept together, measured again."""
        few = 1 if self.is_short else 2
        return self.restart_s + min(FOR_THE_WHOLE * self.plan.budget_s, few * self.few_s(self.baseline))

    def add(self, row: TrialRow) -> None:
        """Note a trial that is over."""
        self.rows.append(row)
        self._keep(self.rows)
        together = "".join(f" + {name}" for name in row.together)
        beside = f" beside {', '.join(row.beside)}" if row.beside else ""
        self.tell(f"{row.change}{together}{beside}: {row.why}")

    def new_side(self, names: Sequence[str]) -> Side:
        """A side of some changes, which may take its share of what is left."""
        environment: dict[str, str] = {}
        for name in names:
            environment |= change_named(name).environment(self.facts)
        program = self.program.within(self.patience_s(names), self.until(names))
        return Side(program, names, environment=environment)

    def until(self, names: Sequence[str]) -> float:
        """When these have to have started; in a short budget a compiler has all but the time of its turns."""
        if compiles(names) and self.is_short:
            return self.end - self.reserve_s() - self.few_s(self.baseline)
        left_s = self.left_s() - self.reserve_s() / 2
        return time.monotonic() + left_s * (_FOR_A_COMPILER if compiles(names) else 1.0)

    def patience_s(self, names: Sequence[str]) -> float:
        """How long a start of these may take."""
        if compiles(names) or not self.baseline.start_s:
            return self.program.patience_s
        return _HANGS_AFTER_STARTS * self.baseline.start_s + _HANGS_AFTER_S

    def attempt(
        self,
        names: Names,
        beside: Sequence[str],
        rival: Side,
        still: int,
        most_turns: int = MOST_TURNS,
    ) -> tuple[TrialRow, Side]:
        """Measure changes beside a rival, with so many still to come; a side that is not kept is stopped."""
        first, *together = names
        self.tell(f"{' + '.join(names)}: starting")
        side = self.ahead.take([*beside, *names])
        row = TrialRow(
            change=first,
            together=tuple(together),
            beside=tuple(beside),
            predicted=None if together else self.plan.predicted.get(first),
        )
        try:
            found = self._timed(side, rival, names, still, most_turns)
            if not isinstance(found, str):
                row = _of_those_applied(row, side)
            row = self._judged(row, side, found)
        except Failed as failure:
            if failure.owner not in (None, side):
                raise
            kind = "" if failure.kind == "late" else f"{failure.kind.replace('-', ' ')}: "
            row = replace(row, why=f"{kind}{failure.why}")
        finally:
            if not row.kept:
                side.stop()
        return row, side

    def attempt_without(self, name: str, kept: Sequence[str], best: Side) -> tuple[TrialRow, Side]:
        """Measure what one of the kept changes adds to the others; the side without it runs on unless it is kept."""
        others = tuple(each for each in kept if each != name)
        self.tell(f"without {name}: starting")
        side = self.ahead.take(others)
        row = TrialRow(change=name, beside=others, predicted=self.plan.predicted.get(name))
        try:
            side.start()
            found = self._compare(side, best, self._deadline(side, 2))
            row = self._judged(row, best, found)
        except Failed as failure:
            if failure.owner not in (None, side):
                raise
            row = replace(row, kept=True, why=f"without it: {failure.why}")
        finally:
            if row.kept or row.measured is None:
                side.stop()
        return row, side

    def stack(self, names: Sequence[str], kept: list[str], best: Side) -> tuple[list[str], Side]:
        """Add each of these to what is kept while it helps."""
        try:
            for at, name in enumerate(names):
                if why := self._obstacle(name, kept):
                    self.add(TrialRow(change=name, beside=tuple(kept), why=why))
                    continue
                self.ahead.start(likely_chains(kept, names[at:]))
                row, side = self.attempt((name,), kept, best, len(names) - at)
                self.add(row)
                if row.kept:
                    if best is not self.baseline:
                        best.stop()
                    best, kept = side, [*kept, name]
        except BaseException:
            best.stop()
            raise
        return kept, best

    def _obstacle(self, name: str, kept: Sequence[str]) -> str | None:
        if rival := same_kind(name, kept):
            return f"{rival} stands in its place"
        return None if self.holds([*kept, name]) else NO_TURN

    def whole(self, kept: list[str], best: Side) -> tuple[list[str], tuple[Comparison, Likeness] | None]:
        """All that is kept, measured anew beside the unchanged program; the side is stopped."""
        if not kept:
            return [], None
        try:
            found = self._whole(kept, best)
            likeness = self._likeness(best)
            ruling = verdict_on(found.ratio, self.unchanged.noise, likeness)
            if ruling.kept and self.plan.compared_in is not None:
                self._record(Path(self.plan.compared_in), best)
        finally:
            best.stop()
        if not ruling.kept:
            self.notes.append(f"{', '.join(kept)}: did not hold in a second measurement ({ruling.why})")
            self.refuted = True
            return [], None
        return kept, (found, likeness)

    def _record(self, folder: Path, best: Side) -> None:
        for name, side in ((BEFORE, self.baseline), (AFTER, best)):
            self.tell(f"recording {folder / name}")
            try:
                side.record(str((folder / name).absolute()))
            except Failed as failure:
                self.notes.append(f"there is no recording {name}: {failure.why}")

    def _whole(self, kept: Sequence[str], best: Side) -> Comparison:
        self.tell(f"{' + '.join(kept)}: measured again")
        least = self.few_s(best)
        try:
            until = time.monotonic() + max(self.left_s(), least)
            return self._compare(self.baseline, best, until)
        except Failed as failure:
            if failure.kind != "out-of-memory":
                raise
        return self.timed_alone(best, self.baseline, time.monotonic() + max(self.left_s(), least))

    def _timed(self, side: Side, rival: Side, names: Names, still: int, most_turns: int) -> Comparison | str:
        try:
            if self.is_short and compiles(side.changes):  # by now it is known better what turns take
                side.hurry(self.patience_s(side.changes), self.until(side.changes))
            first = side.start()
            if compiles(side.changes):
                self._compiler_s = max(self._compiler_s, side.start_s)
            if not any(first.applied.get(name) for name in names):
                return first.refused.get(names[0], "it found nothing to change")
            until = self._deadline(side, still)
            return self._compare(rival, side, until, most_turns)
        except Failed as failure:
            if failure.kind != "out-of-memory":
                raise
        side.stop()
        self.ahead.stop()
        if rival is not self.baseline:
            self.baseline.stop()
        return self.timed_alone(side, rival, self._deadline(side, still))

    def _compare(self, before: Side, after: Side, until: float, most_turns: int = MOST_TURNS) -> Comparison:
        with self.ahead.standing_still():
            return compare(before, after, self.plan.steps, self.unchanged.noise, until, most_turns)

    def _deadline(self, side: Side, still: int) -> float:
        """Twice its share of what is left, since most need less, but a few turns at least."""
        now, few_s = time.monotonic(), self.few_s(side)
        left_s = self.left_s() - self.reserve_s()
        return min(max(now + min(2 / still, 1) * left_s, now + few_s), self.end)

    def timed_alone(self, side: Side, rival: Side, deadline: float) -> Comparison:
        """One after the other, where the memory does not hold both."""
        rival.stop()
        found = Comparison()
        side.start()
        size = max(1, math.ceil(self.plan.steps / 6))
        while len(found.after_ns) < 6 and time.monotonic() < deadline:
            found.after_ns.append(side.turn(size))
        side.stop()
        while len(found.before_ns) < len(found.after_ns):
            found.before_ns.append(rival.turn(size))
        note = "the memory does not hold two programs: some were timed one after the other"
        if note not in self.notes:
            self.notes.append(note)
        return found

    def _likeness(self, side: Side) -> Likeness:
        curves = self.unchanged.curves
        curves.own = max(curves.own, self.baseline.losses, key=len)
        promise = weakest(side.changes)
        if self.facts.in_process and promise is Promise.EQUAL:
            promise = Promise.DRAWS  # sides share what the step reads, so that each sees other data
        return curves.judge(side.losses, promise, in_fewer_bits=self.facts.autocast or self.facts.half)

    def _judged(self, row: TrialRow, side: Side, found: Comparison | str) -> TrialRow:
        if isinstance(found, str):
            return replace(row, why=found)
        self.unchanged.ns += [] if row.beside else found.before_ns
        likeness = self._likeness(side)
        ruling = verdict_on(found.ratio, self.unchanged.noise, likeness)
        first = side.first or NO_BLOCK
        return replace(
            row,
            measured=found.ratio,
            kept=ruling.kept,
            undecided=ruling.undecided,
            why=ruling.why,
            turns=len(found.before_ns),
            loss_distance=likeness.distance,
            first_step_s=None if first.first_ns is None else first.first_ns / 1e9,
            warmup_s=first.ns / 1e9,
            peak_bytes=side.peak_bytes,
        )


def _of_those_applied(row: TrialRow, side: Side) -> TrialRow:
    """A row of the changes that found something to change."""
    applied = (side.first or NO_BLOCK).applied
    first, *together = [name for name in (row.change, *row.together) if applied.get(name)]
    return replace(row, change=first, together=tuple(together))
