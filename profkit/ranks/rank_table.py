"""The ranks of a report: shares, steps, clocks, lateness, and stragglers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from profkit.model.report_ranks import Messages, RankComparison, RankRow, Wait
from profkit.model.rows import replace as changed
from profkit.ranks.clocks import Clock, align_clocks
from profkit.ranks.collective_events import DeviceCollectives, partners_unknown
from profkit.ranks.collective_waits import Waiting, find_waiting
from profkit.ranks.instants import common_instants
from profkit.ranks.matching import Matching, common_steps, match_again, match_collectives
from profkit.ranks.wait_causes import caused_waits, name_stragglers
from profkit.timeline.grouping import sums
from profkit.timeline.intervals import Intervals

__all__ = ["RanksFound", "compare_ranks"]

Column = NDArray[np.int64]

_MOST_PAIRS: Final = 200
_END_SPREAD_NS: Final = 20_000
"""Ends of one collective may lie this far apart beside the error of the clocks."""


@dataclass(frozen=True, kw_only=True)
class RanksFound:
    """What a comparison of ranks found."""

    rows: Sequence[RankRow] = ()
    """The table ``ranks``."""
    method: RankComparison = field(default_factory=lambda: RankComparison(parallelism=(), streams=()))
    """How the ranks were compared, and who waits for whom."""
    caused_shares: Mapping[int | None, float] = field(default_factory=dict)
    """By rank: what ``causes_wait_ns`` is of the windows of those that wait for it."""
    steps: Mapping[int | None, int] = field(default_factory=dict)
    """By rank: the marked steps of its recording."""
    clocks: Mapping[int, Clock] = field(default_factory=dict)
    """By file."""
    waiting: Mapping[tuple[Any, ...], int] = field(default_factory=dict)
    """By row of the communication table: the time in its collectives before the last rank entered."""
    buffered: frozenset[tuple[Any, ...]] = frozenset()
    """Rows of the communication table with messages that went into a buffer."""

    @property
    def waits_in_messages(self) -> bool:
        """Whether most of the exposed waiting is in sends and receives."""
        exposed_ns = self.method.messages.exposed_waiting_ns if self.method.messages else 0
        return exposed_ns * 2 > sum(row.exposed_waiting_ns or 0 for row in self.rows)

    @property
    def compared(self) -> list[RankRow]:
        """The ranks whose waiting is known."""
        return [row for row in self.rows if row.waiting_ns is not None]


def compare_ranks(devices: Sequence[DeviceCollectives], world_size: int | None = None) -> RanksFound:
    """Compare the ranks of a report.

    Args:
        devices: The devices of all its files.
        world_size: The number of ranks of the job, where a file says it.
    """
    if len(devices) != 2 or world_size not in (None, 2):
        devices = [partners_unknown(d) for d in devices]
    if _are_nameless(devices):
        found = _compared([replace(d, rank=number) for number, d in enumerate(devices)])
        method = changed(found.method, numbered_by="file-order")
        return replace(found, method=method) if len(found.clocks) > 1 else RanksFound()
    return _compared([d for d in devices if d.rank is not None])


def _are_nameless(devices: Sequence[DeviceCollectives]) -> bool:
    """Whether no file says its rank, and each is of one device."""
    return all(d.rank is None for d in devices) and len({d.file for d in devices}) == len(devices)


def _compared(devices: Sequence[DeviceCollectives]) -> RanksFound:
    if len(devices) < 2:
        return RanksFound()
    rows = [_plain_row(d) for d in devices]
    chosen = _first_of_each_rank(devices)
    if len(chosen) < 2:
        return RanksFound(rows=rows, method=_not_compared("one-rank"))
    if len(chosen) < len(devices):
        found_of_some = _compared([devices[at] for at in chosen])
        for at, row in zip(chosen, found_of_some.rows, strict=True):
            rows[at] = row
        repeated = sorted({d.rank for at, d in enumerate(devices) if at not in chosen and d.rank is not None})
        return replace(found_of_some, rows=rows, method=changed(found_of_some.method, repeated=repeated))
    found = match_collectives(devices)
    clocks = align_clocks(devices, found)
    shifts = _device_shifts(devices, clocks)
    found = found.only(np.isin(np.array([d.file for d in devices]), list(clocks)))
    if len(clocks) and found.uneven.any():
        tolerance = 2 * max(c.error_ns for c in clocks.values()) + _END_SPREAD_NS
        end = np.concatenate([d.end_ns for d in devices])
        found = match_again(found, end + shifts[found.device], tolerance)
    if not (found.event >= 0).any():
        return RanksFound(rows=rows, method=_not_compared("no-common-collective"))
    shift = shifts[found.device]
    everywhere = find_waiting(devices, found.device, found.event, shift)
    waiting = everywhere.in_window()
    errors = _errors(devices, found, shift)
    rows = _with_comparison(rows, devices, waiting, errors, clocks)
    caused = caused_waits(devices, everywhere, common_steps(devices)[everywhere.last_row], shifts)
    rows = name_stragglers(rows, devices, waiting, caused)
    return RanksFound(
        rows=rows,
        method=changed(_method(devices, found, waiting, rows), unrecorded_waiting_ns=caused.unrecorded_ns),
        caused_shares={d.rank: float(s) for d, s in zip(devices, caused.caused_share, strict=True)},
        steps={d.rank: len(d.steps) for d in devices},
        clocks=clocks,
        waiting=_by_table_row(devices, waiting),
        buffered=_buffered(devices, waiting),
    )


def _first_of_each_rank(devices: Sequence[DeviceCollectives]) -> list[int]:
    """A profiler that records every so often leaves several traces of a rank: the first ones belong together."""
    timed = all(d.epoch_ns is not None for d in devices)
    began = [(d.epoch_ns or 0) + d.span[0] if timed else 0 for d in devices]
    first: dict[int | None, int] = {}
    for at in sorted(range(len(devices)), key=lambda at: (began[at], at)):
        first.setdefault(devices[at].rank, at)
    return sorted(first.values())


def _not_compared(reason: Literal["one-rank", "no-common-collective"]) -> RankComparison:
    return RankComparison(parallelism=(), streams=(), matched=0, not_compared=reason)


def _plain_row(device: DeviceCollectives) -> RankRow:
    steps, communication = device.step_ns, int(device.shares["communication"])
    collectives = Intervals.of(device.start_ns[device.kept], device.end_ns[device.kept]).total_ns
    return RankRow(
        rank=_rank(device),
        device=device.device,
        step_ns=device.window_ns // max(len(steps), 1),
        step_min_ns=min(steps, default=None),
        step_max_ns=max(steps, default=None),
        shares=device.shares,
        late_ns=None,
        straggler=None,
        critical=None,
        collective_ns=collectives,
        exposed_ns=communication,
        overlapped_ns=max(collectives - communication, 0),
        waiting_ns=None,
        exposed_waiting_ns=None,
        transfer_ns=None,
        causes_wait_ns=None,
        clock_offset_ns=None,
        clock_error_ns=None,
    )


def _rank(device: DeviceCollectives) -> int:
    """Its rank; only devices that have one are compared."""
    return -1 if device.rank is None else device.rank


def _device_shifts(devices: Sequence[DeviceCollectives], clocks: Mapping[int, Clock]) -> Column:
    """From each device's own clock to the common one."""
    return np.array(
        [(d.epoch_ns or 0) + (clocks[d.file].offset_ns if d.file in clocks else 0) for d in devices], np.int64
    )


def _errors(devices: Sequence[DeviceCollectives], found: Matching, shift: Column) -> list[int | None]:
    """How far each device's ends lie from the last end of the same collective, nine times of ten."""
    instants = common_instants(devices, found)
    event, sure = instants.event, instants.sure
    end = np.concatenate([d.end_ns for d in devices]) + shift - instants.lead_ns
    rows = np.flatnonzero(event >= 0)
    last = np.full(int(event.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(last, event[rows], end[rows])
    behind = last[event[rows]] - end[rows]
    errors: list[int | None] = []
    for at in range(len(devices)):
        mine = found.device[rows] == at
        mine = behind[mine & sure[rows] if (mine & sure[rows]).any() else mine]
        errors.append(int(np.quantile(mine, 0.9, method="higher")) if len(mine) else None)
    return errors


def _with_comparison(
    rows: Sequence[RankRow],
    devices: Sequence[DeviceCollectives],
    waiting: Waiting,
    errors: Sequence[int | None],
    clocks: Mapping[int, Clock],
) -> list[RankRow]:
    starts = np.concatenate([d.start_ns for d in devices])[waiting.row]
    compared = []
    for at, (row, device) in enumerate(zip(rows, devices, strict=True)):
        mine = waiting.device == at
        if errors[at] is None:
            compared.append(row)
            continue
        spent = Intervals.of(starts[mine], starts[mine] + waiting.waiting_ns[mine])
        compared.append(
            changed(
                row,
                late_ns=_latest_by_step(device, waiting, at),
                waiting_ns=spent.total_ns,
                exposed_waiting_ns=int(device.exposed.within(spent.start, spent.end).sum()),
                transfer_ns=max(row.collective_ns - spent.total_ns, 0),
                clock_offset_ns=clocks[device.file].offset_ns,
                clock_error_ns=errors[at],
            )
        )
    least = min(((row.waiting_ns, row.rank) for row in compared if row.waiting_ns is not None), default=None)
    return [
        row if row.waiting_ns is None else changed(row, critical=(row.waiting_ns, row.rank) == least)
        for row in compared
    ]


def _latest_by_step(device: DeviceCollectives, waiting: Waiting, at: int) -> int:
    """How much later than the first it came where it came latest in each kept step: the mean over the steps."""
    mine = np.flatnonzero(waiting.device == at)
    latest = np.zeros(len(device.steps) + 1, np.int64)
    np.maximum.at(latest, waiting.step[mine], waiting.late_ns[mine])
    return round(int(latest.sum()) / max(len(device.step_ns), 1))


def _by_table_row(devices: Sequence[DeviceCollectives], waiting: Waiting) -> dict[tuple[Any, ...], int]:
    found: dict[tuple[Any, ...], int] = {}
    table_row = np.concatenate([d.table_row for d in devices])[waiting.row]
    for at, each in enumerate(devices):
        mine = waiting.device == at
        total = sums(table_row[mine], waiting.waiting_ns[mine], len(each.table_keys))
        for row in np.unique(table_row[mine]).tolist():
            key = each.table_keys[row]
            found[key] = found.get(key, 0) + int(total[row])
    return found


def _buffered(devices: Sequence[DeviceCollectives], waiting: Waiting) -> frozenset[tuple[Any, ...]]:
    table_row = np.concatenate([d.table_row for d in devices])[waiting.row]
    return frozenset(
        each.table_keys[row]
        for at, each in enumerate(devices)
        for row in np.unique(table_row[waiting.buffered & (waiting.device == at)]).tolist()
    )


def _method(
    devices: Sequence[DeviceCollectives], found: Matching, waiting: Waiting, rows: Sequence[RankRow]
) -> RankComparison:
    pairs = waiting.pairs()
    steps = [row.step_ns or 0 for row in rows]
    return RankComparison(
        parallelism=(),
        streams=(),
        matched=int(np.unique(found.event[found.event >= 0]).size),
        unmatched=int(((found.event < 0) & np.concatenate([d.kept for d in devices])).sum()),
        unmatched_exposed_ns=_unmatched_exposed_ns(devices, found),
        step_spread_ns=max(steps) - min(steps),
        critical_rank=next((row.rank for row in rows if row.critical), None),
        waits=[
            Wait(
                rank=_rank(devices[who]),
                waits_for=_rank(devices[whom]),
                waiting_ns=waiting_ns,
                exposed_ns=exposed_ns,
            )
            for who, whom, waiting_ns, exposed_ns in pairs[:_MOST_PAIRS]
        ],
        waits_left_out=max(len(pairs) - _MOST_PAIRS, 0),
        messages=_messages(devices, waiting),
    )


def _unmatched_exposed_ns(devices: Sequence[DeviceCollectives], found: Matching) -> int:
    """The exposed time of the compared devices in collectives without a partner, which may be waiting or transfer."""
    total, first = 0, 0
    for each in devices:
        event = found.event[first : first + len(each)]
        first += len(each)
        alone = (event < 0) & each.kept & ~np.isin(each.operation, each.operation[event >= 0])
        if (event >= 0).any():
            # What is inside a matched collective too is told already.
            both, told = (_exposed_in(each, rows) for rows in (alone | (event >= 0), event >= 0))
            total += both - told
    return total


def _exposed_in(device: DeviceCollectives, rows: NDArray[np.bool_]) -> int:
    times = Intervals.of(device.start_ns[rows], device.end_ns[rows])
    return int(device.exposed.within(times.start, times.end).sum())


def _messages(devices: Sequence[DeviceCollectives], waiting: Waiting) -> Messages | None:
    """The waiting in sends and receives, of the ranks that have matched ones."""
    if not waiting.message.any():
        return None
    members = np.unique(waiting.device[waiting.message]).tolist()
    return Messages(
        ranks=[_rank(devices[at]) for at in members],
        exposed_waiting_ns=int(waiting.exposed_ns[waiting.message].sum()),
        window_ns=sum(devices[at].window_ns for at in members),
    )
