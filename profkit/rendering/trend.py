"""A number over many runs: a table for a terminal, and a page with its plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.comparison import Change, Point
from profkit.errors import printable
from profkit.rendering.small_page import small_page
from profkit.units import noun_text, percent_text

__all__ = ["change_sentences", "render_trend_html", "render_trend_text"]

_BAR: Final = 24
_LEFT, _TOP, _WIDTH, _HEIGHT = 64, 14, 1000, 260
"""The place of the plot in its picture."""
_LISTED: Final = 50
"""Runs in the page's table, the latest."""


def change_sentences(points: Sequence[Point], changes: Sequence[Change], label: str) -> list[str]:
    """Where the number changed, as sentences, the latest change first.

    Args:
        points: The runs with a value.
        changes: Their changes.
        label: What the number is.
    """
    told = []
    for change in reversed(changes):
        point = points[change.at]
        share = f" ({_signed(change.after / change.before - 1)})" if change.before else ""
        told.append(
            f"{label} changed with run {point.run}: {change.before:.4g} → {change.after:.4g}{share}, "
            f"saved {_saved(point)} UTC"
        )
    runs = noun_text(len(points), "run")
    return told or [f"{label} has not changed over {runs}"]


def render_trend_text(points: Sequence[Point], changes: Sequence[Change], label: str) -> str:
    """One line a run with a bar, the run of a change marked, and what changed below."""
    values = [point.value for point in points]
    most = max((abs(value) for value in values), default=0)
    starts = {change.at for change in changes}
    lines = [f"{'run':>6}  {'saved (UTC)':<16}  {printable(label):>14}"]
    for at, point in enumerate(points):
        bar = "█" * round(_BAR * abs(point.value) / most) if most else ""
        mark = "  ← changed here" if at in starts else ""
        lines.append(f"{point.run:>6}  {_saved(point):<16}  {point.value:>14.4f}  {bar}{mark}".rstrip())
    return "\n".join([*lines, "", *map(printable, change_sentences(points, changes, label))]) + "\n"


def render_trend_html(points: Sequence[Point], changes: Sequence[Change], label: str) -> str:
    """A page with the number over runs, its levels and its changes; it has no script and needs no network."""
    highest = max((point.value for point in points), default=0.0) or 1.0

    def across(at: float) -> float:
        return round(_LEFT + (at + 0.5) * (_WIDTH - _LEFT) / max(len(points), 1), 1)

    def down(value: float) -> float:
        return round(_TOP + _HEIGHT * (1 - max(value, 0.0) / highest), 1)

    starts = [change.at for change in changes]
    edges = [0, *starts, len(points)]
    levels = [changes[0].before, *(change.after for change in changes)] if changes else []
    return small_page(
        "trend.html.j2",
        {
            "label": printable(label),
            "sentences": [printable(line) for line in change_sentences(points, changes, label)],
            "line": " ".join(f"{across(at)},{down(point.value)}" for at, point in enumerate(points)),
            "dots": [
                (across(at), down(point.value), f"run {point.run} · {_saved(point)} · {point.value:.4g}")
                for at, point in enumerate(points)
            ],
            "levels": [
                (across(first - 0.5), across(end - 0.5), down(level))
                for first, end, level in zip(edges, edges[1:], levels, strict=False)
            ],
            "changes": [(across(at - 0.5), f"run {points[at].run}") for at in starts],
            "ticks": [(down(highest * part / 4), f"{highest * part / 4:.3g}") for part in range(5)],
            "ends": [(across(at), f"run {points[at].run}") for at in sorted({0, len(points) - 1}) if points],
            "rows": [(point.run, _saved(point), f"{point.value:.4g}") for point in points[-_LISTED:]][::-1],
        },
    )


def _saved(point: Point) -> str:
    return point.saved_at[:16].replace("T", " ")


def _signed(share: float) -> str:
    return f"{'+' if share > 0 else '−'}{percent_text(abs(share))}"
