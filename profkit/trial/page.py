"""A trial as a page: each measured change as a dot with its interval, what is kept, and what to write."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from profkit.errors import printable
from profkit.model.rows import Interval
from profkit.rendering.small_page import small_page
from profkit.trial.document import TrialRow, TryDocument
from profkit.trial.sentences import costs_of, is_part, name_of, speedup_text

__all__ = ["try_page"]

_LEFT: Final = 300.0
_RIGHT: Final = 1000.0
_ROW: Final = 26.0
_TOP: Final = 14.0
_MARGIN: Final = math.log(1.05)


def try_page(found: TryDocument) -> str:
    """The page; it has no script and needs no network."""
    plotted = [
        (printable(name_of(row)), is_part(row, found), row.measured, row.predicted)
        for row in found.trials
        if row.measured is not None
    ]
    if found.final.speedup is not None:
        plotted.append(("all that is kept, measured again", True, found.final.speedup, None))
    axis = _Axis(
        [_ONE, *(each for *_, measured, predicted in plotted for each in (measured, predicted) if each)]
    )
    height = _TOP + _ROW * len(plotted)
    return small_page(
        "try.html.j2",
        {
            "command": printable(" ".join(found.command)),
            "sentences": [
                printable(found.sentence),
                f"The trial took {found.duration_s:.0f} s.",
                *_notes(found),
            ],
            "marks": [
                (
                    _TOP + _ROW * (at + 0.5),
                    _end_of(name),
                    name,
                    kept,
                    axis.mark(measured),
                    axis.mark(predicted),
                )
                for at, (name, kept, measured, predicted) in enumerate(plotted)
            ],
            "one": axis.across(1.0),
            "ticks": list(axis.ticks()),
            "height": height,
            "code": "\n".join([*found.final.environment, *_code(found)]),
            "rows": [_cells(row, found) for row in found.trials],
            "by_hand": [
                (row.change, speedup_text(row.predicted), row.what, "\n".join(row.code))
                for row in found.by_hand
            ],
        },
    )


def _end_of(name: str) -> str:
    """What fits beside the plot: rows that share what both sides had differ at their ends."""
    return name if len(name) <= _LONGEST_NAME else f"… {name[-_LONGEST_NAME:].partition(' ')[2]}"


_LONGEST_NAME: Final = 34
_ONE: Final = Interval(low=1.0, likely=1.0, high=1.0)


class _Axis:
    """Speed-ups from left to right, by their logarithms."""

    def __init__(self, intervals: list[Interval]) -> None:
        self._low = math.log(min(each.low for each in intervals)) - _MARGIN
        self._high = math.log(max(each.high for each in intervals)) + _MARGIN

    def across(self, ratio: float) -> float:
        share = (math.log(ratio) - self._low) / (self._high - self._low)
        return round(_LEFT + share * (_RIGHT - _LEFT), 1)

    def mark(self, interval: Interval | None) -> tuple[float, float, float, str] | None:
        if interval is None:
            return None
        low, likely, high = map(self.across, (interval.low, interval.likely, interval.high))
        return low, likely, high, speedup_text(interval)

    def ticks(self) -> Iterator[tuple[float, str]]:
        wide = self._high - self._low > math.log(2)
        for ratio in (0.25, 0.5, 1, 2, 4, 8, 16) if wide else (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.6):
            if self._low <= math.log(ratio) <= self._high:
                yield self.across(ratio), f"{ratio:g}x"


def _notes(found: TryDocument) -> list[str]:
    return [f"Note: {printable(note)}." for note in found.notes]


def _code(found: TryDocument) -> list[str]:
    return [line for line in found.final.patch if line not in found.final.environment]


def _cells(row: TrialRow, found: TryDocument) -> tuple[str, str, str, str]:
    predicted, measured = (
        "" if each is None else speedup_text(each) for each in (row.predicted, row.measured)
    )
    why = ("kept: " if is_part(row, found) else "") + row.why + costs_of(row, found)
    return printable(name_of(row)), predicted, measured, printable(why)
