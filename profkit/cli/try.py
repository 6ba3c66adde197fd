"""``profkit try``: changes applied to an unchanged program, and measured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import click

from profkit.cli.options import format_options, to_ns
from profkit.cli.streams import echo
from profkit.errors import printable

__all__ = ["command"]


def _names(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


def _to_s(ctx: click.Context, param: click.Parameter, text: str) -> float:
    return (to_ns(ctx, param, text) or 0) / 1e9


@contextmanager
def _progress(budget_s: float) -> Iterator[Callable[[str], None]]:
    """A line for each event; on a terminal what goes on now stays below them, with the time of the budget."""
    if not sys.stderr.isatty():
        yield lambda line: echo(f"profkit: {line}", err=True)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    now = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), now, TimeElapsedColumn(), TextColumn(f"of {timedelta(seconds=budget_s)}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)

        def tell(line: str) -> None:
            progress.console.print(Text(f"profkit: {line}"), soft_wrap=True)
            progress.update(task, description=printable(line.partition(": ")[2]))

        yield tell


@click.command(name="try")
@click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True)
@click.option(
    "--budget",
    default="10m",
    show_default=True,
    metavar="TIME",
    callback=_to_s,
    help="Time for the whole trial.",
)
@click.option(
    "--steps",
    default=20,
    show_default=True,
    type=click.IntRange(min=1),
    help="Steps to time of each side; fewer if they decide.",
)
@click.option(
    "--warmup", default=5, show_default=True, type=click.IntRange(min=2), help="Steps to run first."
)
@click.option("--only", metavar="NAMES", callback=_names, help="Try only these changes: tf32,compile,...")
@click.option("--skip", metavar="NAMES", callback=_names, help="Try all but these.")
@click.option("--keep-going", is_flag=True, help="Continue even if two unchanged runs differ a lot.")
@click.option(
    "--step-by",
    type=click.Choice(["optimizer", "backward", "module", "loader"]),
    help="What ends a step: by default the optimizer, or backward if none.",
)
@click.option("--step-every", default=1, type=click.IntRange(min=1), help="How many of those make a step.")
@click.option(
    "--recording",
    metavar="FILE",
    help="Predict savings by a replay of this recording, and try the largest first.",
)
@click.option(
    "--compare",
    "compared_in",
    metavar="FOLDER",
    help="Record the unchanged step and the kept one into this folder, and compare them.",
)
@click.option("--state", metavar="FILE", help="Keep the state of the trial in this file, and resume from it.")
@click.option("--db", "database", metavar="FILE", help="Add what was predicted and measured to this history.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the trial to this file: a page if it ends in .html, else JSON.",
)
@format_options("text", "json")
def command(
    program: tuple[str, ...],
    budget: float,
    steps: int,
    warmup: int,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    keep_going: bool,
    step_by: str | None,
    step_every: int,
    recording: str | None,
    compared_in: str | None,
    state: str | None,
    database: str | None,
    output: str | None,
    format_: str | None,
) -> None:
    """Apply changes to an unchanged training script, measure each, and keep what helps.

    The program runs in processes of its own, each for some steps, in turns with the unchanged one. What it writes goes
    to a scratch folder. A change is kept if the step is faster beyond the noise and the loss stays.

    \b
    Examples:
      profkit try -- python train.py
      profkit try --budget 90s --only tf32,bf16,compile -- python train.py --epochs 1
      profkit try --recording step.sqlite -o trial.html -- python train.py
      profkit try --format json -o trial.json -- torchrun --nproc-per-node 2 train.py
    """
    from profkit.api.trying import Tried, compared, try_program
    from profkit.trial.document import encode
    from profkit.trial.plan import Plan
    from profkit.trial.running import Program

    plan = Plan(budget, steps, only, skip, keep_going, compared_in)
    tried = Program(command=program, warmup=warmup, step_by=step_by, step_every=step_every)
    with _progress(budget) as tell:
        document = try_program(tried, plan, tell, recording, state)
    found = Tried(document, compared(document, plan))
    if database is not None:
        found.keep(database)
    if output is not None:
        found.save(output)
    echo(encode(document) if format_ == "json" and output is None else str(found))
    if output is not None:
        echo(f"Wrote {output}")
    if found.comparison is not None:
        echo(
            f"\n{found.comparison}\n\nWrote {compared_in}/comparison.html",
            err=format_ == "json" and output is None,
        )
