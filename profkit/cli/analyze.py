"""``profkit analyze``: recordings to a report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import click

from profkit.cli.options import (
    device_option,
    format_options,
    phase_option,
    plain_step_option,
    step_option,
    to_gpu,
)
from profkit.cli.streams import echo, echo_document
from profkit.errors import AnalysisError

if TYPE_CHECKING:
    from profkit.api import Report
    from profkit.rendering.document import Finding
    from profkit.verification import Verification

__all__ = ["command"]


@click.command(name="analyze")
@click.argument("files", nargs=-1, required=True, metavar="FILE|FOLDER...")
@click.option("-o", "--output", metavar="FILE", help="Write the report here; - is standard output.")
@format_options("html", "json", "md", "text", "csv")
@step_option
@device_option
@phase_option
@click.option(
    "--peaks",
    metavar="FILE|GPU",
    callback=to_gpu,
    help="Peak rates: a file (TOML, JSON or CSV), or the name of a GPU, e.g. H100.",
)
@plain_step_option
@click.option(
    "--cluster",
    metavar="ADDRESS",
    default="auto",
    show_default=True,
    help="Where to read the files: a Dask scheduler (tcp://host:8786), local (this machine's cores) or none (this process).",
)
@click.option("-q", "--quiet", is_flag=True, help="Write the report, but show no progress and print nothing.")
@click.option("--save", is_flag=True, help="Save the report in a history.")
@click.option("--db", "database", metavar="FILE", help="History to save it in (profkit.db); implies --save.")
@click.option(
    "--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Tag the saved report; may be repeated."
)
@click.option("--baseline", metavar="NAME", help="Name the saved run, for profkit gate --baseline NAME.")
@click.option(
    "--verify",
    "verify_",
    is_flag=True,
    help="Recompute totals, causes, waits, phases and the headline from the raw files, and compare. Slow; exit code 1 if any differs.",
)
@click.option("--open", "open_", is_flag=True, help="Open the page in a browser.")
def command(
    files: tuple[str, ...],
    output: str | None,
    format_: str | None,
    step: str | None,
    device: int | None,
    phase: str | None,
    peaks: str | None,
    plain_step_ns: int | None,
    cluster: str,
    quiet: bool,
    save: bool,
    database: str | None,
    tags: tuple[str, ...],
    baseline: str | None,
    verify_: bool,
    open_: bool,
) -> None:
    """Say what limits a training step, and where each millisecond goes.

    FILE is an nsys export (.sqlite) or report (.nsys-rep), a torch.profiler trace (.json, .json.gz) or a CUDA
    memory snapshot (.pickle), recognised by its content; - is standard input. Several files make one report.

    \b
    Examples:
      profkit analyze report.sqlite
      profkit analyze trace.json.gz snapshot.pickle -o report.html
      profkit analyze report.sqlite --phase forward
      profkit analyze report.sqlite --format json -o - | jq .verdict.sentence
      profkit analyze 's3://bucket/run/*.json.gz' --cluster tcp://scheduler:8786
    """
    from profkit.cli.allocation import collect_rarely, reuse_large_blocks

    collect_rarely()
    reuse_large_blocks()
    from profkit.api import analyze, refuse_input, write_whole
    from profkit.cli.history import parse_tags
    from profkit.rendering import render_text

    saved = bool(save or database or tags or baseline)
    _check_flags(files, phase, verify_, saved)
    named = parse_tags(tags)
    inputs = [*files, *([peaks] if peaks else []), *([database] if database else [])]
    chosen = _format(output, format_, inputs)
    with _progress(quiet) as progress:
        report = analyze(
            files,
            step=step,
            device=device,
            phase=phase,
            peaks=peaks,
            plain_step_ns=plain_step_ns,
            cluster=None if cluster == "none" else cluster,
            progress=progress,
        )
        found = None
        if verify_:
            report, found = _verified(report, files, (step, device), progress)
    if saved:
        from profkit.api.comparing import save_run

        run = save_run(report, files, database, tags=named, baseline=baseline)
        echo(f"Saved as {run}", err=True)
    printed = output == "-" or (output is None and chosen not in (None, "html"))
    if printed:
        echo_document(report.render(chosen or "text"), chosen or "text")
    else:
        target = Path(output) if output else Path(f"{_stem(files[0])}.profkit.html")
        refuse_input(target, inputs)
        write_whole(target, report.render(chosen or "html"))
    if output is None and not printed and not quiet:
        echo_document(render_text(report.document, color=sys.stdout.isatty()), "text")
    elif not quiet:
        _warn(report.document.health.findings)
    if not printed:
        echo(f"Wrote {target}", err=True)
        if open_:
            click.launch(str(target))
    if found is not None:
        _tell(found, quiet)


def _check_flags(files: tuple[str, ...], phase: str | None, verified: bool, saved: bool) -> None:
    if verified and "-" in files:
        raise click.UsageError("--verify reads each file twice: give files, not standard input")
    if phase is not None and (verified or saved):
        raise click.UsageError("--phase shows a part of the report: verify and save the whole one")


def _format(output: str | None, given: str | None, inputs: list[str]) -> str | None:
    """The format to write; refuses the name of an input, and a suffix that no format has, before anything is read."""
    from profkit.api import refuse_input
    from profkit.rendering.formats import format_of

    if output is None or output == "-":
        return given
    refuse_input(Path(output), inputs)
    return format_of(output, given)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A line on the terminal that says what is being done; nothing where nobody looks."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("") as status:
        yield lambda words: status.update(Text(words))


def _verified(
    report: Report,
    files: tuple[str, ...],
    asked: tuple[str | None, int | None],
    progress: Callable[[str], None],
) -> tuple[Report, Verification]:
    """The report with what a brute force says of it; asked are the steps' name and the device."""
    from profkit.api import Report, expand
    from profkit.verification import verify, with_verification

    step, device = asked
    found = verify(report.document, expand(files), step=step, device=device, progress=progress)
    return Report(with_verification(report.document, found)), found


def _tell(found: Verification, quiet: bool) -> None:
    """What the brute force found; an error unless everything that could be compared is equal, and something could."""
    for line in found.lines() if not quiet or found.differing or not found.figures else ():
        echo(line, err=True)
    if found.differing:
        hint = "Do not rely on it, and please report this bug"
        raise AnalysisError("--verify", "the report differs from its files", hint)
    if not found.figures:
        raise AnalysisError("--verify", "nothing could be compared")


def _warn(findings: Sequence[Finding]) -> None:
    """What the text report would say of the recording's health, for those who only keep the file."""
    for finding in findings:
        if finding.code == "secrets":  # no fault of the recording, but of sharing it
            echo(f"warning: {finding.message}", err=True)
        elif finding.severity != "info":
            echo(f"{finding.severity}: {finding.message}", err=True)


def _stem(file: str) -> str:
    from profkit.readers.registry import stem_of
    from profkit.readers.remote import shown_name

    name = shown_name(file) if file != "-" else "stdin"
    if any(c in name for c in "*?["):
        name = PurePath(file).parent.name
    return stem_of(name) or "report"
