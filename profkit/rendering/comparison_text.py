"""A comparison for a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profkit.errors import printable
from profkit.rendering.comparison_document import ComparisonDocument
from profkit.rendering.comparison_tables import Section, compared_text, sections_of, warning_text
from profkit.units import count_text

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
    out = io.StringIO()
    console = Console(
        file=out, width=max(width, 40), force_terminal=color, color_system="256" if color else None,
        highlight=False, markup=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    console.print(Text(printable(f"before: {compared_text(comparison.before)}"), style="dim"))
    console.print(Text(printable(f"after:  {compared_text(comparison.after)}"), style="dim"))
    for row in comparison.warnings:
        console.print(Text(printable(f"! {warning_text(row)}"), style=_EFFECTS.get(row.effect, "")))
    console.print(Text(printable(comparison.sentence), style=_STYLES.get(comparison.verdict, "bold")))
    for section in sections_of(comparison):
        _print(console, section)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _print(console: Console, section: Section) -> None:
    heading = Text(f"\n{section.title}", style="bold")
    heading.append(f"  {section.note}", style="not bold dim")
    console.print(heading)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for header in section.headers:
        table.add_column(
            header.removesuffix(">"),
            justify="right" if header.endswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    for name, *cells in section.rows:
        table.add_row(Text(_short(name)), *(Text(printable(cell)) for cell in cells))
    taken = sum(2 + max(map(cell_len, column)) for column in _texts(section))
    table.columns[0].max_width = max(12, console.width - 2 - taken)
    console.print(Padding(table, (0, 0, 0, 2)))
    if section.left_out:
        console.print(Text(f"  and {count_text(section.left_out)} more", style="dim"))


def _texts(section: Section) -> Iterator[list[str]]:
    """The texts of each column but the first."""
    for at, header in enumerate(section.headers[1:], 1):
        yield [header.removesuffix(">"), *(printable(row[at]) for row in section.rows)]


def _short(name: str) -> str:
    text = printable(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 13]}…{text[-12:]}"
