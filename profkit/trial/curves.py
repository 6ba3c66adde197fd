"""Whether the losses of a changed program are those of the unchanged one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profkit.trial.changes import Promise

__all__ = ["Curves", "Likeness"]

_WINDOWS: Final = 5
_ROUNDING: Final = 1e-3
"""What another order of sums may grow to within a trial, as a share of the loss."""
_PRECISION: Final = 1e-2
"""The same for fewer bits, where seeds make no difference: bf16 keeps three digits of a number.

A program that computes in them rounds so at every operator, in whatever order its sums are made.
"""
_ENOUGH_LOSSES: Final = 15
"""A curve of another seed that is as long tells what a step more or less is worth: the warm-up and a few turns."""
_OWN_SHARE: Final = 0.25
"""A change that promises equal numbers may lead off by this share of what another seed does."""


@dataclass(frozen=True)
class Likeness:
    """How far the losses of a change are from the baseline's."""

    same: bool | None
    """None where there is nothing to compare."""
    distance: float | None
    """Relative to the loss."""
    seeds: float | None
    """What other seeds make of it, relative to the loss."""
    why: str


class Curves:
    """The losses of the baseline: with its own seed, and with others."""

    def __init__(self, own: Sequence[float | None], others: Sequence[Sequence[float | None]]) -> None:
        self.own = list(own)
        self.others = [list(each) for each in others if each and None not in each]

    def judge(
        self, losses: Sequence[float | None], promise: Promise, in_fewer_bits: bool = False
    ) -> Likeness:
        """Compare the losses of a change, from the first step on; the program itself may compute in fewer bits."""
        count = min(len(losses), len(self.own))
        if not count:
            return Likeness(None, None, None, "the program calls no backward")
        bad = next((at for at, loss in enumerate(losses) if loss is None), None)
        own_bad = next((at for at, loss in enumerate(self.own) if loss is None), None)
        if own_bad is not None:
            return Likeness(
                None, None, None, f"the unchanged program's own loss {own_bad + 1} is NaN or infinite"
            )
        if bad is not None:
            return Likeness(False, None, None, f"loss {bad + 1} is NaN or infinite")
        count = self._compared(count)
        scale = _scale(self.own[:count])
        distance = _distance(losses, self.own, count) / scale
        seeds = max(
            (_distance(each, self.own, min(count, len(each))) / scale for each in self.others), default=0.0
        )
        same = distance <= _allowed(promise, seeds, _PRECISION if in_fewer_bits else _ROUNDING)
        how = f"{distance:.2%} from the baseline; other seeds differ by {seeds:.2%}"
        return Likeness(same, distance, seeds, f"loss unchanged ({how})" if same else f"the loss is {how}")

    def _compared(self, count: int) -> int:
        """As many as other seeds have run: rounding and seeds alike lead further apart with each step."""
        longest = max(map(len, self.others), default=0)
        return min(count, longest) if longest >= _ENOUGH_LOSSES else count


def _allowed(promise: Promise, seeds: float, rounding: float) -> float:
    if promise is Promise.EQUAL:
        return max(rounding, _OWN_SHARE * seeds)
    return max(seeds, _PRECISION if promise is Promise.PRECISION else rounding)


def _distance(one: Sequence[float | None], other: Sequence[float | None], count: int) -> float:
    """The mean distance of two curves, each smoothed over a fifth of its length so that single batches cancel out."""
    size = max(1, count // _WINDOWS)
    starts = range(0, count - size + 1, size)
    gaps = [abs(_mean(one[at : at + size]) - _mean(other[at : at + size])) for at in starts]
    return sum(gaps) / len(gaps) if gaps else 0.0


def _scale(losses: Sequence[float | None]) -> float:
    known = [abs(loss) for loss in losses if loss is not None]
    return max(sum(known) / len(known), math.ulp(1.0)) if known else 1.0


def _mean(losses: Sequence[float | None]) -> float:
    known = [loss for loss in losses if loss is not None]
    return sum(known) / len(known) if known else math.nan
