"""``profkit history``: the runs that were saved, and where a metric changed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec

from profkit.cli.options import format_options
from profkit.cli.streams import echo, echo_document
from profkit.errors import printable

__all__ = ["command", "parse_tags"]


@click.command(name="history")
@click.option(
    "--db", "database", default="profkit.db", show_default=True, metavar="FILE", help="The history."
)
@click.option("--metric", metavar="NAME", help="Metric to follow, e.g. step_ms, gpu_ms, busy_percent.")
@click.option("--phase", metavar="PATH", help="Follow a metric of this phase.")
@click.option("--family", metavar="NAME", help="Follow a metric of this kernel family.")
@click.option("--kernel", metavar="NAME", help="Follow a metric of this kernel, by its short or full name.")
@click.option("--idle", metavar="CAUSE", help="Follow the idle time of this cause.")
@click.option(
    "--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Only runs with this tag; may be repeated."
)
@click.option(
    "--last",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="At most this many of the latest runs.",
)
@click.option("--trials", is_flag=True, help="List what profkit try predicted and measured.")
@click.option("--set-baseline", metavar="NAME=RUN", help="Name a run, for profkit gate --baseline NAME.")
@click.option("-o", "--output", metavar="FILE", help="Write the trend as a page with a plot.")
@format_options("text", "json")
def command(
    database: str,
    metric: str | None,
    phase: str | None,
    family: str | None,
    kernel: str | None,
    idle: str | None,
    tags: tuple[str, ...],
    last: int,
    trials: bool,
    set_baseline: str | None,
    output: str | None,
    format_: str | None,
) -> None:
    """List saved runs. With a metric, plot it and name the run in which it changed.

    \b
    Examples:
      profkit history
      profkit history --phase forward --metric gpu_ms -o trend.html
      profkit history --family gemm --tag branch=main
      profkit history --set-baseline main=12
      profkit history --trials
    """
    from profkit.api import refuse_input, write_whole
    from profkit.comparison import find_changes
    from profkit.rendering.formats import format_of
    from profkit.rendering.trend import change_sentences, render_trend_html, render_trend_text
    from profkit.saved_runs import History, metric_of

    subjects = {"phase": phase, "family": family, "kernel": kernel, "idle": idle}
    chosen = {name: of for name, of in subjects.items() if of is not None}
    if len(chosen) > 1:
        raise click.UsageError(f"Follow one of {', '.join('--' + name for name in chosen)}.")
    if output and format_of(output) != "html":
        raise click.UsageError("The trend is an HTML page: let its name end in .html.")
    with History(database) as history:
        if set_baseline:
            name, _, run = set_baseline.rpartition("=")
            history.set_baseline(name, run)
            echo(f"{name} is now run {history.run_id(run)}", err=True)
            return
        if trials:
            rows = history.trials(last=last)
            echo(json.dumps(rows, indent=1) if format_ == "json" else _tried(rows))
            return
        if not (chosen or metric or output):
            rows = history.runs(tags=parse_tags(tags), last=last)
            echo(json.dumps(rows, indent=1) if format_ == "json" else _listed(rows))
            return
        subject, of = next(iter(chosen.items()), (None, ""))
        followed = metric_of(metric, subject=subject, of=of)
        points = history.series(followed, tags=parse_tags(tags), last=last)
    changes = find_changes([point.value for point in points])
    if format_ == "json":
        sentences = change_sentences(points, changes, followed.label)
        told = [{"run": points[c.at].run, "before": c.before, "after": c.after} for c in changes]
        echo(
            json.dumps(
                {
                    "metric": followed.label,
                    "runs": msgspec.to_builtins(points),
                    "changes": told,
                    "sentences": sentences,
                },
                indent=1,
            )
        )
    else:
        echo_document(render_trend_text(points, changes, followed.label), "text")
    if output:
        refuse_input(Path(output), [database])
        write_whole(Path(output), render_trend_html(points, changes, followed.label))
        echo(f"Wrote {output}", err=True)


def parse_tags(tags: tuple[str, ...]) -> dict[str, str]:
    """Tags as they are given on the command line."""
    pairs = [tag.partition("=") for tag in tags]
    if any(not key or not sign for key, sign, _ in pairs):
        raise click.BadParameter("write it as KEY=VALUE", param_hint="--tag")
    return {key: value for key, _, value in pairs}


def _tried(rows: Sequence[Mapping[str, object]]) -> str:
    lines = [f"{'saved (UTC)':<16}  {'predicted':>20}  {'measured':>20}  kept  changes"]
    for row in rows:
        predicted, measured = (_speedup(row, name) for name in ("predicted", "measured"))
        beside = f" (beside {row['beside']})" if row["beside"] else ""
        kept = "yes" if row["kept"] else "no"
        line = f"{str(row['saved_at'])[:16]}  {predicted:>20}  {measured:>20}  {kept:<4}  {row['changes']}{beside}"
        lines.append(printable(line))
    return "\n".join(lines)


def _speedup(row: Mapping[str, object], name: str) -> str:
    if row[name] is None:
        return "-"
    return f"{row[name]:.2f}x ({row[name + '_low']:.2f} to {row[name + '_high']:.2f})"


def _listed(rows: Sequence[Mapping[str, object]]) -> str:
    from profkit.rendering.sentences.labels import share_label

    lines = [f"{'run':>6}  {'saved (UTC)':<16}  {'step':>10}  {'busy':>10}  {'bound':<15}  what"]
    for row in rows:
        step, busy = (
            f"{row[k]:.3f} ms" if isinstance(row[k], int | float) else "–" for k in ("step_ms", "busy_ms")
        )
        names = f"[{row['baselines']}] " if row["baselines"] else ""
        what = " ".join(str(row[key]) for key in ("inputs", "gpu", "tags") if row[key])
        saved = str(row["saved_at"])[:16].replace("T", " ")
        lines.append(
            printable(
                f"{row['id']:>6}  {saved:<16}  {step:>10}  {busy:>10}  {share_label(str(row['verdict'])):<15}  {names}{what}"
            )
        )
    return "\n".join(lines)
