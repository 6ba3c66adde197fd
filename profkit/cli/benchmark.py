"""``profkit benchmark``: time functions of a script, over a sweep of sizes."""

from __future__ import annotations

import itertools
import json
from typing import Any

import click

__all__ = ["command"]


def _values(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> list[tuple[str, list[Any]]]:
    """Each ``NAME=VALUE,VALUE`` as the name with its values."""
    found = []
    for text in given:
        name, equals, values = text.partition("=")
        if not name.isidentifier() or not equals or not values:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE,VALUE", ctx, param)
        found.append((name, [_value(each.strip()) for each in values.split(",")]))
    return found


def _value(text: str) -> Any:
    """A number or a truth value as JSON writes it, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@click.command(name="benchmark")
@click.argument("targets", nargs=-1, required=True, metavar="SCRIPT.py:FUNCTION...")
@click.option(
    "--set",
    "sweep",
    multiple=True,
    metavar="NAME=VALUE,...",
    callback=_values,
    help="Call it with this parameter; several values make a sweep, and several options all combinations.",
)
@click.option("--backward", is_flag=True, help="Time the backward pass of what it returns separately, too.")
@click.option(
    "--warmup",
    default=10,
    show_default=True,
    type=click.IntRange(min=0),
    help="Runs before the first timed one.",
)
@click.option("--repeat", default=50, show_default=True, type=click.IntRange(min=1), help="Timed runs.")
def command(
    targets: tuple[str, ...], sweep: list[tuple[str, list[Any]]], backward: bool, warmup: int, repeat: int
) -> None:
    """Time functions, and print one line of JSON for each, with GPU, torch and git revision.

    A function with parameters may prepare its inputs and return a function without any: then that is timed.

    \b
    Examples:
      profkit benchmark attention.py:attention
      profkit benchmark attention.py:attention --set length=512,1024 --set width=64,128 --backward
    """
    from profkit.recording.benchmark import benchmark, load_function

    names = [name for name, _ in sweep]
    for target in targets:
        function = load_function(target)
        for values in itertools.product(*(values for _, values in sweep)):
            parameters = dict(zip(names, values, strict=True))
            result = benchmark(
                function, warmup=warmup, repeat=repeat, parameters=parameters, backward=backward
            )
            click.echo(result.json_line())
            shown = "".join(f" {name}={value}" for name, value in parameters.items())
            for doubt in result.warnings:
                click.echo(f"profkit: {target}{shown}: {doubt}", err=True)
