"""The period of a sequence of kernel launches: the longest part that recurs whole, and is not several equal ones.

Everything here works on tokens: integers in launch order, equal for equal kernels. Times, names and devices are the
caller's. Nothing loops over tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Repetitions", "find_repetitions", "united_runs"]

_REGULAR: Final = 0.6
_GAP_WITHIN: Final = 0.05
"""An anchor is a token of which so many gaps lie this close to its median gap."""

_GOOD: Final = 0.9
"""A segment that shares so much with the usual one is a repetition."""

_NEARLY_BEST: Final = 0.85
_ODD: Final = 0.95
_ODD_WITH_OPTIMIZER: Final = 0.8
_OPTIMIZER_IN: Final = 0.9
_WITHOUT_OPTIMIZER: Final = 0.25
"""Forward and backward take more of a step's launches than this, and none of them is the optimizer's."""
_HOLE: Final = 1.3
"""A segment longer than so many periods is a step and something else, such as evaluation."""

_MOST_ANCHORS: Final = 40
_FEWEST: Final = 3

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Repetitions:
    """Parts of a sequence that are nearly equal, in order; odd ones among them are single."""

    start: Column
    """The first token of each."""
    end: Column
    """One past its last; before a hole, short of the next start."""
    explained: float
    """The share of all tokens that lie in good repetitions."""

    @property
    def resumes(self) -> Flags:
        """Which do not follow the one before."""
        anew = np.ones(len(self.start), bool)
        anew[1:] = self.start[1:] != self.end[:-1]
        return anew


@dataclass(frozen=True, eq=False)
class _Cut:
    """The sequence cut at each place of one token."""

    edge: Column
    """Where segments begin, and where the last one ends."""
    likeness: NDArray[np.float64]
    """Of each segment with the usual bag of tokens: 0 to 1."""
    first: int
    """The chain of good segments: from this one..."""
    last: int
    """...to this one, inclusive."""
    period: float
    explained: int
    """Tokens in good segments of the chain."""

    @property
    def good(self) -> int:
        return int(np.count_nonzero(self.likeness[self.first : self.last + 1] >= _GOOD))


def united_runs(token: Column) -> tuple[Column, Column]:
    """Runs of four or more equal tokens as one token each.

    Returns:
        The tokens, and where each begins in the given sequence.
    """
    if not len(token):
        return token, np.empty(0, np.int64)
    start = np.concatenate(([0], np.flatnonzero(token[1:] != token[:-1]) + 1))
    length = np.diff(np.append(start, len(token)))
    times = np.where(length >= 4, 1, length)
    value = np.repeat(np.where(length >= 4, -2 - token[start], token[start]), times)
    within = np.arange(len(value)) - np.repeat(np.cumsum(times) - times, times)
    return value, np.repeat(start, times) + within


def find_repetitions(token: Column, optimizer: Flags) -> Repetitions | None:
    """The steps of a sequence.

    Args:
        token: What was launched, in order.
        optimizer: Which tokens are kernels of an optimizer: where there are any, each step has one.

    Returns:
        At least three repetitions, or None.
    """
    codes = np.unique(token, return_inverse=True)[1].astype(np.int64) if len(token) else token
    cuts = [cut for anchor in _anchors(codes) if (cut := _cut_at(codes, anchor)) is not None]
    if not cuts:
        return None
    best = max(cut.explained for cut in cuts)
    cuts = sorted(
        (c for c in cuts if c.explained >= _NEARLY_BEST * best), key=lambda c: (-c.period, -c.explained)
    )
    chosen = cuts[0]
    for smaller in cuts[1:]:
        if smaller.period < 0.75 * chosen.period and _is_finer(chosen, smaller, optimizer):
            chosen = smaller
    found = _bounds(_turned(codes, chosen, optimizer), len(codes))
    return found if len(found.start) >= _FEWEST else None


def _anchors(codes: Column) -> list[Column]:
    """The places of tokens that recur regularly: of each length of period the three that cover most."""
    order = np.argsort(codes, kind="stable")
    gap = np.diff(order)
    same = codes[order][1:] == codes[order][:-1]
    owner, gap = codes[order][1:][same], gap[same]
    if not len(gap):
        return []
    by_gap = np.lexsort((gap, owner))
    gap, owner = gap[by_gap], owner[by_gap]
    first = np.concatenate(([0], np.flatnonzero(np.diff(owner)) + 1))
    count = np.diff(np.append(first, len(owner)))
    median = gap[first + count // 2].astype(np.float64)
    near = np.abs(gap - np.repeat(median, count)) <= np.maximum(_GAP_WITHIN * np.repeat(median, count), 1e-9)
    regular = np.add.reduceat(near, first) >= _REGULAR * count
    kept = np.flatnonzero(regular & (count >= _FEWEST - 1))
    if not len(kept):
        return []
    cover = count[kept] * median[kept]
    band = np.floor(np.log(median[kept]) / np.log1p(_GAP_WITHIN)).astype(np.int64)
    rank = np.lexsort((-cover, band))
    fresh = np.concatenate(([True], np.diff(band[rank]) != 0))
    place = np.arange(len(rank)) - np.maximum.accumulate(np.where(fresh, np.arange(len(rank)), 0))
    few = rank[place < 3]
    few = few[np.argsort(-cover[few], kind="stable")][:_MOST_ANCHORS]
    tokens = owner[first[kept[few]]]
    begin, over = np.searchsorted(codes[order], tokens), np.searchsorted(codes[order], tokens, "right")
    return [order[a:b] for a, b in zip(begin.tolist(), over.tolist(), strict=True)]


def _cut_at(codes: Column, places: Column) -> _Cut | None:
    """Cut a sequence at some places, and find the longest chain of segments that are alike."""
    if len(places) < _FEWEST:
        return None
    period = float(np.median(np.diff(places)))
    if period < 2:
        return None  # one kernel again and again
    # What follows the last place may be a whole segment, and more.
    edge = np.append(places, min(places[-1] + int(period), len(codes)))
    likeness = _likeness(codes, edge)
    good = np.flatnonzero(likeness >= _GOOD)
    if len(good) < _FEWEST - 1:
        return None
    length = np.diff(edge)
    chain = np.concatenate(([0], np.cumsum(np.diff(good) > 2)))
    explained = np.bincount(chain, weights=length[good])
    longest = good[chain == int(explained.argmax())]
    cut = _Cut(edge, likeness, int(longest[0]), int(longest[-1]), period, int(explained.max()))
    return replace(cut, explained=cut.explained + int(period)) if _begins_whole(codes, cut) else cut


def _begins_whole(codes: Column, cut: _Cut) -> bool:
    """Whether what lies before the first anchor and after the last is one more repetition."""
    if not cut.edge[0] or cut.first or cut.last < len(cut.edge) - 3 or cut.likeness[-1] >= _GOOD:
        return False
    kinds = int(codes.max()) + 1
    usual = np.bincount(codes[cut.edge[0] : cut.edge[1]], minlength=kinds)
    rest = np.bincount(codes[: cut.edge[0]], minlength=kinds) + np.bincount(
        codes[cut.edge[-2] :], minlength=kinds
    )
    return bool(np.minimum(usual, rest).sum() >= _NEARLY_BEST * np.maximum(usual, rest).sum())


def _likeness(codes: Column, edge: Column) -> NDArray[np.float64]:
    """The weighted Jaccard index of each segment with the bag of median counts."""
    segments, kinds = len(edge) - 1, int(codes.max()) + 1
    inside = codes[edge[0] : edge[-1]]
    segment = np.repeat(np.arange(segments), np.diff(edge))
    pair, count = np.unique(segment * kinds + inside, return_counts=True)
    of_segment, kind = pair // kinds, pair % kinds
    # The last segment may be a part of one.
    whole = of_segment < max(segments - 1, 1)
    usual = _median_counts(kind[whole], count[whole], max(segments - 1, 1), kinds)
    shared = np.bincount(of_segment, weights=np.minimum(count, usual[kind]), minlength=segments)
    every = np.diff(edge) + usual.sum() - shared
    likeness: NDArray[np.float64] = shared / np.maximum(every, 1)
    return likeness


def _median_counts(kind: Column, count: NDArray[Any], segments: int, kinds: int) -> Column:
    """The median over all segments of how often each kind occurs; most occur in none of them."""
    order = np.lexsort((count, kind))
    present = np.bincount(kind, minlength=kinds)
    absent = segments - present
    first = np.cumsum(present) - present
    at = segments // 2 - absent
    found = np.zeros(kinds, np.int64)
    common = np.flatnonzero((at >= 0) & (present > 0))
    found[common] = count[order][first[common] + at[common]]
    return found


def _is_finer(large: _Cut, small: _Cut, optimizer: Flags) -> bool:
    """Whether the repetitions of a cut are several equal steps of another: layers have an odd one in each repetition."""
    inside = slice(small.first, small.last + 1)
    begin, over = small.edge[:-1][inside], small.edge[1:][inside]
    upto = np.concatenate(([0], np.cumsum(optimizer)))
    has = upto[over] > upto[begin]
    runs = bool(upto[large.edge[large.last + 1]] > upto[large.edge[large.first]])
    odd = int(np.count_nonzero(small.likeness[inside] < (_ODD_WITH_OPTIMIZER if runs else _ODD)))
    return odd < large.good and (not runs or float(has.mean()) >= _OPTIMIZER_IN)


def _turned(codes: Column, cut: _Cut, optimizer: Flags) -> _Cut:
    """The cut moved to where steps begin: after the optimizer, or with the first token of the recording."""
    ways = [cut]
    period = int(cut.period)
    at = np.flatnonzero(optimizer)
    free = np.diff(np.append(at, at[-1:] + period))
    at = at[free > int(_WITHOUT_OPTIMIZER * period)]
    if len(at) >= _OPTIMIZER_IN * cut.good:
        after = at + 1
        begin = [max(int(after[0]) - period, 0)] if after[0] >= _NEARLY_BEST * period else []
        moved = np.concatenate((np.array(begin, np.int64), after))
        ways += [way for way in [_cut_at(codes, moved[moved < len(codes)])] if way is not None]
    if _begins_whole(codes, cut):
        ways += [way for way in [_cut_at(codes, cut.edge[:-1] - cut.edge[0])] if way is not None]
    return max(ways, key=lambda way: (way.good, way is not cut))


def _bounds(cut: _Cut, tokens: int) -> Repetitions:
    start = cut.edge[cut.first : cut.last + 1]
    end = cut.edge[cut.first + 1 : cut.last + 2].copy()
    long = end - start > _HOLE * cut.period
    end[long] = start[long] + int(cut.period)
    return Repetitions(start, end, cut.explained / max(tokens, 1))
