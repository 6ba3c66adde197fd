"""What the comparison of ranks adds to the health of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from profkit.model import Finding, Severity
from profkit.model.findings import Param
from profkit.model.report_ranks import CommunicationRow, CommunicationSize, Messages, Parallelism
from profkit.ranks.rank_table import RanksFound
from profkit.ranks.wait_causes import STRAGGLER_SHARE

__all__ = ["bucket_findings", "rank_findings"]

Params: TypeAlias = Mapping[str, Param]

_SMALL_BUCKET_BYTES: Final = 2 << 20
"""A choice: a twelfth of the buckets that DDP makes by default."""

_SMALL_BUCKET_NS: Final = 60_000
_NOTABLE_SHARE: Final = 0.02
"""Of the window of the compared ranks."""

_TIMES_SHORTER: Final = 2
"""Recordings that differ by this factor or less in their steps are of like length."""

_MANY: Final = 32
"""All-reduces a step; DDP's buckets of 25 MiB are fewer than this for models below 800 MiB of gradients."""


def rank_findings(
    ranks: RanksFound, parallelism: Sequence[Parallelism], world_size: int | None
) -> list[Finding]:
    """Findings on the ranks.

    Args:
        ranks: What the comparison found.
        parallelism: The kinds of parallelism of the report.
        world_size: The number of ranks of the job, where a file says it.
    """
    found = [
        Finding(
            "parallelism",
            Severity.INFO,
            params={"kind": row.kind, "sign": row.sign.code, **row.sign.params},
        )
        for row in parallelism
        if row.sign is not None
    ]
    recorded = len({row.rank for row in ranks.rows})
    if ranks.rows and world_size is not None and 1 < recorded < world_size:
        missing = world_size - recorded
        params: Params = {"recorded": recorded, "world_size": world_size}
        found.append(Finding("ranks-missing", Severity.INFO, count=missing, params=params))
    if ranks.rows and ranks.method.not_compared:
        params = {"reason": ranks.method.not_compared}
        found.append(Finding("ranks-not-compared", Severity.INFO, params=params))
    found += _gap_findings(ranks)
    found += _start_findings(ranks)
    found += _length_findings(ranks)
    found += _message_findings(ranks.method.messages, ranks.method.unrecorded_waiting_ns)
    late = [row for row in ranks.rows if row.straggler]
    where = "sends and receives" if ranks.waits_in_messages else "collectives"
    for row in late[:8]:
        share = ranks.caused_shares[row.rank]
        params = {"rank": row.rank, "waiting_ns": row.causes_wait_ns, "where": where, "share": share}
        found.append(Finding("straggler", Severity.INFO, params=params))
    return found


def _gap_findings(ranks: RanksFound) -> list[Finding]:
    """What was left out of the comparison, though other ranks or collectives were compared."""
    found = []
    unmatched, matched = ranks.method.unmatched, ranks.method.matched
    exposed = ranks.method.unmatched_exposed_ns
    window = sum(sum(row.shares.values()) for row in ranks.compared)
    if matched and exposed > _NOTABLE_SHARE * window:
        params: Params = {"exposed_ns": exposed}
        found.append(Finding("collectives-unmatched", Severity.INFO, count=unmatched, params=params))
    apart = [row.rank for row in ranks.rows if row.waiting_ns is None]
    repeated = ranks.method.repeated
    if repeated:
        params = {"ranks": repeated}
        found.append(Finding("ranks-repeated", Severity.INFO, count=len(repeated), params=params))
    apart = [rank for rank in apart if rank not in repeated]
    if matched and apart:
        params = {"reason": "few-collectives", "ranks": apart}
        found.append(Finding("ranks-not-compared", Severity.INFO, count=len(apart), params=params))
    return found


def _message_findings(messages: Messages | None, unrecorded_ns: int) -> list[Finding]:
    exposed_ns = messages.exposed_waiting_ns - unrecorded_ns if messages else 0
    if messages is None or exposed_ns < STRAGGLER_SHARE * messages.window_ns:
        return []
    params = {"share": exposed_ns / messages.window_ns}
    return [Finding("waits-in-messages", Severity.INFO, count=len(messages.ranks), params=params)]


def _start_findings(ranks: RanksFound) -> list[Finding]:
    """Waiting for ranks whose profilers were still starting."""
    unrecorded_ns = ranks.method.unrecorded_waiting_ns
    window = sum(sum(row.shares.values()) for row in ranks.compared)
    if unrecorded_ns < STRAGGLER_SHARE * window or not unrecorded_ns:
        return []
    params = {"waiting_ns": unrecorded_ns, "share": unrecorded_ns / window}
    return [Finding("recordings-apart", Severity.WARNING, params=params)]


def _length_findings(ranks: RanksFound) -> list[Finding]:
    """Recordings that are much shorter than others: a straggler must be late in most steps of its own."""
    compared = {row.rank for row in ranks.compared}
    steps = {rank: ranks.steps[rank] for rank in compared if ranks.steps[rank]}
    most = max(steps.values(), default=0)
    short = sorted(rank for rank, count in steps.items() if count * _TIMES_SHORTER < most)
    if not short:
        return []
    counts = [steps[rank] for rank in short]
    params: Params = {
        "ranks": short,
        "fewest_steps": min(counts),
        "fewer_steps": max(counts),
        "most_steps": most,
    }
    return [Finding("recordings-uneven", Severity.INFO, count=len(short), params=params)]


def bucket_findings(communication: Sequence[CommunicationRow], steps: int) -> list[Finding]:
    """Gradients that are reduced in many small pieces, from the communication table.

    Args:
        communication: The table of the report.
        steps: Kept steps, summed over devices.
    """
    found = []
    for row in communication:
        each = row.count / max(steps, 1)
        if row.collective != "all_reduce" or each < _MANY:
            continue
        size = _median_size(row.sizes)
        time = (row.total_ns if row.transfer_ns is None else row.transfer_ns) / row.count
        if size <= _SMALL_BUCKET_BYTES if size is not None else time <= _SMALL_BUCKET_NS:
            params: Params = {"per_step": round(each), "half_bytes": size, "each_ns": time}
            found.append(Finding("small-buckets", Severity.INFO, count=row.count, params=params))
    return found


def _median_size(sizes: Sequence[CommunicationSize]) -> int | None:
    known: list[tuple[Any, int]] = sorted((s.bytes, s.count) for s in sizes if s.bytes is not None)
    half, seen = sum(count for _, count in known) / 2, 0
    for size, count in known:
        seen += count
        if seen >= half:
            return int(size)
    return None
