"""``profkit show``: a saved run or report as a report again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from profkit.cli.options import format_options
from profkit.cli.streams import echo, echo_document

__all__ = ["command"]


@click.command(name="show")
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="Write the report here; - is standard output.")
@format_options("html", "json", "md", "text", "csv")
def command(run: str, output: str | None, format_: str | None) -> None:
    """Show a saved run or report again.

    \b
    Examples:
      profkit show profkit.db#12
      profkit show profkit.db#main -o report.html
      profkit show report.json --format md
    """
    from profkit.api import refuse_input, write_whole
    from profkit.api.comparing import load
    from profkit.rendering import render_text
    from profkit.rendering.formats import format_of

    chosen = format_of(output, format_) if output and output != "-" else format_ or "text"
    report = load(run)
    if output is None or output == "-":
        text = (
            render_text(report.document, color=sys.stdout.isatty())
            if chosen == "text"
            else report.render(chosen)
        )
        echo_document(text, chosen)
        return
    target = Path(output)
    refuse_input(target, [run])
    write_whole(target, report.render(chosen))
    echo(f"Wrote {target}", err=True)
