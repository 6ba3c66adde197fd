"""``profkit compare``: two recordings to what changed between them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from profkit.cli.options import device_option, format_options, plain_steps_option, step_option
from profkit.cli.streams import echo, echo_document

__all__ = ["command"]


@click.command(name="compare")
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option(
    "--before",
    "more_before",
    multiple=True,
    metavar="FILE",
    help="Another recording of BEFORE; may be repeated.",
)
@click.option(
    "--after",
    "more_after",
    multiple=True,
    metavar="FILE",
    help="Another recording of AFTER; may be repeated.",
)
@click.option("-o", "--output", metavar="FILE", help="Write the comparison here; - is standard output.")
@format_options("html", "json", "md", "text", "csv")
@step_option
@device_option
@plain_steps_option
def command(
    before: str,
    after: str,
    more_before: tuple[str, ...],
    more_after: tuple[str, ...],
    output: str | None,
    format_: str | None,
    step: str | None,
    device: int | None,
    plain_step_ns: tuple[int, int] | None,
) -> None:
    """Compare two recordings: did the step become faster, and why?

    BEFORE and AFTER are recordings of any format, folders of recordings, saved reports (JSON) or runs of a
    history database (profkit.db#12). More recordings of the same step show how much it varies by chance.

    \b
    Examples:
      profkit compare before.sqlite after.sqlite
      profkit compare main.json branch.sqlite --after branch2.sqlite
      profkit compare profkit.db#main report.json --format md -o comment.md
    """
    from profkit.api import refuse_input, write_whole
    from profkit.api.comparing import compare
    from profkit.rendering.comparisons import COMPARISON_RENDERERS, render_comparison_text
    from profkit.rendering.formats import format_of

    chosen = format_ or "text"
    if output and output != "-":
        chosen = format_of(output, format_, tuple(COMPARISON_RENDERERS))
    sides = [before, *more_before], [after, *more_after]
    report = compare(*sides, step=step, device=device, plain_step_ns=plain_step_ns)
    if output is None or output == "-":
        if chosen == "text":
            echo_document(render_comparison_text(report.comparison, color=sys.stdout.isatty()), "text")
        else:
            echo_document(report.render(chosen), chosen)
        return
    target = Path(output)
    refuse_input(target, [source for side in sides for source in side])
    write_whole(target, report.render(chosen))
    echo(f"{report.comparison.sentence}\nWrote {target}", err=True)
