"""A comparison for a terminal."""

from __future__ import annotations

from rich.text import Text

from profkit.errors import printable
from profkit.rendering.comparison_document import ComparisonDocument
from profkit.rendering.comparison_tables import Section, compared_text, sections_of, warning_text
from profkit.rendering.terminal import Terminal, short

__all__ = ["render_comparison_text"]

_STYLES = {"faster": "bold green", "slower": "bold red", "not comparable": "bold yellow"}
_EFFECTS = {"forbids": "bold red", "host cost": "yellow", "weakens": "yellow", "note": "dim"}
_LONGEST_NAME = 56


def render_comparison_text(comparison: ComparisonDocument, *, width: int = 100, color: bool = False) -> str:
    """The comparison as lines of at most ``width`` columns; what differs in the setup comes first.

    Args:
        comparison: What to tell.
        width: Columns of the terminal.
        color: Whether to use ANSI colours.
    """
    console = Terminal(width, color=color)
    console.print(Text(printable(f"before: {compared_text(comparison.before)}"), style="dim"))
    console.print(Text(printable(f"after:  {compared_text(comparison.after)}"), style="dim"))
    for row in comparison.warnings:
        console.print(Text(printable(f"! {warning_text(row)}"), style=_EFFECTS.get(row.effect, "")))
    console.print(Text(printable(comparison.sentence), style=_STYLES.get(comparison.verdict, "bold")))
    for section in sections_of(comparison):
        _print(console, section)
    return console.printed()


def _print(console: Terminal, section: Section) -> None:
    console.heading(section.title, section.note)
    table = console.table(
        *((h.removesuffix(">"), "right" if h.endswith(">") else "left") for h in section.headers)
    )
    for name, *cells in section.rows:
        table.add_row(Text(short(name, _LONGEST_NAME)), *(Text(printable(cell)) for cell in cells))
    console.print_table(table, section.left_out)
