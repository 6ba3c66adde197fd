"""``profkit fit``: whether the step fits into memory after some changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from profkit.cli.options import format_options, memory_option, plain_step_option
from profkit.cli.streams import echo

__all__ = ["command"]


def _to_factor(ctx: click.Context, param: click.Parameter, text: str) -> float | str:
    if text == "max":
        return text
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor <= 1024:
        raise click.BadParameter("write a factor up to 1024, such as 2 or 0.5, or max", ctx, param)
    return factor


@click.command(name="fit")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--batch",
    metavar="K|max",
    default="1",
    callback=_to_factor,
    help="Multiply the batch by K; max: the largest that fits.",
)
@click.option(
    "--sequence",
    type=click.FloatRange(0, 1024, min_open=True),
    default=1.0,
    metavar="K",
    help="The sequence times K.",
)
@click.option("--bf16", is_flag=True, help="Run forward and loss in bf16 with autocast.")
@click.option("--recompute", metavar="all|N|PHASE|MODULE", help="Recompute the activations of these layers.")
@click.option("--fused-attention", is_flag=True, help="Use scaled_dot_product_attention.")
@click.option("--fused-loss", is_flag=True, help="Cross entropy in chunks: no logits are stored.")
@click.option("--optimizer", type=click.Choice(["sgd", "adam", "adam8bit"]), help="Another optimizer.")
@click.option("--fused-optimizer", is_flag=True, help="Use the fused optimizer.")
@click.option("--ranks", type=click.IntRange(1, 65536), default=1, metavar="N", help="Shard over N ranks.")
@click.option("--shard", type=click.Choice(["zero1", "zero2", "zero3"]), help="What to shard over --ranks.")
@click.option(
    "--accumulate",
    type=click.IntRange(1, 65536),
    default=1,
    metavar="N",
    help="Split the batch into N parts.",
)
@click.option("--keep-gradients", is_flag=True, help="zero_grad(set_to_none=False).")
@click.option("--offload-optimizer", is_flag=True, help="Keep the optimizer's state on the host.")
@click.option("--inference", is_flag=True, help="The forward pass alone.")
@memory_option
@plain_step_option
@click.option("-o", "--output", metavar="FILE", help="Write the answer here; - is standard output.")
@format_options("json", "text")
def command(files: tuple[str, ...], output: str | None, format_: str | None, **asked: Any) -> None:
    """Does it fit? Memory and time of the step after some changes.

    FILE is a run folder, or a memory snapshot and, for the time, the trace of the same steps. profkit changes the
    recorded blocks and plays the allocator again. It says that the step fits only when the upper end does.

    \b
    Examples:
      profkit fit runs/today --batch 2
      profkit fit snapshot.pickle trace.json.gz --optimizer adam8bit --memory 24GB
      profkit fit runs/today --batch max --memory 40GB
    """
    if (asked["shard"] is None) != (asked["ranks"] == 1):
        raise click.UsageError("--shard and --ranks N (2 or more) belong together")
    from profkit.api import refuse_input, write_whole
    from profkit.api.fitting import fit
    from profkit.rendering.fit import render_fit_json, render_fit_text

    found = fit(files, **asked)
    text = render_fit_json(found) if _json(format_, output) else render_fit_text(found)
    if output is None or output == "-":
        echo(text)
        return
    target = Path(output)
    refuse_input(target, files)
    write_whole(target, text + "\n")
    echo(f"Wrote {target}", err=True)


def _json(format_: str | None, output: str | None) -> bool:
    return format_ == "json" or (format_ is None and bool(output) and str(output).endswith(".json"))
