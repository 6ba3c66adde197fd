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
        """The title of a section, with a note beside it, which may hold names from a file."""
        line = Text(f"\n{title}", style="bold")
        line.append(f"  {printable(note)}" if note else "", style="not bold dim")
        self.print(line)

    @staticmethod
    def table(*columns: tuple[str, JustifyMethod]) -> Table:
        """An empty table with these heads."""
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
        for title, justify in columns:
            table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis")
        return table

    def print_table(self, table: Table, left_out: int = 0, noun: str = "row") -> None:
        """A table whose text takes what the numbers leave, the longest cut first, and how many rows it left out."""
        wide = {
            i: max(cell_len(_plain(c)) for c in (each.header, *each.cells))
            for i, each in enumerate(table.columns)
        }
        text = sorted((i for i in wide if i == 0 or table.columns[i].justify == "left"), key=wide.__getitem__)
        left = self.width - 2 * len(wide) - sum(wide[i] for i in wide if i not in text)
        for taken, i in enumerate(text):
            table.columns[i].max_width = min(wide[i], max(12, left // (len(text) - taken)))
            left -= min(wide[i], left // (len(text) - taken))
        self.print(Padding(table, (0, 0, 0, 2)))
        if left_out > 0:
            self.print(Text(f"  and {noun_text(left_out, noun)} more", style="dim"))


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def short(text: str, limit: int) -> str:
    """Text from a file as one line without control characters, cut in its middle."""
    text = printable(text)
    return text if len(text) <= limit else f"{text[: limit - 13]}…{text[-12:]}"
