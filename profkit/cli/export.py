"""``profkit export``: recordings to a timeline for Perfetto, or to a table of all device operations."""

from __future__ import annotations

from pathlib import Path

import click

from profkit.cli.streams import echo

__all__ = ["command"]


@click.command(name="export")
@click.argument("files", nargs=-1, required=True, metavar="FILE|FOLDER...")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="Write here: a timeline, or with .csv or .parquet a table.",
)
@click.option("--step", metavar="NAME", help="Name of the ranges that are steps.")
def command(files: tuple[str, ...], output: str, step: str | None) -> None:
    """Export phases, kernels, idle causes, launch queue and memory as a timeline, or every device operation as a table.

    \b
    Example:
      profkit export report.sqlite -o step.perfetto.json.gz    # open it at ui.perfetto.dev
      profkit export report.sqlite -o launches.parquet         # or .csv: a row a kernel, copy and memset
      profkit export profkit.db#12 -o report.html              # a saved run has no events: its report
    """
    from profkit.api import export, refuse_input
    from profkit.api.comparing import load, saved_run_of

    target = Path(output)
    if len(files) == 1 and saved_run_of(files[0]) is not None:
        refuse_input(target, files)
        load(files[0]).save(target)
    else:
        export(files, target, step=step)
    echo(f"Wrote {target}", err=True)
