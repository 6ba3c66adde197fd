"""The option ``--plain-step``, which several commands have."""

from __future__ import annotations

import click

from profkit.errors import ProfkitError
from profkit.units import parse_duration_ns

__all__ = ["plain_step_option"]


def _to_ns(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_duration_ns(text)
    except ProfkitError as error:
        raise click.BadParameter(str(error), ctx, param) from error


# A callback, since click.ParamType takes a type of its value only from 8.4 on.
plain_step_option = click.option(
    "--plain-step",
    "plain_step_ns",
    metavar="TIME",
    callback=_to_ns,
    help="Step time without a profiler, e.g. 38.3ms.",
)
