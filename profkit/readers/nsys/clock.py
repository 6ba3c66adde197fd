"""Which times of an export are credible, and where its time zero lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.readers.nsys.columns import NULL, Columns, Integers
from profkit.readers.nsys.database import Database, integer
from profkit.readers.nsys.target import export_facts
from profkit.units import NS_PER_S

__all__ = ["Clock"]

_SLACK_NS = 60 * NS_PER_S
_HOUR_NS = 3600 * NS_PER_S
_LONGEST_NS = 30 * 24 * _HOUR_NS
_RANGE_LEAD_NS = 24 * _HOUR_NS
"""A range may have been open for long before the recording began."""
_YEARS_NS = 10**18
"""No recording lasts 31 years: later times count from 1970, whatever the export says of itself."""
_SAMPLE_ROWS = 100_000


@dataclass(frozen=True)
class Clock:
    """Judges times as they are written, and moves them so that zero is the start of the session."""

    shift_ns: int
    """What the export added to all times (``--ts-shift``, ``--ts-normalize``)."""
    unix_epoch_ns: int | None
    middle_ns: int
    reach_ns: int
    """How far from the middle of the recording an event can lie, as it is written."""
    dropped: Counter[str]

    @classmethod
    def of(cls, database: Database, tables: Sequence[Columns]) -> Clock:
        """Find the recording's place in time from its own statements and from where most events lie."""
        starts = _sample(tables)
        middle = int(np.median(starts)) if len(starts) else 0
        spread = int(np.median(np.abs(starts - middle))) if len(starts) else 0
        epoch = _session_start(database)
        shift = _shift(database)
        if middle - shift > _YEARS_NS:
            shift = epoch if epoch is not None else middle
            epoch = shift
        duration = _duration(database)
        reach = 2 * duration + _SLACK_NS if duration else max(_HOUR_NS, 20 * spread)
        return cls(shift, epoch, middle, min(reach, _LONGEST_NS), Counter())

    def credible(self, table: Columns, *, ranges: bool = False) -> Columns:
        """The rows whose times can be true; the others are counted by reason."""
        start, end = table["start"], table["end"]
        lost = (start == NULL) | (end == NULL) | ((start == end) & ((start == 0) | (start == self.shift_ns)))
        reversed_times = ~lost & (end < start)
        reach = self.reach_ns + (_RANGE_LEAD_NS if ranges else 0)
        low, high = max(self.middle_ns - reach, NULL), min(self.middle_ns + reach, -NULL - 1)
        far = ~lost & ~reversed_times & ((start < low) | (end > high))
        for reason, rows in (
            ("lost_timestamps", lost),
            ("reversed_times", reversed_times),
            ("implausible_times", far),
        ):
            if count := int(np.count_nonzero(rows)):
                self.dropped[reason] += count
        return table.take(~(lost | reversed_times | far))

    def session_ns(self, times: Integers) -> Integers:
        """Times as they are written to nanoseconds since the start of the session."""
        return times - self.shift_ns if self.shift_ns else times


def _sample(tables: Sequence[Columns]) -> Integers:
    """Evenly chosen starts of credible rows. Device work and calls decide; ranges only where there is no other."""
    parts: list[NDArray[Any]] = []
    for table in tables:
        step = max(1, len(table) // _SAMPLE_ROWS)
        start, end = table["start"][::step], table["end"][::step]
        parts.append(start[(start != NULL) & ((end >= start) | (end == NULL)) & ~((start == 0) & (end == 0))])
    # a quarter of the int64 range keeps the differences from overflowing
    joined: Integers = np.concatenate([np.empty(0, np.int64), *parts])
    return joined[np.abs(joined) < 1 << 61]


def _session_start(database: Database) -> int | None:
    table = database.table("TARGET_INFO_SESSION_START_TIME")
    rows = table.rows("utcEpochNs") if table else []
    epoch = integer(rows[0][0]) if rows else None
    return epoch if epoch is not None and 0 < epoch < 1 << 62 else None


def _shift(database: Database) -> int:
    shift = integer(export_facts(database).get("EXPORT_CONFIG_TIME_SHIFT"))
    return shift if shift is not None and abs(shift) < 1 << 62 else 0


def _duration(database: Database) -> int:
    table = database.table("ANALYSIS_DETAILS")
    rows = table.rows("duration") if table else []
    return max((integer(row[0]) or 0 for row in rows), default=0)
