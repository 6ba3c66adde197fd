"""One report of many files: a file that fails is told as a finding, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.errors import ReadError
from profkit.model import Finding, Severity, rows
from profkit.model.report import Report
from profkit.readers.registry import role_of
from profkit.readers.remote import is_remote
from profkit.report.file_summary import FileSummary
from profkit.report.identity import grouped
from profkit.report.joining import Told
from profkit.report.merge import Merged, common_left_out, snapshot_told
from profkit.report.views import Options, kept_steps, roles_given
from profkit.report.workers import Ask, Failure, Result, Task, Workers, workers

__all__ = ["failure_findings", "summarise_many", "with_findings"]


def summarise_many(
    files: Sequence[str],
    options: Options,
    cluster: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """One report of many files.

    Args:
        files: Paths, also remote ones.
        options: What the person said about them; a device cannot be chosen.
        cluster: The address of a Dask scheduler; `LOCAL` for workers on this machine; None for this process.
        progress: Called with a few words as files get done.

    Raises:
        AnalysisError: The cluster cannot be used.
        ReadError: No file at all could be summarised.
    """
    paths = [f if is_remote(f) or f == "-" else str(Path(f).absolute()) for f in files]
    tasks = [Task(path=path, options=options) for path in paths]
    with workers(cluster, len(tasks)) as started:
        tasks = [replace(task, expand_limit=started.expand_limit) for task in tasks]
        found = _run(started, tasks, progress)
        tasks, found, of_identity = _of_one_run(started, tasks, found)
        tasks, found = _with_given(started, tasks, found)
        read = [at for at, each in enumerate(found) if isinstance(each, FileSummary)]
        if not read:
            raise _nothing(files, found)
        left_out = common_left_out(_summaries(found))
        tasks = [replace(task, left_out=left_out) for task in tasks]
        late = [at for at in read if _differs(found[at], left_out)]
        for at, each in zip(late, _run(started, [tasks[at] for at in late]), strict=True):
            found[at] = each
        merged = Merged.of(_summaries(found))
        read = [at for at in read if isinstance(found[at], FileSummary)]
        told, failed = _told(started, [tasks[at] for at in read], merged)
    failures = [f.message for f in (*found, *failed) if isinstance(f, Failure)]
    return with_findings(merged.report(told, of_identity), failure_findings(failures))


def _summaries(found: Sequence[Result]) -> list[FileSummary]:
    return [each for each in found if isinstance(each, FileSummary)]


def _told(started: Workers, tasks: Sequence[Task], merged: Merged) -> tuple[Told, list[Failure]]:
    """What some files tell for all: the memory first, since advice rests on it.

    Args:
        started: Who does the work.
        tasks: One a file of ``merged``.
        merged: The files.
    """

    def asked(at: int, known: Told | None) -> Task:
        return replace(
            tasks[at],
            ask=Ask(offset_ns=merged.offset_ns(at), known=known, exchanged=merged.joined.part.exchanged),
        )

    memory, failed = Told(memory=merged.own_memory()), list[Failure]()
    if chosen := snapshot_told(merged.files):
        snapshot, at_once = chosen
        memory = Told(memory=merged.files[snapshot].memory)
        timeline = at_once if at_once is not None else merged.busiest
        if timeline is not None:
            task = asked(timeline, None)
            task = replace(task, beside=[*task.beside, (tasks[snapshot].path,)])
            [found] = _run(started, [task])
            memory = found if isinstance(found, Told) else memory
            failed += [found] if isinstance(found, Failure) else []
    shown = sorted(merged.shown())
    results = _run(started, [asked(at, memory) for at in shown])
    told = {at: each for at, each in zip(shown, results, strict=True) if isinstance(each, Told)}
    failed += [each for each in results if isinstance(each, Failure)]
    return merged.told(memory, told), failed


def _of_one_run(
    started: Workers, tasks: Sequence[Task], found: Sequence[Result]
) -> tuple[list[Task], list[Result], Sequence[Finding]]:
    """The files of one run, those that follow each other on one device as one, and what is to be said of it."""
    told = grouped([each.identity if isinstance(each, FileSummary) else None for each in found])
    first = [group[0] for group in told.groups]
    used = [replace(tasks[group[0]], then=[tasks[at].path for at in group[1:]]) for group in told.groups]
    summaries = [found[at] for at in first]
    again = [at for at, task in enumerate(used) if task.then]
    for at, each in zip(again, _run(started, [used[at] for at in again]), strict=True):
        summaries[at] = each
    return used, summaries, told.findings


def _with_given(
    started: Workers, tasks: Sequence[Task], found: Sequence[Result]
) -> tuple[list[Task], list[Result]]:
    """Timelines with the shapes and counters that other recordings of the program have for them."""
    read = {at: each for at, each in enumerate(found) if isinstance(each, FileSummary)}
    roles = {at: role_of(each.facts.inputs[0].format) for at, each in read.items()}
    given = roles_given(role for at, role in roles.items() if any(read[at].work_ns))
    givers = [at for at, role in roles.items() if role in given]
    used, results = list(tasks), list(found)
    for at in givers:
        used[at] = replace(tasks[at], gives=True)
    operators = [at for at in givers if roles[at] == "operators"]
    counters = [at for at in givers if roles[at] == "counters"]
    for at in read if givers else ():
        if at not in givers and any(read[at].work_ns):
            of_rank = [
                b for b in operators if read[b].facts.inputs[0].ranks == read[at].facts.inputs[0].ranks
            ]
            beside = [*(of_rank or operators)[:1], *counters]
            used[at] = replace(tasks[at], beside=[(tasks[b].path, *tasks[b].then) for b in beside])
    again = [at for at in read if used[at] is not tasks[at]]
    for at, each in zip(again, _run(started, [used[at] for at in again]), strict=True):
        results[at] = each
    return used, results


def _differs(summary: Result, left_out: NDArray[np.bool_]) -> bool:
    return isinstance(summary, FileSummary) and not np.array_equal(
        ~kept_steps(len(summary.left_out), left_out), summary.left_out
    )


def _run(
    workers: Workers, tasks: Sequence[Task], progress: Callable[[str], None] | None = None
) -> list[Result]:
    found: list[Any] = [None] * len(tasks)
    for done, (at, result) in enumerate(workers.run(tasks), 1):
        found[at] = result
        if progress:
            progress(f"summarised {done} of {len(tasks)} files")
    return found


def _nothing(files: Sequence[str], found: Sequence[Result]) -> ReadError:
    first = next(f for f in found if isinstance(f, Failure))
    others = f", nor can the {len(files) - 1} others" if len(files) > 1 else ""
    return ReadError(
        first.name, f"it cannot be analysed{others}: {first.message.removeprefix(first.name + ': ')}"
    )


def failure_findings(errors: Iterable[str]) -> list[Finding]:
    """The findings of a report about files that it had to leave out."""
    return [Finding("file-failed", Severity.WARNING, params={"error": error}) for error in errors]


def with_findings(report: Report, findings: Sequence[Finding]) -> Report:
    """The report with more to say of its health."""
    ok = report.health.ok and all(finding.severity < Severity.WARNING for finding in findings)
    health = rows.replace(report.health, ok=ok, findings=[*findings, *report.health.findings])
    return rows.replace(report, health=health)
