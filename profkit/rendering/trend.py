"""A number over many runs: a table for a terminal, and a page with its plot."""

from __future__ import annotations

import html
from collections.abc import Sequence

from profkit.comparison import Change, Point
from profkit.errors import printable
from profkit.units import noun_text, percent_text

__all__ = ["change_sentences", "render_trend_html", "render_trend_text"]

_BAR = 24


def change_sentences(points: Sequence[Point], changes: Sequence[Change], label: str) -> list[str]:
    """Where the number changed, as sentences.

    Args:
        points: The runs with a value.
        changes: Their changes.
        label: What the number is.
    """
    told = []
    for change in changes:
        point = points[change.at]
        share = f" ({_signed(change.after / change.before - 1)})" if change.before else ""
        told.append(
            f"{label} changed with run {point.run} of {point.saved_at[:16].replace('T', ' ')} UTC: "
            f"{change.before:.4g} → {change.after:.4g}{share}"
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
        saved = point.saved_at[:16].replace("T", " ")
        lines.append(f"{point.run:>6}  {saved:<16}  {point.value:>14.4f}  {bar}{mark}".rstrip())
    return "\n".join([*lines, "", *map(printable, change_sentences(points, changes, label))]) + "\n"


def render_trend_html(points: Sequence[Point], changes: Sequence[Change], label: str) -> str:
    """A page with the number over runs, its levels and its changes; it asks nothing of any network."""
    import plotly.graph_objects as go

    shown = html.escape(printable(label))
    runs = [point.run for point in points]
    figure = go.Figure()
    figure.add_scatter(
        x=runs,
        y=[point.value for point in points],
        mode="lines+markers",
        name=shown,
        text=[html.escape(point.saved_at) for point in points],
        hovertemplate="run %{x}<br>%{text}<br>%{y:.4g}<extra></extra>",
    )
    for change in changes:
        figure.add_vline(
            x=runs[change.at],
            line_dash="dash",
            line_color="#c0392b",
            annotation_text=f"run {runs[change.at]}",
        )
    figure.update_layout(
        xaxis_title="run",
        yaxis_title=shown,
        template="plotly_white",
        margin={"t": 30},
        yaxis_rangemode="tozero",
    )
    plot = figure.to_html(full_html=False, include_plotlyjs=True, config={"displaylogo": False})
    told = "".join(
        f"<p>{html.escape(printable(line))}</p>" for line in change_sentences(points, changes, label)
    )
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{shown} · profkit history</title></head>\n"
        f'<body style="font-family:system-ui,sans-serif;max-width:70rem;margin:2rem auto"><h1>{shown}</h1>{told}\n{plot}\n</body></html>\n'
    )


def _signed(share: float) -> str:
    return f"{'+' if share > 0 else '−'}{percent_text(abs(share))}"
