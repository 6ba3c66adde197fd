"""The unchanged program: its step, beside itself with other seeds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from profkit.model.rows import Interval
from profkit.trial.curves import Curves
from profkit.trial.messages import Facts
from profkit.trial.plan import Plan
from profkit.trial.ratio import spread_of_times
from profkit.trial.running import Failed
from profkit.trial.turns import Side, compare

__all__ = ["BASELINES_SHARE", "Baselines", "noise_of"]

_LEAST_GAIN: Final = 0.01
"""Less is not worth a line of code."""
_UNSTEADY: Final = math.log(1.15)
"""Two unchanged programs that differ by more have nothing to tell about changes."""
BASELINES_SHARE: Final = 0.25
"""Of the budget."""


class Baselines:
    """What time and loss of the unchanged program are worth.

    Args:
        side: The unchanged program.
        plan: What is tried.
        tell: Is told what happens.
        notes: Takes what is to be known.
    """

    def __init__(self, side: Side, plan: Plan, tell: Callable[[str], None], notes: list[str]) -> None:
        self.side, self._plan, self._tell, self._notes = side, plan, tell, notes
        self._begun = time.monotonic()
        self.curves = Curves([], [])
        self.variation: Interval | None = None
        self.noise = _LEAST_GAIN
        self.ns: list[float] = []
        """Of a step, by turns."""
        self.step_s = 0.0
        """By the warm-up."""

    def start(self) -> Facts:
        """Start the unchanged program."""
        self._tell("the unchanged program")
        first = self.side.start()
        self.step_s = self.side.step_s
        assert first.facts is not None
        return first.facts

    def measure(self, sides: Sequence[Side], end: float, most_turns: int) -> None:
        """Time sides of other seeds beside it, in so many turns at most; each is stopped."""
        share = BASELINES_SHARE * self._plan.budget_s
        until = min(max(self._begun + share, time.monotonic() + share / 2), end)
        others = []
        for shift, other in enumerate(sides, 1):
            if shift > 1 and time.monotonic() > until and not other.is_up:
                break
            self._tell(f"the unchanged program with another seed ({shift})")
            try:
                self._run_seed(other, until, end, most_turns)
            except Failed as failure:
                if failure.owner is self.side:
                    raise
                self._notes.append(f"another seed: {failure.why}")
            others.append(other.losses)
            other.stop()
        if len(others) == 1:
            self._notes.append("the budget allowed a single other seed")
        if self.variation is not None:
            self.noise = noise_of(self.variation)
        self.curves = Curves(self.side.losses, others)

    def _run_seed(self, other: Side, until: float, end: float, most_turns: int) -> None:
        other.start()
        if self.variation is None:
            until = max(until, time.monotonic() + (end - time.monotonic()) / 4)
            found = compare(self.side, other, self._plan.steps, 0.0, until, most_turns)
            self.variation = found.ratio
            self.ns += found.before_ns
            return
        until = time.monotonic() + (end - time.monotonic()) / 4
        while (missing := len(self.side.losses) - len(other.losses)) > 0 and time.monotonic() < until:
            other.turn(max(1, math.ceil(missing / 2)))

    def is_steady(self) -> bool:
        """Whether two unchanged programs are alike enough; a note says by how much they are not."""
        apart = math.log1p(self.noise)
        if apart < _UNSTEADY:
            return True
        self._notes.append(
            f"two unchanged programs differ by {math.expm1(apart):.0%}: time more steps (--steps), on an idle machine"
        )
        return self._plan.keep_going

    def step_ms(self) -> Interval:
        """The unchanged step; where no turn was made, as its warm-up had it, with a note."""
        if self.ns:
            return spread_of_times([ns / 1e6 for ns in self.ns])
        self._notes.append("no turn was timed: the unchanged step is that of its warm-up")
        ms = self.step_s * 1e3
        return Interval(low=ms, likely=ms, high=ms)


def noise_of(variation: Interval) -> float:
    """What two unchanged programs differ by, beyond what their turns scatter, as a share.

    What is seen has the variance of both, and a quarter of a 95 % interval is the standard error of the turns.
    """
    error = math.log(variation.high / variation.low) / 4
    return max(_LEAST_GAIN, math.expm1(math.sqrt(max(0.0, math.log(variation.likely) ** 2 - error**2))))
