"""``profkit whatif``: the step replayed with some changes."""

from __future__ import annotations

from functools import cache
from typing import Any

import click

from profkit.cli.options import format_options, plain_step_option
from profkit.cli.streams import echo

__all__ = ["command"]


class _WithChanges(click.Command):
    """A command with a flag for each change of the registry, which is loaded when the command is used."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*_flags(), *super().get_params(ctx)]


@cache
def _flags() -> tuple[click.Option, ...]:
    from profkit.simulation import CHANGES

    return tuple(click.Option([f"--{name}"], is_flag=True, help=each.help) for name, each in CHANGES.items())


@click.command(name="whatif", cls=_WithChanges)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--loader-workers", type=click.IntRange(1, 4096), metavar="N", help="Prepare batches in N processes."
)
@click.option("--on", metavar="GPU", help="Run on another GPU: H200, L4, ... (see profkit hardware).")
@click.option("--step", metavar="NAME", help="Name of the ranges that are steps.")
@click.option("--device", type=int, metavar="N", help="Replay only this device.")
@plain_step_option
@format_options("text", "json")
def command(
    files: tuple[str, ...],
    loader_workers: int | None,
    on: str | None,
    step: str | None,
    device: int | None,
    plain_step_ns: int | None,
    format_: str | None,
    **flags: Any,
) -> None:
    """Estimate the step time after some changes, alone and together.

    FILE is a run folder, an nsys export or report, or a torch.profiler trace. Give the files of all ranks of a
    job: one alone does not tell a collective from waiting for it. profkit edits the recorded step and replays it, so a
    saving ends where something else becomes the limit. Without a change, all that save at least 1 % are shown, and
    why the others cannot be made.

    \b
    Examples:
      profkit whatif trace.json.gz --tf32 --compile
      profkit whatif report.sqlite --fused-optimizer --cuda-graphs --plain-step 17.5ms
      profkit whatif trace.json --loader-workers 8 --json
      profkit whatif trace.json.gz --on H200 --bf16
    """
    from profkit.api.what_if import what_if
    from profkit.simulation import CHANGES

    chosen = [name for name in CHANGES if flags[name.replace("-", "_")]]
    found = what_if(
        files,
        chosen,
        loader_workers=loader_workers,
        on=on,
        step=step,
        device=device,
        plain_step_ns=plain_step_ns,
    )
    if format_ == "json":
        import msgspec

        from profkit.rendering.report_json import ascii_json

        echo(ascii_json(msgspec.json.format(msgspec.json.encode(found), indent=2).decode()))
        return
    echo(str(found))
