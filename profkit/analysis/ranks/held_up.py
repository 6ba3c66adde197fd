"""The verdict where ranks were compared: a wait inside a collective is another rank's time, not the network's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from profkit.analysis.ranks.report import RanksFound
from profkit.analysis.result import SHARES, Row
from profkit.units import duration_text, percent_text

__all__ = ["verdict_on_ranks"]

_MOSTLY: Final = 0.5
"""Of the exposed communication: with more waiting than this, bandwidth is not what is short."""

_WORTH_SAYING: Final = 0.02
"""Of the window: less waiting than this is not told."""

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


def verdict_on_ranks(verdict: Row, ranks: RanksFound) -> Row:
    """The verdict, with the waiting for other ranks told from the transfer.

    The share `communication` stays what it is, the time in which a device only communicates; where most of it is
    waiting for another rank, the sentence (if communication is the verdict) and a caveat say so.

    Args:
        verdict: The verdict over all devices.
        ranks: What the comparison of ranks found.
    """
    compared = [row for row in ranks.rows if row["waiting_ns"] is not None]
    waiting = sum(row["exposed_waiting_ns"] for row in compared)
    # Where the others' recordings have ended, nothing tells waiting from transfer.
    exposed = sum(row["exposed_ns"] for row in compared) - ranks.method.get("unmatched_exposed_ns", 0)
    total = sum(sum(row["shares"].values()) for row in compared)
    late = _most_to_blame(compared)
    if late is None or not waiting or waiting < _MOSTLY * exposed or waiting < _WORTH_SAYING * total:
        return {**verdict, "held_up_by": None}
    extra, extra_ns = _own_bottleneck(late, compared)
    held_up = {
        "rank": late["rank"] if late["straggler"] else None,
        "waiting_ns": waiting,
        "share": waiting / total,
        "bound": extra if late["straggler"] else None,
    }
    messages = ranks.method.get("messages") or {"exposed_waiting_ns": 0}
    by_messages = messages["exposed_waiting_ns"] * 2 > waiting
    who = _who(late, extra, extra_ns, by_messages=by_messages)
    told = f"{percent_text(waiting / exposed)} of the exposed communication is waiting for ranks that come late, not transfer: {who}."
    sentence, caveats = verdict["sentence"], [*verdict["caveats"], told]
    if verdict["bound"] == "communication":
        caveats = verdict["caveats"]
        by = f"rank {late['rank']}" if late["straggler"] else "ranks that wait for each other"
        sentence = (
            f"The step is held up by {by}, not by the network: for {percent_text(waiting / total)} of the time "
            f"a GPU waits in {'a send or receive' if by_messages else 'a collective'} for a rank that has not "
            f"entered it; {who}."
        )
    return {**verdict, "sentence": sentence, "caveats": caveats, "held_up_by": held_up}


def _most_to_blame(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=lambda r: (r["holds_up_ns"], -r["rank"]), default=None)


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


def _who(late: Row, extra: str, extra_ns: int, *, by_messages: bool) -> str:
    if not late["straggler"]:
        bubble = ", as the stages of a pipeline do (its bubble)" if by_messages else ""
        return f"no single rank is to blame, they wait for each other in turn{bubble}"
    window = sum(late["shares"].values())
    steps = max(round(window / late["step_ns"]), 1) if late["step_ns"] else 1
    return (
        f"rank {late['rank']} enters up to {duration_text(late['late_ns'])} later than the first, and spends "
        f"{duration_text(extra_ns / steps)} a step more than the others {_OWN_TIME[extra]}"
    )
