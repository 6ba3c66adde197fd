"""Comparisons to text, HTML, JSON and Markdown; apart from the reports, so that those need not load it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from profkit.rendering.comparison_csv import render_comparison_csv
from profkit.rendering.comparison_document import ComparisonDocument
from profkit.rendering.comparison_html import render_comparison_html
from profkit.rendering.comparison_json import (
    comparison_schema,
    gate_schema,
    render_comparison_json,
    render_gate_json,
)
from profkit.rendering.comparison_markdown import render_comparison_markdown
from profkit.rendering.comparison_text import render_comparison_text

__all__ = [
    "COMPARISON_RENDERERS",
    "comparison_schema",
    "gate_schema",
    "render_comparison_csv",
    "render_comparison_html",
    "render_comparison_json",
    "render_comparison_markdown",
    "render_comparison_text",
    "render_gate_json",
]

COMPARISON_RENDERERS: Final[dict[str, Callable[[ComparisonDocument], str]]] = {
    "html": render_comparison_html,
    "json": render_comparison_json,
    "md": render_comparison_markdown,
    "text": render_comparison_text,
    "csv": render_comparison_csv,
}
"""The renderers of comparisons by the name of their format."""
