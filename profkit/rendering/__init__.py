"""Results to text, HTML, JSON, CSV and Markdown. Every renderer returns a string and writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from profkit.rendering.document import Document
from profkit.rendering.html import render_html
from profkit.rendering.markdown import render_markdown
from profkit.rendering.report_json import render_json
from profkit.rendering.schema import report_schema
from profkit.rendering.table_csv import render_csv
from profkit.rendering.text import render_text

__all__ = [
    "RENDERERS",
    "Renderer",
    "render_csv",
    "render_html",
    "render_json",
    "render_markdown",
    "render_text",
    "report_schema",
]

Renderer = Callable[[Document], str]

RENDERERS: Final[dict[str, Renderer]] = {
    "html": render_html,
    "json": render_json,
    "md": render_markdown,
    "text": render_text,
    "csv": render_csv,
}
"""The renderers by the name of their format, as ``--format`` takes it."""
