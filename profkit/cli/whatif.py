"""``profkit whatif``: the step replayed with some changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from profkit.cli.options import format_options, plain_step_option

if TYPE_CHECKING:
    from profkit.simulation.answer import WhatIf

__all__ = ["command"]

_FLAGS = {
    "tf32": "Run fp32 matmuls in TF32.",
    "bf16": "Run forward and loss in bf16 with autocast.",
    "fp32": "Compute in fp32 instead of fp64.",
    "aligned": "Pad matrix sizes to multiples of 8.",
    "compile": "Compile the model.",
    "cuda-graphs": "Capture the whole step in a CUDA graph.",
    "fused-optimizer": "Use the fused optimizer.",
    "foreach-optimizer": "Use the foreach optimizer.",
    "set-to-none": "Drop gradients instead of zeroing them.",
    "no-sync": "Remove host synchronisation.",
    "no-allocation": "Allocate no memory from the driver.",
    "pinned": "Copy batches early, from pinned memory.",
    "channels-last": "Keep model and images in channels_last.",
    "fused-attention": "Use scaled_dot_product_attention.",
    "no-checkpointing": "Keep activations instead of recomputing them.",
}

_LIMITS = {
    "host": "the host",
    "device": "the device",
    "loader": "the loader",
    "waiting": "gaps between kernels",
}

_SOURCES = {"estimated": "an estimate", "recorded": "as recorded"}


def _flags(function: Callable[..., None]) -> Callable[..., None]:
    for name, text in reversed(_FLAGS.items()):
        function = click.option(f"--{name}", is_flag=True, help=text)(function)
    return function


@click.command(name="whatif")
@click.argument("file", metavar="FILE")
@_flags
@click.option(
    "--loader-workers", type=click.IntRange(1, 4096), metavar="N", help="Prepare batches in N processes."
)
@click.option("--step", metavar="NAME", help="Name of the ranges that are steps.")
@click.option("--device", type=int, metavar="N", help="Replay only this device.")
@plain_step_option
@format_options("text", "json")
def command(
    file: str,
    loader_workers: int | None,
    step: str | None,
    device: int | None,
    plain_step_ns: int | None,
    format_: str | None,
    **flags: Any,
) -> None:
    """Estimate the step time after some changes, alone and together.

    FILE is an nsys export or report, or a torch.profiler trace. profkit edits the recorded step and replays it, so a
    saving ends where something else becomes the limit. Without a change, all that save at least 1 % are shown.

    \b
    Examples:
      profkit whatif trace.json.gz --tf32 --compile
      profkit whatif report.sqlite --fused-optimizer --cuda-graphs --plain-step 17.5ms
      profkit whatif trace.json --loader-workers 8 --json
    """
    from profkit.api.report import expand
    from profkit.api.run_folder import run_steps
    from profkit.errors import AnalysisError
    from profkit.readers import read
    from profkit.report.assembly import timelines
    from profkit.report.views import Options
    from profkit.simulation.answer import what_if

    chosen = [name for name in _FLAGS if flags[name.replace("-", "_")]]
    files = expand(file)
    options = Options(step_name=step, device=device, plain_step_ns=plain_step_ns, run_steps=run_steps(files))
    views, _ = timelines([read(each) for each in files], options)
    found = what_if(views, chosen, loader_workers=loader_workers)
    if found is None:
        raise AnalysisError(
            file,
            "it has no step with device work to replay",
            "Record a few steps with kernels, and mark them",
        )
    if format_ == "json":
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    click.echo(_text(found))


def _text(found: WhatIf) -> str:
    from profkit.units import duration_text

    known = "" if found.source == "measured" else f" ({_SOURCES[found.source]})"
    lines = [
        f"A step takes {duration_text(found.before_ns)} without the recorder{known}; "
        f"the recorded step took {duration_text(found.recorded_ns)}."
    ]
    for row in found.changes:
        gain = row.speedup
        lines.append(
            f"  {row.name:<28} {duration_text(row.after_ns):>10}   {gain.likely:.2f}x "
            f"({gain.low:.2f}x to {gain.high:.2f}x)   then limited by {_LIMITS[row.limit]}"
        )
    if not found.changes:
        lines.append("  No change would save 1 % of it.")
    return "\n".join(lines)
