"""Results to text, HTML, JSON, CSV and Markdown. Every renderer returns a string and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from profkit.analysis.comparison import Comparison
from profkit.analysis.result import Result
from profkit.rendering.comparison_html import render_comparison_html
from profkit.rendering.comparison_json import comparison_schema, render_comparison_json
from profkit.rendering.comparison_markdown import render_comparison_markdown
from profkit.rendering.comparison_text import render_comparison_text
from profkit.rendering.html import render_html
from profkit.rendering.markdown import render_markdown
from profkit.rendering.report_json import render_json, report_schema
from profkit.rendering.table_csv import render_csv
from profkit.rendering.text import render_text

__all__ = [
    "COMPARISON_RENDERERS",
    "RENDERERS",
    "Renderer",
    "comparison_schema",
    "render_comparison_html",
    "render_comparison_json",
    "render_comparison_markdown",
    "render_comparison_text",
    "render_csv",
    "render_html",
    "render_json",
    "render_markdown",
    "render_text",
    "report_schema",
]

Renderer = Callable[[Result], str]

RENDERERS: Final[dict[str, Renderer]] = {
    "html": render_html,
    "json": render_json,
    "md": render_markdown,
    "text": render_text,
    "csv": render_csv,
}
"""The renderers by the name of their format, as ``--format`` takes it."""

COMPARISON_RENDERERS: Final[dict[str, Callable[[Comparison], str]]] = {
    "html": render_comparison_html,
    "json": render_comparison_json,
    "md": render_comparison_markdown,
    "text": render_comparison_text,
}
"""The renderers of comparisons by the name of their format."""
