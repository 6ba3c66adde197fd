"""The verdict where ranks were compared: a wait inside a collective is another rank's time, not the network's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from profkit.model.names import SHARES, ShareName
from profkit.model.report_ranks import RankRow, Straggler
from profkit.model.report_verdict import Verdict
from profkit.model.rows import replace
from profkit.ranks.rank_table import RanksFound

__all__ = ["verdict_on_ranks"]

_MOSTLY: Final = 0.5
"""Of the exposed communication: with more waiting than this, bandwidth is not what is short."""

_WORTH_SAYING: Final = 0.02
"""Of the window: less waiting than this is not told."""

_EXPLAINS: Final = 0.1
"""Of the waiting that a rank causes: with less extra time of its own than this, that is not why it is late."""


def verdict_on_ranks(verdict: Verdict, ranks: RanksFound) -> Verdict:
    """The verdict, with the waiting for other ranks told from the transfer.

    The shares stay what they are. Where most exposed communication is waiting, it leads the verdict if communication
    is the bound, or if one late rank costs more than anything else; else it is a caveat.

    Args:
        verdict: The verdict over all devices.
        ranks: What the comparison of ranks found.
    """
    compared = ranks.compared
    waiting = sum(row.exposed_waiting_ns or 0 for row in compared)
    # Where the others' recordings have ended, nothing tells waiting from transfer.
    exposed = sum(row.exposed_ns for row in compared) - ranks.method.unmatched_exposed_ns
    exposed = max(exposed, waiting)
    total = sum(sum(row.shares.values()) for row in compared)
    late = _latest_rank(compared)
    if late is None or not waiting or waiting < _MOSTLY * exposed or waiting < _WORTH_SAYING * total:
        return replace(verdict, straggler=None)
    extra, extra_ns = _own_bottleneck(late, compared)
    is_straggler = bool(late.straggler)
    explained = is_straggler and extra_ns >= _EXPLAINS * _caused_ns(late)
    before_recording = ranks.method.unrecorded_waiting_ns > _MOSTLY * waiting
    by_one = is_straggler and verdict.bound in SHARES and _costs_most(late, compared, extra, extra_ns)
    by_communication = verdict.bound == "communication"
    straggler = Straggler(
        rank=late.rank if is_straggler else None,
        waiting_ns=waiting,
        share=waiting / total,
        bound=extra if explained else None,
        leads=by_communication or by_one,
        waits_in="message" if ranks.waits_in_messages else "collective",
        before_recording=before_recording,
        exposed_share=waiting / exposed,
        caused_share=ranks.caused_shares[late.rank],
        late_ns=late.late_ns,
        extra_ns=_per_step_ns(late, extra_ns) if explained else None,
        mostly_for=None if is_straggler else _mostly_for(late, compared),
    )
    # What is close behind a late rank has the same cause, or is far from it.
    second = None if by_one and not by_communication else verdict.runner_up
    return replace(verdict, runner_up=second, straggler=straggler)


def _caused_ns(row: RankRow) -> int:
    return row.causes_wait_ns or 0


def _latest_rank(rows: Sequence[RankRow]) -> RankRow | None:
    return max(rows, key=lambda r: (bool(r.straggler), _caused_ns(r), -r.rank), default=None)


def _cost(late: RankRow, rows: Sequence[RankRow]) -> float:
    """Of the mean window: at most so much shorter is the step without it."""
    return float(_caused_ns(late) * len(rows) / sum(sum(row.shares.values()) for row in rows))


def _costs_most(late: RankRow, rows: Sequence[RankRow], extra: ShareName, extra_ns: int) -> bool:
    """Whether a late rank costs more than any share would without it.

    What it does while the others wait, and their waiting, have one cause, though they are two shares of the mean.
    """
    total = sum(sum(row.shares.values()) for row in rows)
    left = {share: sum(row.shares[share] for row in rows) for share in SHARES}
    left[extra] -= min(extra_ns, _caused_ns(late))
    left["communication"] -= _caused_ns(late) * (len(rows) - 1)
    return bool(_cost(late, rows) * total >= max(left.values()))


def _own_bottleneck(late: RankRow, rows: Sequence[RankRow]) -> tuple[ShareName, int]:
    """The share that the late rank has most more of than the others do in the mean, and how much more."""
    others = [row for row in rows if row is not late]
    more: Mapping[ShareName, int] = {
        share: late.shares[share] - round(sum(row.shares[share] for row in others) / len(others))
        for share in SHARES
        if share != "communication"
    }
    largest = max(more, key=lambda s: more[s])
    return largest, more[largest]


def _mostly_for(late: RankRow, rows: Sequence[RankRow]) -> int | None:
    """The rank that most of the time is waited for, if there is one."""
    waiting = sum(row.exposed_waiting_ns or 0 for row in rows)
    return late.rank if _caused_ns(late) * (len(rows) - 1) > _MOSTLY * waiting else None


def _per_step_ns(late: RankRow, extra_ns: int) -> int:
    window = sum(late.shares.values())
    steps = max(round(window / late.step_ns), 1) if late.step_ns else 1
    return round(extra_ns / steps)
