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
from profkit.report.merge import common_left_out, files_shown, merge_files
from profkit.report.views import Options, kept_steps, roles_given
from profkit.report.workers import Failure, Task, Workers, workers

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
        summaries = [s for s in found if isinstance(s, FileSummary)]
        if not summaries:
            raise _nothing(files, found)
        left_out = common_left_out(summaries)
        place = [at for at, each in enumerate(found) if isinstance(each, FileSummary)]
        shown = {place[at] for at in files_shown(summaries)}
        late = {at for at, each in zip(place, summaries, strict=True) if _differs(each, left_out)}
        again = sorted(shown | late)
        anew = [replace(tasks[at], left_out=left_out, whole=at in shown) for at in again]
        for at, each in zip(again, _run(started, anew, None), strict=True):
            found[at] = each
    used, set_aside = _one_kind([s for s in found if isinstance(s, FileSummary)])
    failures = [f for f in found if isinstance(f, Failure)]
    return _with_failures(merge_files(used), failures, set_aside, of_identity)


def _of_one_run(
    started: Workers, tasks: Sequence[Task], found: Sequence[FileSummary | Failure]
) -> tuple[list[Task], list[FileSummary | Failure], Sequence[Finding]]:
    """The files of one run, those that follow each other on one device as one, and what is to be said of it."""
    told = grouped([each.identity if isinstance(each, FileSummary) else None for each in found])
    first = [group[0] for group in told.groups]
    used = [replace(tasks[group[0]], then=[tasks[at].path for at in group[1:]]) for group in told.groups]
    summaries = [found[at] for at in first]
    again = [at for at, task in enumerate(used) if task.then]
    for at, each in zip(again, _run(started, [used[at] for at in again], None), strict=True):
        summaries[at] = each
    return used, summaries, told.findings


def _differs(summary: FileSummary, left_out: NDArray[np.bool_]) -> bool:
    return not np.array_equal(~kept_steps(len(summary.left_out), left_out), summary.left_out)


def _run(
    workers: Workers, tasks: Sequence[Task], progress: Callable[[str], None] | None
) -> list[FileSummary | Failure]:
    found: list[Any] = [None] * len(tasks)
    for done, (at, result) in enumerate(workers.run(tasks), 1):
        found[at] = result
        if progress:
            progress(f"summarised {done} of {len(tasks)} files")
    return found


def _nothing(files: Sequence[str], found: Sequence[FileSummary | Failure]) -> ReadError:
    first = next(f for f in found if isinstance(f, Failure))
    others = f", nor can the {len(files) - 1} others" if len(files) > 1 else ""
    return ReadError(
        first.name, f"it cannot be analysed{others}: {first.message.removeprefix(first.name + ': ')}"
    )


def _one_kind(summaries: Sequence[FileSummary]) -> tuple[list[FileSummary], int]:
    """Without files that only give something to another's timeline: no time of them counts, and each is read alone."""
    roles = [role_of(s.sources[0].format) for s in summaries]
    given = roles_given(role for role, s in zip(roles, summaries, strict=True) if s.part.device_count)
    used = [s for role, s in zip(roles, summaries, strict=True) if role not in given]
    return used, len(summaries) - len(used)


def failure_findings(errors: Iterable[str]) -> list[Finding]:
    """The findings of a report about files that it had to leave out."""
    return [Finding("file-failed", Severity.WARNING, params={"error": error}) for error in errors]


def with_findings(report: Report, findings: Sequence[Finding]) -> Report:
    """The report with more to say of its health."""
    ok = report.health.ok and all(finding.severity < Severity.WARNING for finding in findings)
    health = rows.replace(report.health, ok=ok, findings=[*findings, *report.health.findings])
    return rows.replace(report, health=health)


def _with_failures(
    report: Report, failures: Sequence[Failure], set_aside: int, of_identity: Sequence[Finding]
) -> Report:
    findings = [*failure_findings(f.message for f in failures), *of_identity]
    if set_aside:
        findings.append(Finding("traces-set-aside", Severity.WARNING, count=set_aside))
    return with_findings(report, findings) if findings else report
