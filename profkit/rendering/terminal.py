"""What a terminal is written with: headings and tables of a console that keeps what it prints."""

from __future__ import annotations

import io

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profkit.errors import printable
from profkit.units import noun_text

__all__ = ["Terminal", "short"]


class Terminal(Console):
    """Lines of at most so many columns, kept as text."""

    def __init__(self, width: int, *, color: bool) -> None:
        self._out = io.StringIO()
        super().__init__(
            file=self._out, width=max(width, 40), force_terminal=color, color_system="256" if color else None,
            highlight=False, markup=False, emoji=False, legacy_windows=False,
            force_jupyter=False,  # within a notebook, too, lines are kept and not shown
        )  # fmt: skip

    def printed(self) -> str:
        """All lines so far."""
        return "\n".join(line.rstrip() for line in self._out.getvalue().splitlines()) + "\n"

    def heading(self, title: str, note: str) -> None:
        """The title of a section, with a note beside it."""
        line = Text(f"\n{title}", style="bold")
        line.append(f"  {note}" if note else "", style="not bold dim")
        self.print(line)

    @staticmethod
    def table(*columns: tuple[str, JustifyMethod]) -> Table:
        """An empty table with these heads."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for title, justify in columns:
            table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis")
        return table

    def print_table(self, table: Table, left_out: int = 0, noun: str = "row") -> None:
        """A table whose first column takes what the others leave, and how many rows it left out."""
        first, *others = table.columns
        taken = sum(
            2 + max(cell_len(_plain(cell)) for cell in (column.header, *column.cells)) for column in others
        )
        first.max_width = max(12, self.width - 2 - taken)
        self.print(Padding(table, (0, 0, 0, 2)))
        if left_out > 0:
            self.print(Text(f"  and {noun_text(left_out, noun)} more", style="dim"))


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def short(text: str, limit: int) -> str:
    """Text from a file as one line without control characters, cut in its middle."""
    text = printable(text)
    return text if len(text) <= limit else f"{text[: limit - 13]}…{text[-12:]}"
