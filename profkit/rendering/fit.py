"""The answer of `profkit.fit` as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from profkit.model.report_fit import Fit
from profkit.model.rows import Interval
from profkit.rendering.report_json import ascii_json
from profkit.rendering.sentences.fit import changes_text, cheapest_sentence, fit_note, fits_sentence
from profkit.units import bytes_text, duration_text

__all__ = ["render_fit_json", "render_fit_text"]


def render_fit_json(found: Fit) -> str:
    """``profkit.fit/1``."""
    return ascii_json(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


def render_fit_text(found: Fit) -> str:
    """What changes, what is then allocated and reserved, the time, and whether it fits."""
    before, after = found.before, found.after
    lines = [
        changes_text(found),
        _line("Peak allocated", bytes_text, before.peak_bytes, after.peak_bytes),
        _line("Reserved", bytes_text, before.reserved_bytes, after.reserved_bytes),
    ]
    if after.step_ns is not None:
        lines.append(_line("Step", duration_text, before.step_ns, after.step_ns))
    lines += [
        f"    {row.category.replace('_', ' '):<16} {bytes_text(row.before_bytes):>10}  {bytes_text(row.after_bytes):>10}"
        for row in found.by_category
    ]
    lines += [fits_sentence(found), cheapest_sentence(found), *map(fit_note, found.notes)]
    return "\n".join(filter(None, lines))


def _line(name: str, said: Callable[[float | None], str], before: int | None, after: Interval) -> str:
    between = f"({said(after.low)} to {said(after.high)})"
    return f"  {name:<18} {said(before):>10}  {said(after.likely):>10}  {between}"
