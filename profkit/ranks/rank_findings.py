"""What the comparison of ranks adds to the health of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from profkit.model import Finding, Severity
from profkit.model.result import Row
from profkit.ranks.rank_table import RanksFound
from profkit.ranks.wait_causes import STRAGGLER_SHARE
from profkit.units import bytes_text, duration_text, percent_text

__all__ = ["bucket_findings", "rank_findings"]

_SMALL_BUCKET_BYTES: Final = 2 << 20
"""A choice: a twelfth of the buckets that DDP makes by default."""

_SMALL_BUCKET_NS: Final = 60_000
_NOTABLE_SHARE: Final = 0.02
"""Of the window of the compared ranks."""

_TIMES_SHORTER: Final = 2
"""Recordings that differ by this factor or less in their steps are of like length."""

_MANY: Final = 32
"""All-reduces a step; DDP's buckets of 25 MiB are fewer than this for models below 800 MiB of gradients."""


def rank_findings(ranks: RanksFound, parallelism: Sequence[Row], world_size: int | None) -> list[Finding]:
    """Findings on the ranks.

    Args:
        ranks: What the comparison found.
        parallelism: The kinds of parallelism of the report.
        world_size: The number of ranks of the job, where a file says it.
    """
    found = []
    if parallelism:
        kinds = ", ".join(f"{row['kind']} ({row['evidence']})" for row in parallelism)
        found.append(Finding("parallelism", Severity.INFO, f"The work is spread over devices: {kinds}"))
    recorded = len({row["rank"] for row in ranks.rows})
    if ranks.rows and world_size is not None and 1 < recorded < world_size:
        message = (
            f"{recorded} of {world_size} ranks are in the report: waiting for the others counts as transfer"
        )
        found.append(Finding("ranks-missing", Severity.INFO, message, world_size - recorded))
    if ranks.rows and "instead" in ranks.method:
        found.append(Finding("ranks-not-compared", Severity.INFO, _sentence(ranks.method["instead"])))
    found += _gap_findings(ranks)
    found += _start_findings(ranks)
    found += _length_findings(ranks)
    found += _message_findings(ranks.method.get("messages"), ranks.method.get("unrecorded_waiting_ns", 0))
    late = [row for row in ranks.rows if row["straggler"]]
    where = "sends and receives" if ranks.waits_in_messages else "collectives"
    for row in late[:8]:
        message = (
            f"Rank {row['rank']} is a straggler: the others wait {duration_text(row['holds_up_ns'])} for it in "
            f"{where}, {percent_text(ranks.held_shares[row['rank']])} of their window"
        )
        found.append(Finding("straggler", Severity.INFO, message))
    return found


def _gap_findings(ranks: RanksFound) -> list[Finding]:
    """What was left out of the comparison, though other ranks or collectives were compared."""
    found = []
    unmatched, matched = ranks.method.get("unmatched", 0), ranks.method.get("matched", 0)
    exposed = ranks.method.get("unmatched_exposed_ns", 0)
    window = sum(sum(row["shares"].values()) for row in ranks.rows if row["waiting_ns"] is not None)
    if matched and exposed > _NOTABLE_SHARE * window:
        message = (
            f"{unmatched} collectives have no partner in another recording (which may have fewer steps, or lack the "
            f"group): {duration_text(exposed)} in them may be waiting or transfer"
        )
        found.append(Finding("collectives-unmatched", Severity.INFO, message, unmatched))
    apart = [row["rank"] for row in ranks.rows if row["waiting_ns"] is None]
    repeated = ranks.method.get("repeated", [])
    if repeated:
        message = f"Several recordings are of rank {_few(repeated)}: the first of each is compared"
        found.append(Finding("ranks-repeated", Severity.INFO, message, len(repeated)))
    apart = [rank for rank in apart if rank not in repeated]
    if matched and apart:
        message = f"Rank {_few(apart)} shares too few collectives with the others to be compared with them"
        found.append(Finding("ranks-not-compared", Severity.INFO, message, len(apart)))
    return found


def _few(ranks: Sequence[int]) -> str:
    """Some of them, and how many more."""
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return ", ".join(str(rank) for rank in ranks[:8]) + more


def _message_findings(messages: Row | None, unrecorded_ns: int) -> list[Finding]:
    exposed_ns = messages["exposed_waiting_ns"] - unrecorded_ns if messages else 0
    if messages is None or exposed_ns < STRAGGLER_SHARE * messages["window_ns"]:
        return []
    share = percent_text(exposed_ns / messages["window_ns"])
    message = (
        f"{len(messages['ranks'])} ranks wait {share} of their window for each other in sends and receives. In a "
        "pipeline that is its bubble: more micro-batches, an interleaved schedule or evener stages shorten it"
    )
    return [Finding("waits-in-messages", Severity.INFO, message, len(messages["ranks"]))]


def _start_findings(ranks: RanksFound) -> list[Finding]:
    """Waiting for ranks whose profilers were still starting."""
    unrecorded_ns = ranks.method.get("unrecorded_waiting_ns", 0)
    window = sum(sum(row["shares"].values()) for row in ranks.rows if row["waiting_ns"] is not None)
    if unrecorded_ns < STRAGGLER_SHARE * window or not unrecorded_ns:
        return []
    message = (
        f"{duration_text(unrecorded_ns)} ({percent_text(unrecorded_ns / window)} of the ranks' windows) is waiting for "
        "ranks whose recording had not begun: the start of their profilers, not the job. Start the profilers of all "
        "ranks behind a barrier, or record more steps"
    )
    return [Finding("recordings-apart", Severity.WARNING, message)]


def _length_findings(ranks: RanksFound) -> list[Finding]:
    """Recordings that are much shorter than others: a straggler must be late in most steps of its own."""
    compared = {row["rank"] for row in ranks.rows if row["waiting_ns"] is not None}
    steps = {rank: count for rank, count in ranks.steps.items() if rank in compared and count}
    most = max(steps.values(), default=0)
    short = sorted(
        rank for rank, count in steps.items() if rank is not None and count * _TIMES_SHORTER < most
    )
    if not short:
        return []
    counts = sorted({steps[rank] for rank in short})
    told = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    message = (
        f"Rank {_few(short)} recorded {told} steps, others {most}: ranks are compared in the steps that they share, so "
        "who is late in the rest is not seen, and a straggler may be missed. Record the same steps on all ranks"
    )
    return [Finding("recordings-uneven", Severity.INFO, message, len(short))]


def bucket_findings(communication: Sequence[Row], steps: int) -> list[Finding]:
    """Gradients that are reduced in many small pieces, from the communication table.

    Args:
        communication: The table of the report.
        steps: Kept steps, summed over devices.
    """
    found = []
    for row in communication:
        each = row["count"] / max(steps, 1)
        if row["collective"] != "all_reduce" or each < _MANY:
            continue
        size = _median_size(row["sizes"])
        time = (row["total_ns"] if row["transfer_ns"] is None else row["transfer_ns"]) / row["count"]
        if size <= _SMALL_BUCKET_BYTES if size is not None else time <= _SMALL_BUCKET_NS:
            what = (
                f"half of them of {bytes_text(size)} or less"
                if size is not None
                else f"{duration_text(time)} each"
            )
            message = (
                f"{each:.0f} all-reduces a step, {what}: each pays the start of a collective. "
                "With larger buckets (DDP's bucket_cap_mb is 25 by default) there are fewer"
            )
            found.append(Finding("small-buckets", Severity.INFO, message, row["count"]))
    return found


def _median_size(sizes: Sequence[Row]) -> int | None:
    known: list[tuple[Any, int]] = sorted((s["bytes"], s["count"]) for s in sizes if s["bytes"] is not None)
    half, seen = sum(count for _, count in known) / 2, 0
    for size, count in known:
        seen += count
        if seen >= half:
            return int(size)
    return None


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
