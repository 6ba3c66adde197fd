"""``profkit record``: run a program under a recorder."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from profkit.errors import RecordingError

__all__ = ["command"]


class _Modes(click.Group):
    """Without a mode: nsys where it is installed, else torch."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [_usual_mode(), *args]
        return super().parse_args(ctx, args)


def _usual_mode() -> str:
    from profkit.recording.nsys_command import find_nsys

    try:
        find_nsys()
    except RecordingError:
        return "torch"
    return "nsys"


@click.group(name="record", cls=_Modes)
def command() -> None:
    """Record a program: profkit record [nsys|torch|memory] [OPTIONS] -- python train.py ...

    The program needs no changes. Phases that it marks with profkit.phase are recorded too.
    """


def _shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    function = click.argument("program", nargs=-1, type=click.UNPROCESSED, required=True)(function)
    function = click.option("--analyze", is_flag=True, help="Analyze the recording afterwards.")(function)
    return click.option(
        "-o",
        "--output",
        default="runs/profkit",
        show_default=True,
        metavar="FOLDER",
        help="Write the files to this folder.",
    )(function)


@command.command()
@_shared_options
@click.option(
    "--capture", is_flag=True, help="Record only the steps that profkit.record chooses in the program."
)
@click.option("--gpu-metrics", is_flag=True, help="Sample the GPU's hardware counters, if permitted.")
@click.option("--graph-nodes", is_flag=True, help="Record the kernels within CUDA graphs.")
@click.pass_context
def nsys(
    ctx: click.Context,
    output: str,
    program: tuple[str, ...],
    analyze: bool,
    capture: bool,
    gpu_metrics: bool,
    graph_nodes: bool,
) -> None:
    """Record any program with Nsight Systems, and export SQLite."""
    from profkit.recording.nsys_command import NsysRun, record_with_nsys

    run = NsysRun(capture=capture, gpu_metrics=gpu_metrics, graph_nodes=graph_nodes)
    try:
        code, files = record_with_nsys(run, Path(output), list(program))
    finally:
        for line in run.said:
            click.echo(f"profkit: {line}", err=True)
    _finish(ctx, code, files, analyze)


@command.command()
@_shared_options
@click.option(
    "--wait",
    default=2,
    show_default=True,
    help="Steps to run first without the profiler, timed for comparison.",
)
@click.option("--warmup", default=2, show_default=True, help="Steps with the profiler that are discarded.")
@click.option(
    "--steps", default=3, show_default=True, help="Steps to record. A step ends with optimizer.step()."
)
@click.option("--whole", is_flag=True, help="Record everything, e.g. for programs without an optimizer.")
@click.option("--memory", is_flag=True, help="Record the CUDA memory history too.")
@click.option("--stacks", is_flag=True, help="Record Python stacks (slow).")
@click.option(
    "--shapes/--no-shapes", default=True, show_default=True, help="Record the input shapes of operators."
)
@click.pass_context
def torch(
    ctx: click.Context,
    output: str,
    program: tuple[str, ...],
    analyze: bool,
    wait: int,
    warmup: int,
    steps: int,
    whole: bool,
    memory: bool,
    stacks: bool,
    shapes: bool,
) -> None:
    """Record a Python script with torch.profiler."""
    options = {"wait": wait, "warmup": warmup, "steps": None if whole else steps}
    _run_recorded(
        ctx, output, program, analyze, options | {"memory": memory, "stacks": stacks, "shapes": shapes}
    )


@command.command()
@_shared_options
@click.option("--stacks", is_flag=True, help="Keep C++ frames too.")
@click.pass_context
def memory(ctx: click.Context, output: str, program: tuple[str, ...], analyze: bool, stacks: bool) -> None:
    """Record the CUDA memory history of a Python script, even if it runs out of memory."""
    options = {"steps": None, "trace": False, "memory": True, "stacks": stacks}
    _run_recorded(ctx, output, program, analyze, options)


def _run_recorded(
    ctx: click.Context, output: str, program: tuple[str, ...], analyze: bool, options: dict[str, Any]
) -> None:
    from profkit.recording.run_script import recorded_command

    folder = Path(output)
    before = set(_recordings(folder))
    line = recorded_command(list(program), {"folder": output, **options})
    click.echo(f"profkit: {' '.join(line)}", err=True)
    code = subprocess.run(line, check=False).returncode
    _finish(ctx, code, sorted(set(_recordings(folder)) - before), analyze)


def _recordings(folder: Path) -> list[Path]:
    """Recordings of this folder and of those beside it, where a later run goes (``profkit-2``)."""
    parents = [folder, *folder.parent.glob(f"{folder.name}-*")]
    patterns = ("trace*.json.gz", "trace*.json", "memory*.pickle")
    return [path for parent in parents for pattern in patterns for path in parent.glob(pattern)]


def _finish(ctx: click.Context, code: int, files: list[Path], analyze: bool) -> None:
    for path in files:
        click.echo(f"Wrote {path}")
    if analyze and files:
        from profkit import api

        report = api.analyze(files)
        page = files[0].parent / "report.profkit.html"
        report.save(page)
        click.echo(f"Wrote {page}")
    elif files:
        click.echo(f"Next: profkit analyze {files[0] if len(files) == 1 else files[0].parent}")
    else:
        click.echo("profkit: nothing was recorded", err=True)
    ctx.exit(code if code >= 0 else 128 - code)
