"""Who makes the others wait, and whether that makes it a straggler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.report_ranks import RankRow
from profkit.model.rows import replace
from profkit.ranks.collective_events import DeviceCollectives
from profkit.ranks.collective_waits import Waiting
from profkit.ranks.wait_attribution import attribute
from profkit.timeline.grouping import group_rows, sums

__all__ = ["STRAGGLER_SHARE", "CausedWaits", "caused_waits", "name_stragglers"]

Column = NDArray[np.int64]

STRAGGLER_SHARE: Final = 0.05
"""A rank that makes the others wait for this share of the window, in most of its steps, is a straggler."""

_TIMES_THE_USUAL: Final = 2
"""... if it also makes them wait this many times as long as the median rank does: jitter has no culprit."""


@dataclass(frozen=True, eq=False)
class CausedWaits:
    """Of every device: the exposed waiting of the others that it causes, as the mean over those others."""

    caused_ns: Column
    caused_share: NDArray[np.float64]
    """The same of the window of each that waits, so that long and short windows count alike; at most 1."""
    steps: Column
    """In how many steps that is a straggler's share of a step."""
    unrecorded_ns: int
    """Exposed waiting of all for devices whose recordings had not begun: attributed to nobody."""


def caused_waits(
    devices: Sequence[DeviceCollectives], waiting: Waiting, step: Column, shift: Column
) -> CausedWaits:
    """Attribute exposed waiting to those who cause it.

    Args:
        devices: One a rank.
        waiting: Who waits for whom; chains of waiting may lead through what is outside of the window.
        step: For each row of ``waiting`` the step of the device that entered last, or -1.
        shift: From each device's clock to the common one.
    """
    waits = np.flatnonzero(waiting.waiting_ns > 0)
    until = waiting.start[waits] + waiting.waiting_ns[waits]
    parts = attribute(waiting.device[waits], waiting.last[waits], waiting.start[waits], until, len(devices))
    began = np.array([d.span[0] for d in devices], np.int64) + shift
    since = np.clip(began[parts.to], parts.start, parts.end)
    whole, recorded = np.zeros((2, len(parts.wait)), np.int64)
    for at, each in enumerate(devices):
        mine = np.flatnonzero(parts.device == at)
        whole[mine] = each.exposed.within(parts.start[mine] - shift[at], parts.end[mine] - shift[at])
        recorded[mine] = each.exposed.within(since[mine] - shift[at], parts.end[mine] - shift[at])
    mean = recorded / np.maximum(waiting.members[waits[parts.wait]] - 1, 1)
    pair, example = group_rows(parts.to, step[waits[parts.wait]])
    notable = sums(pair, mean, len(example)) >= STRAGGLER_SHARE * _mean_step_ns(
        [devices[at] for at in np.unique(waiting.device)]
    )
    window = np.maximum([d.window_ns for d in devices], 1)
    # Members of several groups may wait for one rank at once, and the means of the groups add up.
    share = np.minimum(sums(parts.to, mean / window[parts.device], len(devices)), 1.0)
    return CausedWaits(
        caused_share=share,
        caused_ns=np.floor(sums(parts.to, mean, len(devices)) + 0.5).astype(np.int64),
        steps=np.bincount(parts.to[example][notable], minlength=len(devices)),
        unrecorded_ns=int((whole - recorded).sum()),
    )


def _mean_step_ns(devices: Sequence[DeviceCollectives]) -> float:
    return float(np.mean([d.window_ns / max(len(d.step_ns), 1) for d in devices]))


def name_stragglers(
    rows: Sequence[RankRow], devices: Sequence[DeviceCollectives], waiting: Waiting, caused: CausedWaits
) -> list[RankRow]:
    """The rows with ``causes_wait_ns`` and ``straggler``.

    Args:
        rows: The table of ranks, whose waiting is known.
        devices: One a rank.
        waiting: Who waits for whom.
        caused: The waiting that each causes.
    """
    compared = [row for row in rows if row.waiting_ns is not None]
    usual = int(np.sort(caused.caused_ns)[(len(devices) - 1) // 2])
    windows = [d.window_ns for row, d in zip(rows, devices, strict=True) if row.waiting_ns is not None]
    least = STRAGGLER_SHARE * float(np.mean(windows))
    error = max(row.clock_error_ns or 0 for row in compared)
    by_messages = int(waiting.exposed_ns[waiting.message].sum()) * 2 > int(waiting.exposed_ns.sum())
    typical = float(np.median([row.exposed_waiting_ns or 0 for row in compared]))
    named = []
    for row, device, ns, notable in zip(
        rows, devices, caused.caused_ns.tolist(), caused.steps.tolist(), strict=True
    ):
        if row.waiting_ns is None:
            named.append(row)
            continue
        steps = max(len(device.step_ns), 1)
        # The stages of a pipeline wait for each other even when all are equally fast.
        most_waiting = typical - least if by_messages else ns
        straggler = (
            ns >= max(least, _TIMES_THE_USUAL * usual)
            and ns > 2 * error * steps
            and notable * 2 > steps
            and (row.exposed_waiting_ns or 0) <= most_waiting
        )
        named.append(replace(row, causes_wait_ns=ns, straggler=straggler))
    return named
