"""``profkit benchmark``: time a function of a script."""

from __future__ import annotations

import click

from profkit.cli.streams import echo

__all__ = ["command"]


@click.command(name="benchmark")
@click.argument("targets", nargs=-1, required=True, metavar="SCRIPT.py:FUNCTION...")
@click.option(
    "--warmup",
    default=10,
    show_default=True,
    type=click.IntRange(min=0),
    help="Runs before the first timed one.",
)
@click.option("--repeat", default=50, show_default=True, type=click.IntRange(min=1), help="Timed runs.")
def command(targets: tuple[str, ...], warmup: int, repeat: int) -> None:
    """Time functions that take no arguments, and print one line of JSON for each."""
    from profkit.recording.benchmark import benchmark, load_function

    for target in targets:
        result = benchmark(load_function(target), warmup=warmup, repeat=repeat)
        echo(result.json_line())
        for doubt in result.warnings:
            echo(f"profkit: {target}: {doubt}", err=True)
