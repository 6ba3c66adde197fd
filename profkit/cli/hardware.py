"""``profkit hardware``: the GPUs that are known, and measuring your own."""

from __future__ import annotations

from pathlib import Path

import click

from profkit.cli.streams import echo
from profkit.hardware import Gpu, all_gpus, find_gpu, keep_calibration
from profkit.units import rate_text

__all__ = ["command"]

_COLUMNS = ("bf16", "fp16", "tf32", "fp32", "fp8")


@click.group(invoke_without_command=True)
@click.option("--name", metavar="TEXT", help="Show only the GPU of this name, as recordings write it.")
@click.pass_context
def command(context: click.Context, name: str | None) -> None:
    """List the peak rates of known GPUs, or measure your own.

    Rates are dense, with fp32 accumulation, in FLOP/s.
    """
    if context.invoked_subcommand is not None:
        return
    if name is None:
        echo(_table(all_gpus()))
        return
    found = find_gpu(name)
    if found is None:
        raise click.ClickException(f"{name}: unknown GPU. Measure it: profkit hardware calibrate")
    echo(_gpu_text(found))


@command.command()
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the result to this file instead of keeping it for the analyzer.",
)
def calibrate(output: Path | None) -> None:
    """Measure this machine's GPU and keep the result for the analyzer.

    Measures copy bandwidth, matrix rates by type, the fixed time of a kernel (To) and the latency of a full
    queue (Q), for about half a minute.
    """
    from profkit.recording.calibration import measure_gpu

    measured = measure_gpu(lambda what: echo(f"measuring {what} ...", err=True))
    path = keep_calibration(measured, output)
    echo(_gpu_text(measured))
    echo(f"Kept in {path}")


def _table(gpus: list[Gpu]) -> str:
    width = max(len(gpu.name) for gpu in gpus)
    lines = [" ".join([f"{'GPU':{width}}", f"{'memory':>10}", *(f"{column:>8}" for column in _COLUMNS)])]
    for gpu in gpus:
        best = gpu.best_peaks()
        rates = [_short(best.get(column)) for column in _COLUMNS]
        lines.append(
            " ".join(
                [
                    f"{gpu.name:{width}}",
                    f"{rate_text(gpu.bandwidth_bytes_per_s, 'B/s'):>10}",
                    *(f"{r:>8}" for r in rates),
                ]
            )
        )
    return "\n".join(lines)


def _short(rate: float | None) -> str:
    return rate_text(rate, "").rstrip()


def _gpu_text(gpu: Gpu) -> str:
    lines = [gpu.name, f"  memory     {rate_text(gpu.bandwidth_bytes_per_s, 'B/s')}"]
    lines += [f"  {dtype:10} {rate_text(rate, 'FLOP/s')}" for dtype, rate in sorted(gpu.best_peaks().items())]
    lines += [f"  To         {gpu.overhead_ns:.0f} ns", f"  Q          {gpu.queue_ns:.0f} ns"]
    return "\n".join([*lines, f"  source     {gpu.source}"])
