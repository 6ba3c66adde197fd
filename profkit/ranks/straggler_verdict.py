"""The verdict where ranks were compared: a wait inside a collective is another rank's time, not the network's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from profkit.model.result import SHARES, Row
from profkit.ranks.rank_table import RanksFound
from profkit.units import duration_text, percent_text

__all__ = ["verdict_on_ranks"]

_MOSTLY: Final = 0.5
"""Of the exposed communication: with more waiting than this, bandwidth is not what is short."""

_WORTH_SAYING: Final = 0.02
"""Of the window: less waiting than this is not told."""

_EXPLAINS: Final = 0.1
"""Of what a rank holds up: with less extra time of its own than this, that is not why it is late."""

_PERHAPS_PROFILER: Final = (
    "A profiler slows hosts down, and not all alike: see whether the late rank is late without one too."
)

_OWN_TIME: Final = {
    "compute": "in kernels that arithmetic limits",
    "memory": "in kernels that memory bandwidth limits",
    "launch": "waiting for the host's launches",
    "unclassified": "in GPU work of unknown kind",
    "transfer": "in copies to or from the host",
    "input": "waiting for input",
    "sync": "idle after synchronisation",
    "other": "idle for other reasons",
}


def verdict_on_ranks(verdict: Any, ranks: RanksFound) -> Row:
    """The verdict, with the waiting for other ranks told from the transfer.

    The shares stay what they are. Where most exposed communication is waiting, the sentence says so, if communication
    is the verdict or if one late rank costs more than anything else; else a caveat does.

    Args:
        verdict: The verdict over all devices.
        ranks: What the comparison of ranks found.
    """
    compared = [row for row in ranks.rows if row["waiting_ns"] is not None]
    waiting = sum(row["exposed_waiting_ns"] for row in compared)
    # Where the others' recordings have ended, nothing tells waiting from transfer.
    exposed = sum(row["exposed_ns"] for row in compared) - ranks.method.get("unmatched_exposed_ns", 0)
    exposed = max(exposed, waiting)
    total = sum(sum(row["shares"].values()) for row in compared)
    late = _most_to_blame(compared)
    if late is None or not waiting or waiting < _MOSTLY * exposed or waiting < _WORTH_SAYING * total:
        return {**verdict, "held_up_by": None}
    straggler = late["straggler"]
    extra, extra_ns = _own_bottleneck(late, compared)
    explained = straggler and extra_ns >= _EXPLAINS * late["holds_up_ns"]
    held_up = {
        "rank": late["rank"] if straggler else None,
        "waiting_ns": waiting,
        "share": waiting / total,
        "bound": extra if explained else None,
    }
    told = f"{percent_text(waiting / exposed)} of the exposed communication is waiting for ranks that come late, not transfer"
    where = "a send or receive" if ranks.waits_in_messages else "a collective"
    if ranks.method.get("unrecorded_waiting_ns", 0) > _MOSTLY * waiting:
        by, who = "the start of its recording", "most of it for ranks whose recording had not begun"
    elif straggler:
        by, who = f"rank {late['rank']}", _who(late, extra, extra_ns if explained else None)
    else:
        by, who = "ranks that wait for each other", _in_turn(late, compared, pipeline=ranks.waits_in_messages)
    sentence, second = verdict.get("sentence"), verdict["runner_up"]
    caveats: list[str] = []
    if explained and extra == "launch" and not verdict["doubts"]:
        caveats = [_PERHAPS_PROFILER]
    if verdict["bound"] == "communication":
        sentence = (
            f"The step is held up by {by}, not by the network: for {percent_text(waiting / total)} of the time "
            f"a GPU waits in {where} for a rank that has not entered it; {who}."
        )
    elif straggler and verdict["bound"] in SHARES and _costs_most(late, compared, extra, extra_ns):
        sentence = (
            f"The step is held up by {by}: the others wait {percent_text(ranks.held_shares[late['rank']])} of their time in "
            f"{where} for it; {who}."
        )
        # What is close behind has the same cause, or is far from it.
        second = None
    else:
        caveats = [*caveats, f"{told}: {who}."]
    return {**verdict, "sentence": sentence, "runner_up": second, "caveats": caveats, "held_up_by": held_up}


def _most_to_blame(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=lambda r: (r["straggler"], r["holds_up_ns"], -r["rank"]), default=None)


def _cost(late: Row, rows: Sequence[Row]) -> float:
    """Of the mean window: at most so much shorter is the step without it."""
    return float(late["holds_up_ns"] * len(rows) / sum(sum(row["shares"].values()) for row in rows))


def _costs_most(late: Row, rows: Sequence[Row], extra: str, extra_ns: int) -> bool:
    """Whether a late rank costs more than any share would without it.

    What it does while the others wait, and their waiting, have one cause, though they are two shares of the mean.
    """
    total = sum(sum(row["shares"].values()) for row in rows)
    left = {share: sum(row["shares"][share] for row in rows) for share in SHARES}
    left[extra] -= min(extra_ns, late["holds_up_ns"])
    left["communication"] -= late["holds_up_ns"] * (len(rows) - 1)
    return bool(_cost(late, rows) * total >= max(left.values()))


def _own_bottleneck(late: Row, rows: Sequence[Row]) -> tuple[str, int]:
    """The share that the late rank has most more of than the others do in the mean, and how much more."""
    others = [row for row in rows if row is not late]
    more: Mapping[str, int] = {
        share: late["shares"][share] - round(sum(row["shares"][share] for row in others) / len(others))
        for share in SHARES
        if share != "communication"
    }
    largest = max(more, key=lambda s: more[s])
    return largest, more[largest]


def _in_turn(late: Row, rows: Sequence[Row], *, pipeline: bool) -> str:
    if pipeline:
        return "no single rank is to blame, they wait for each other in turn, as the stages of a pipeline do (its bubble)"
    waiting = sum(row["exposed_waiting_ns"] for row in rows)
    most = late["holds_up_ns"] * (len(rows) - 1) > _MOSTLY * waiting
    which = f", most of the time for rank {late['rank']}, but not steadily" if most else ""
    return f"no single rank is to blame, they wait for each other in turn{which}"


def _who(late: Row, extra: str, extra_ns: int | None) -> str:
    enters = f"rank {late['rank']} enters {duration_text(late['late_ns'])} later than the first on average"
    if extra_ns is None:
        return f"{enters}, which its own time in these steps does not explain"
    window = sum(late["shares"].values())
    steps = max(round(window / late["step_ns"]), 1) if late["step_ns"] else 1
    each = duration_text(extra_ns / steps)
    return f"{enters}, and spends {each} a step more than the others {_OWN_TIME[extra]}"
