"""A comparison as one HTML page without scripts, which needs no network."""

from __future__ import annotations

import re
from collections.abc import Sequence

from profkit.comparison.rows import PartChange
from profkit.errors import printable
from profkit.rendering.comparison_document import ComparisonDocument
from profkit.rendering.comparison_tables import compared_text, sections_of, warning_text
from profkit.rendering.sentences.comparison import part_label, signed_text
from profkit.rendering.small_page import small_page

__all__ = ["render_comparison_html"]


def render_comparison_html(comparison: ComparisonDocument) -> str:
    """The page: setup differences, the verdict, a bar for each part, and the tables. Names are text."""
    return small_page(
        "compare.html.j2",
        {
            "comparison": comparison,
            "headline": _headline(comparison.sentence),
            "warnings": [
                (row.effect, warning_text(row))
                for row in comparison.warnings
                if row.message not in comparison.sentence
            ],
            "before": compared_text(comparison.before),
            "after": compared_text(comparison.after),
            "bars": _bars(comparison.parts),
            "sections": list(sections_of(comparison)),
            "clip": _clip,
        },
    )


def _headline(sentence: str) -> tuple[str, str]:
    """The verdict with its times, and what follows: a reason, an explanation, remarks."""
    found = re.match(r"(Not comparable): (.*)", sentence) or re.match(r"(.*?\))(?:; |\. ?)(.*)", sentence)
    first, rest = found.groups() if found else (sentence, "")
    return first, rest[:1].upper() + rest[1:]


def _bars(parts: Sequence[PartChange]) -> list[dict[str, str | int | bool]]:
    """The parts as bars left and right of a middle line, in thousandths of the widest change."""
    widest = max((abs(row.delta_ns) for row in parts), default=0)
    shown = [row for row in parts if widest and abs(row.delta_ns) * 200 >= widest]
    bars: list[dict[str, str | int | bool]] = []
    for row in shown[:16]:
        length = round(480 * abs(row.delta_ns) / widest)
        bars.append(
            {
                "label": part_label(row.name, row.kind),
                "change": signed_text(row.delta_ns),
                "length": max(length, 1),
                "at": 500 if row.delta_ns > 0 else 500 - max(length, 1),
                "more": row.delta_ns > 0,
            }
        )
    return bars


def _clip(text: str, length: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= length else f"{shown[: length - 13]}…{shown[-12:]}"
