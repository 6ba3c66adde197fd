"""A comparison as Markdown, for a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from profkit.rendering.comparison_document import ComparisonDocument
from profkit.rendering.comparison_tables import Section, compared_text, sections_of, warning_text
from profkit.rendering.markdown import as_code, as_prose, as_table

__all__ = ["render_comparison_markdown"]

_MARKS = {"faster": "🟢 ", "slower": "🔴 ", "not comparable": "⚠️ "}
_OPEN = 1
"""Sections that are shown at once; a pull request's comment folds the others."""


def render_comparison_markdown(comparison: ComparisonDocument) -> str:
    """The comparison as GitHub-flavoured Markdown; what differs in the setup comes first."""
    return "\n\n".join(_blocks(comparison)) + "\n"


def _blocks(comparison: ComparisonDocument) -> Iterator[str]:
    yield f"## {_MARKS.get(comparison.verdict, '')}{as_prose(comparison.sentence)}"
    if comparison.warnings:
        yield "\n".join(f"> - {as_prose(warning_text(row))}" for row in comparison.warnings)
    yield f"before: {as_code(compared_text(comparison.before), 200)}  \nafter: {as_code(compared_text(comparison.after), 200)}"
    for number, section in enumerate(sections_of(comparison)):
        if number < _OPEN:
            yield f"### {section.title} ({section.note})"
            yield from _table(section)
        else:
            yield f"<details><summary>{section.title} ({section.note})</summary>"
            yield from _table(section)
            yield "</details>"


def _table(section: Section) -> Iterator[str]:
    # Only the first column holds text from files; in the others nothing needs escaping.
    rows = [[as_code(row[0]) if section.names else as_prose(row[0]), *row[1:]] for row in section.rows]
    yield from as_table(section.headers, rows, len(rows) + section.left_out)
