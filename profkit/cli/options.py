"""The options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import click

from profkit.errors import ProfkitError
from profkit.units import parse_bytes, parse_duration_ns

__all__ = [
    "device_option",
    "format_options",
    "memory_option",
    "phase_option",
    "plain_step_option",
    "plain_steps_option",
    "step_option",
    "to_gpu",
    "to_ns",
]

F = TypeVar("F", bound=Callable[..., object])
_JSON: Final = "profkit.json"


def format_options(*formats: str) -> Callable[[F], F]:
    """``--format`` with these choices, as ``format_``, and its short form ``--json``; None where neither is given."""

    def decorated(function: F) -> F:
        function = click.option(
            "--json",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_remember_json,
            help="Short for --format json.",
        )(function)
        choice = click.Choice(formats)
        return click.option("--format", "format_", type=choice, callback=_or_json, help="Format.")(function)

    return decorated


def _remember_json(ctx: click.Context, _: click.Parameter, given: bool) -> None:
    ctx.meta[_JSON] = given


def _or_json(ctx: click.Context, param: click.Parameter, given: str | None) -> str | None:
    if not ctx.meta.get(_JSON):
        return given
    if given not in (None, "json"):
        raise click.BadParameter("--json asks for another format", ctx, param)
    return "json"


def to_ns(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """What click calls for an option that is a time: its nanoseconds."""
    try:
        return None if text is None else parse_duration_ns(text)
    except ProfkitError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def to_gpu(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    """What click calls for the peaks of a GPU: wrong usage where it is neither a GPU nor a file."""
    from profkit.hardware import stated_gpu

    if text is not None and not Path(text).is_file():  # a file is read later: what is wrong in it is no usage
        try:
            stated_gpu(text)
        except ProfkitError as error:
            raise click.BadParameter(str(error), ctx, param) from error
    return text


def _to_bytes(ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else parse_bytes(text)
    except ProfkitError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def _to_pair(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> tuple[int, int] | None:
    times = [time for text in texts if (time := to_ns(ctx, param, text)) is not None]
    if len(times) > 2:
        raise click.BadParameter("give it once for both sides, or twice: before, then after", ctx, param)
    return (times[0], times[-1]) if times else None


# A callback, since click.ParamType takes a type of its value only from 8.4 on.
plain_step_option = click.option(
    "--plain-step",
    "plain_step_ns",
    metavar="TIME",
    callback=to_ns,
    help="Step time without a profiler, e.g. 38.3ms.",
)
plain_steps_option = click.option(
    "--plain-step",
    "plain_step_ns",
    metavar="TIME",
    multiple=True,
    callback=_to_pair,
    help="Step time without a profiler, e.g. 38.3ms: once for both sides, or twice, before and after.",
)
memory_option = click.option(
    "--memory",
    "memory_bytes",
    metavar="SIZE",
    callback=_to_bytes,
    help="Memory that it has to fit into, e.g. 24GB.",
)
step_option = click.option("--step", metavar="NAME", help="Name of the ranges that are steps.")
phase_option = click.option(
    "--phase", metavar="NAME", help="Show only this phase and what lies in it: forward, or forward/loss."
)
device_option = click.option("--device", type=int, metavar="N", help="Show only this device of the report.")
