"""``profkit gate``: a report against limits; exit code 3 when one is broken."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from profkit.cli.options import device_option, format_options, plain_step_option, step_option
from profkit.cli.streams import echo_document
from profkit.errors import AnalysisError, printable

if TYPE_CHECKING:
    from profkit.api.comparing import Gate

__all__ = ["FAILED", "command"]

FAILED = 3
"""The exit code of a limit that is broken, or that cannot be judged."""


@click.command(name="gate")
@click.argument("report", metavar="REPORT")
@click.option("--baseline", metavar="NAME|FILE", help="Baseline: a name in the history, or a file.")
@click.option("--db", "database", metavar="FILE", help="History with the baselines (profkit.db).")
@click.option("--max-step", metavar="LIMIT", help="Step time: +3%, +2ms or 42ms.")
@click.option(
    "--max-phase",
    multiple=True,
    metavar="PHASE=LIMIT",
    help="GPU time of a phase: forward=+5%; may be repeated.",
)
@click.option("--max-memory", metavar="LIMIT", help="Peak of allocated memory: +2% or 40GiB.")
@click.option("--max-launches", metavar="LIMIT", help="Kernels per step: +5% or 800.")
@click.option(
    "--min-busy", metavar="LIMIT", help="Minimum share of the step in which the device is busy: 80%."
)
@click.option(
    "--max-idle", metavar="LIMIT", help="Maximum share of the step in which the device is idle: 20%."
)
@click.option(
    "-o", "--output", metavar="FILE", help="Write the comparison with the baseline, e.g. comment.md."
)
@click.option("--allow-unknown", is_flag=True, help="Pass if a limit cannot be judged, but say so.")
@format_options("text", "json", "md", "html", "csv")
@step_option
@device_option
@plain_step_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    report: str,
    output: str | None,
    allow_unknown: bool,
    format_: str | None,
    step: str | None,
    device: int | None,
    plain_step_ns: int | None,
    **given: Any,
) -> None:
    """Fail if a step exceeds its limits on time, memory or idle time.

    REPORT is a recording, a saved report (JSON) or a run of the history. A limit with + counts from the
    baseline; without any limit, the step may be 3 % slower. Limits can be set in pyproject.toml under
    [tool.profkit.gate], by the names of the options. Exit code 3: a limit is broken, or cannot be judged because
    the noise is larger than what it allows.

    \b
    Examples:
      profkit gate report.json --baseline main --max-step +3% --max-memory +2%
      profkit gate trace.json.gz --min-busy 80%
    """
    from profkit.api import refuse_input
    from profkit.api.comparing import DATABASE, gate, gate_settings
    from profkit.rendering.comparisons import COMPARISON_RENDERERS
    from profkit.rendering.formats import format_of

    if output:
        format_of(output, formats=tuple(COMPARISON_RENDERERS))

    settings = gate_settings(Path.cwd())
    baseline = given.pop("baseline") or settings.pop("baseline", None)
    database = given.pop("database") or settings.pop("db", None) or DATABASE
    limits = {k: v for k, v in settings.items() if k not in ("baseline", "db")} | _limits(given)
    judged = gate(
        report,
        limits,
        baseline=baseline,
        database=database,
        allow_unknown=allow_unknown,
        step=step,
        device=device,
        plain_step_ns=plain_step_ns,
    )
    if judged.comparison is not None and output:
        refuse_input(Path(output), [report, database, *([baseline] if baseline else [])])
        judged.comparison.save(output)
    echo_document(_told(judged, format_ or "text"), format_ or "text")
    ctx.exit(0 if judged.passed else FAILED)


def _told(judged: Gate, format_: str) -> str:
    """What the gate found; in another format than text or JSON, the comparison with the baseline."""
    from profkit.rendering.comparisons import render_gate_json

    if format_ == "json":
        return render_gate_json(judged.document)
    if format_ != "text":
        if judged.comparison is None:
            raise AnalysisError("gate", f"without a baseline there is nothing to write as {format_}")
        return judged.comparison.render(format_)
    lines = [judged.comparison.comparison.sentence] if judged.comparison is not None else []
    lines += judged.failures
    if not judged.passed:
        if judged.document.outcome == "unknown":
            lines.append("What cannot be judged keeps the gate closed, unless --allow-unknown is given.")
        lines.append("The gate has failed.")
    else:
        lines.append("The gate is passed.")
    return "".join(f"{printable(line)}\n" for line in lines)


def _limits(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given, by the names of the limits; one that is none is wrong usage."""
    from profkit.comparison.limits import Limits

    limits = {name.replace("_", "-"): value for name, value in given.items() if value not in (None, ())}
    if "max-phase" in limits:
        limits["max-phase"] = _phases(limits["max-phase"])
    try:
        Limits.of(limits)
    except AnalysisError as error:
        raise click.UsageError(str(error)) from error
    return limits


def _phases(given: tuple[str, ...]) -> dict[str, str]:
    phases = dict(text.rpartition("=")[::2] for text in given)
    if "" in phases:
        raise click.BadParameter("write it as PHASE=LIMIT", param_hint="--max-phase")
    return phases
