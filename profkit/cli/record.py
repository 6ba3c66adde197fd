"""``profkit record``: run a program under a recorder."""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from profkit.cli.streams import echo
from profkit.errors import RecordingError
from profkit.recording.launchers import RUNNER

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
    """Record a program: profkit record [nsys|torch|memory|numerics] [OPTIONS] -- python train.py ...

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
@click.option(
    "--phases/--no-phases",
    default=True,
    show_default=True,
    help="Mark the phases and steps of a Python program, unless --capture leaves that to it.",
)
@click.option("--python", "python_", is_flag=True, help="Sample Python's call stacks: what a slow host does.")
@click.option(
    "-t",
    "--trace",
    default="cuda,nvtx",
    show_default=True,
    metavar="APIS",
    help="What nsys traces, e.g. cuda,nvtx,osrt.",
)
@click.option("--delay", type=click.FloatRange(min=0), metavar="SECONDS", help="Begin to record after this.")
@click.option(
    "--duration", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Record for this long."
)
@click.option(
    "--nsys-args",
    default="",
    metavar="'ARGS'",
    help="More options of nsys profile, which win over profkit's.",
)
def nsys(
    output: str,
    program: tuple[str, ...],
    analyze: bool,
    capture: bool,
    gpu_metrics: bool,
    graph_nodes: bool,
    phases: bool,
    python_: bool,
    trace: str,
    delay: float | None,
    duration: float | None,
    nsys_args: str,
) -> None:
    """Record any program with Nsight Systems, and export SQLite."""
    from profkit.recording.files import next_folder
    from profkit.recording.launchers import marked_command
    from profkit.recording.nsys_command import NsysRun, record_with_nsys

    try:
        more = tuple(shlex.split(nsys_args))
    except ValueError as error:
        raise click.BadParameter(f"{error}", param_hint="--nsys-args") from error
    run = NsysRun(
        capture=capture, gpu_metrics=gpu_metrics, graph_nodes=graph_nodes, python=python_, trace=trace,
        delay_s=delay, duration_s=duration, more=more,
    )  # fmt: skip
    folder, command = Path(output), list(program)
    if phases and not capture:
        folder = next_folder(folder)
        command = marked_command(command, str(folder))
    echo(f"profkit: recording {_shown(program)}", err=True)
    try:
        code, files = record_with_nsys(run, folder, command)
    finally:
        for line in run.said:
            echo(f"profkit: {line}", err=True)
    _finish(code, files, analyze, [])


def _script_options(function: Callable[..., Any]) -> Callable[..., Any]:
    marks = click.Choice(["optimizer", "backward", "module", "loader"])
    natural = click.IntRange(min=0)
    for flag, help_, settings in (
        ("--ranks", "Ranks that record; all of them by default.", {"metavar": "N,N"}),
        ("--stop-after", "End the program, with exit code 0, when the recording is over.", {"is_flag": True}),
        ("--step-by", "What ends a step: by default the optimizer, or backward if none.", {"type": marks}),
        ("--step-every", "How many of those make a step.", {"default": 1, "type": click.IntRange(min=1)}),
        ("--every", "Record once every so many steps, as long as the program runs.", {"type": int}),
        ("--on", "Record when asked: signal (SIGUSR2), or a file that you touch.", {"metavar": "WHAT"}),
        (
            "--slower-than",
            "Record after a step that takes longer than this, in seconds.",
            {"type": float, "metavar": "SECONDS"},
        ),
        ("--modules", "Depth to which modules within the model are phases.", {"default": 0, "type": natural}),
    ):
        function = click.option(flag, help=help_, **settings)(function)
    return function


@command.command()
@_shared_options
@_script_options
@click.option(
    "--wait",
    default=2,
    show_default=True,
    type=click.IntRange(min=0),
    help="Steps to run first without the profiler, timed for comparison.",
)
@click.option(
    "--warmup",
    default=2,
    show_default=True,
    type=click.IntRange(min=0),
    help="Steps with the profiler that are discarded.",
)
@click.option("--steps", default=3, show_default=True, type=click.IntRange(min=1), help="Steps to record.")
@click.option("--whole", is_flag=True, help="Record everything, e.g. for programs without an optimizer.")
@click.option("--memory", is_flag=True, help="Record the CUDA memory history too.")
@click.option("--stacks", is_flag=True, help="Record Python stacks (slow).")
@click.option(
    "--shapes/--no-shapes", default=True, show_default=True, help="Record the input shapes of operators."
)
def torch(
    output: str,
    program: tuple[str, ...],
    analyze: bool,
    whole: bool,
    steps: int,
    ranks: str | None,
    **options: Any,
) -> None:
    """Record a Python script with torch.profiler, in every rank that it starts."""
    from profkit.recording.recorder import record

    options |= {"steps": None if whole else steps, "ranks": _numbers(ranks)}
    numbers = {name: options[name] for name in ("wait", "warmup", "steps", "every")}
    record(output, **numbers)  # refuses what makes no schedule, before the program runs
    _run_recorded(output, program, analyze, options)


@command.command()
@_shared_options
@click.option("--ranks", metavar="N,N", help="Ranks that record; all of them by default.")
@click.option("--stacks", is_flag=True, help="Keep C++ frames too.")
def memory(output: str, program: tuple[str, ...], analyze: bool, ranks: str | None, stacks: bool) -> None:
    """Record the CUDA memory history of a Python script, even if it runs out of memory."""
    options = {"steps": None, "trace": False, "memory": True, "stacks": stacks, "ranks": _numbers(ranks)}
    _run_recorded(output, program, analyze, options)


@command.command()
@_shared_options
@click.option(
    "--every",
    default=100,
    show_default=True,
    type=click.IntRange(min=1),
    help="Inspect one of every so many steps.",
)
def numerics(output: str, program: tuple[str, ...], analyze: bool, every: int) -> None:
    """Record what tensors of a Python script hold: ranges, lost gradients, inf and NaN, swallowed updates."""
    _run_recorded(output, program, analyze, {"every": every}, "profkit.recording.run_numerics")


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{text} is not a list of numbers", param_hint="--ranks") from error


def _run_recorded(
    output: str, program: tuple[str, ...], analyze: bool, options: dict[str, Any], runner: str = RUNNER
) -> None:
    from profkit.recording.launchers import missing_profkit, recorded_command
    from profkit.recording.signals import run_and_wait

    folder = Path(output)
    before = set(_files_of(folder))
    line = recorded_command(list(program), {"folder": output, **options}, runner)
    if (obstacle := missing_profkit(line)) is not None:
        raise obstacle
    echo(f"profkit: recording {_shown(program)}", err=True)
    try:
        code = run_and_wait(line)
    except OSError as error:
        raise RecordingError(program[0], f"cannot be run ({error.strerror or error})") from error
    made = sorted(set(_files_of(folder)) - before)
    runs = [path for path in made if path.name.startswith("run")]
    _finish(code, [path for path in made if path not in runs], analyze, runs)


def _files_of(folder: Path) -> list[Path]:
    """Files of this folder and of those beside it, where a later run goes (``profkit-2``)."""
    parents = [folder, *folder.parent.glob(f"{folder.name}-*")]
    patterns = ("trace*.json.gz", "trace*.json", "memory*.pickle", "numerics*.json", "run*.json")
    return [path for parent in parents for pattern in patterns for path in parent.glob(pattern)]


def _shown(program: tuple[str, ...]) -> str:
    """A command for the terminal, whose output is often kept: without the secrets among the program's arguments."""
    from profkit.recording.environment import command_line

    script = next((at for at, word in enumerate(program) if word.endswith(".py")), 0) + 1
    return shlex.join([*program[:script], *command_line(list(program[script:]), with_places=True)])


def _finish(code: int, files: list[Path], analyze: bool, runs: list[Path]) -> None:
    if code > 128 and code - 128 in set(signal.Signals):
        echo(f"profkit: the program ended by {signal.Signals(code - 128).name}", err=True)
    for path in files:
        echo(f"Wrote {path}")
    if analyze and files:
        _analyze(files)
    elif files:
        echo(f"Next: profkit analyze {files[0] if len(files) == 1 else files[0].parent}")
    else:
        echo(f"profkit: nothing was recorded: {_why_nothing(runs, code)}", err=True)
    click.get_current_context().exit(code or (0 if files else 1))


def _analyze(files: list[Path]) -> None:
    from profkit import api

    report = api.analyze(files)
    page = _free_page(files[0].parent)
    report.save(page)
    echo(report.verdict.sentence)
    echo(f"Wrote {page}")


def _free_page(folder: Path) -> Path:
    """A page of another recording in the folder is never replaced."""
    number, page = 2, folder / "report.profkit.html"
    while page.exists():
        number, page = number + 1, folder / f"report_{number}.profkit.html"
    return page


def _why_nothing(runs: list[Path], code: int) -> str:
    problems, cut_off = [], False
    for path in runs:
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            problems += facts["problems"]
            cut_off |= facts["state"] == "running"
        except (OSError, ValueError, KeyError):
            continue
    if problems:
        return str(problems[-1])
    if cut_off:
        return "the program was killed before its recording was over: record fewer steps (--wait, --warmup, --steps)"
    if code and not runs:
        return f"the program ended with exit code {code} before it trained"
    return (
        "no process of the program trained under the recorder: name the script that trains, or the launcher (torchrun,"
        " accelerate launch, deepspeed)"
    )
