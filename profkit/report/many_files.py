"""Many files, each read and summarised where there is room for it: in this process, or on the workers of a Dask cluster.

The step for one file is a pure function of its path; only its summary comes back. A file that fails is told as a
finding, and the others go on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from profkit.errors import AnalysisError, ProfkitError, ReadError
from profkit.model import Finding, Severity, rows
from profkit.model.report import Report
from profkit.readers import read
from profkit.readers.registry import role_of
from profkit.readers.remote import is_remote, shown_name, without_secrets
from profkit.report import FileSummary, merge_files, summarise_file
from profkit.report.merge import common_left_out, files_shown
from profkit.report.views import Options, kept_steps, roles_given

__all__ = ["AUTO", "LOCAL", "MANY_FILES", "Failure", "Task", "summarise_many", "summarise_path"]

MANY_FILES: Final = 8
"""From this many files on, starting workers costs less than it saves."""

LOCAL: Final = "local"
AUTO: Final = "auto"
"""Workers on this machine when there are many files, several cores and Dask; else this process."""

_EXPANDED_SHARE: Final = 3
"""A trace in memory as text, columns and tables takes up to this many times its text."""

_CONNECT_TIMEOUT: Final = "20s"


_LOCAL_SETTINGS: Final = {
    # One file too large for a worker must not be tried on every worker in turn.
    "distributed.scheduler.allowed-failures": 0,
    # Dask samples its workers' stacks 100 times a second: worth it in long computations, not here. So are its
    # clocks, which tick 50 times a second in every process, its pages for browsers, and moving tasks about.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "5s",
    # Asked 10 times a second, the memory of two workers costs 2 % of a core; files that expand too far are refused first.
    "distributed.worker.memory.monitor-interval": "500ms",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.nanny.http.routes": [],
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    # Workers that are forked from one that has everything imported start in no time.
    "distributed.worker.multiprocessing-method": "forkserver" if os.name == "posix" else "spawn",
}

_IMPORTED_BEFORE_FORKING: Final = (
    "distributed",
    "profkit.report.many_files",
    "profkit.readers.kineto",
    "numpy.ma",
)

_ALLOCATOR: Final = {"MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 28)}
"""glibc gives large blocks back at once, and faults them in again for the next file: a fifth of a worker's time."""


@dataclass(frozen=True)
class Failure:
    """A file of which nothing can be told."""

    name: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Task:
    """One file, and what to make of it."""

    path: str
    options: Options
    left_out: NDArray[np.bool_] | None = None
    whole: bool = False
    expand_limit: int | None = None


def summarise_path(task: Task) -> FileSummary | Failure:
    """Read and summarise one file; whatever goes wrong with it is returned, not raised."""
    name = shown_name(task.path)
    try:
        recording = read(task.path, expand_limit=task.expand_limit)
        return summarise_file(recording, task.options, left_out=task.left_out, whole=task.whole)
    except ProfkitError as error:
        return _failure(task, str(error))
    except Exception as error:  # noqa: BLE001 - one rank's surprise must not cost the report of the others
        return _failure(task, f"{name}: it failed with {type(error).__name__}: {error}")


def _failure(task: Task, message: str) -> Failure:
    """A failure that shows the file's name, and neither its folder nor what an address may hold of secrets."""
    name = shown_name(task.path)
    for path in (task.path, without_secrets(task.path)):
        message = message.replace(path, name)
    return Failure(name, without_secrets(message))


class _Workers(Protocol):
    """Something that runs tasks."""

    expand_limit: int | None

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, FileSummary | Failure]]:
        """The results with the tasks' numbers, in any order."""


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
    with _workers(cluster, len(tasks)) as workers:
        tasks = [replace(task, expand_limit=workers.expand_limit) for task in tasks]
        found = _run(workers, tasks, progress)
        summaries = [s for s in found if isinstance(s, FileSummary)]
        if not summaries:
            raise _nothing(files, found)
        left_out = common_left_out(summaries)
        place = [at for at, each in enumerate(found) if isinstance(each, FileSummary)]
        shown = {place[at] for at in files_shown(summaries)}
        late = {at for at, each in zip(place, summaries, strict=True) if _differs(each, left_out)}
        again = sorted(shown | late)
        anew = [replace(tasks[at], left_out=left_out, whole=at in shown) for at in again]
        for at, each in zip(again, _run(workers, anew, None), strict=True):
            found[at] = each
    used, set_aside = _one_kind([s for s in found if isinstance(s, FileSummary)])
    failures = [f for f in found if isinstance(f, Failure)]
    return _with_failures(merge_files(used), failures, set_aside)


def _differs(summary: FileSummary, left_out: NDArray[np.bool_]) -> bool:
    return not np.array_equal(~kept_steps(len(summary.left_out), left_out), summary.left_out)


def _run(
    workers: _Workers, tasks: Sequence[Task], progress: Callable[[str], None] | None
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
    roles = [role_of(s.source.format) for s in summaries]
    given = roles_given(role for role, s in zip(roles, summaries, strict=True) if s.part.device_count)
    used = [s for role, s in zip(roles, summaries, strict=True) if role not in given]
    return used, len(summaries) - len(used)


def failure_findings(errors: Iterable[str]) -> list[Finding]:
    """The findings of a report about files that it had to leave out."""
    return [Finding("file-failed", Severity.WARNING, params={"error": error}) for error in errors]


def with_findings(report: Report, findings: Sequence[Finding]) -> Report:
    """The report with more to say of its health."""
    health = rows.replace(report.health, ok=False, findings=[*findings, *report.health.findings])
    return rows.replace(report, health=health)


def _with_failures(report: Report, failures: Sequence[Failure], set_aside: int) -> Report:
    findings = failure_findings(f.message for f in failures)
    if set_aside:
        findings.append(Finding("traces-set-aside", Severity.WARNING, count=set_aside))
    return with_findings(report, findings) if findings else report


class _ThisProcess:
    """One file after the other."""

    expand_limit: int | None = None

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, FileSummary | Failure]]:
        for at, task in enumerate(tasks):
            yield at, summarise_path(task)


class _Dask:
    """The workers of a cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client
        limits = [w["memory_limit"] for w in client.scheduler_info(n_workers=-1)["workers"].values()]
        known = [limit for limit in limits if limit]
        self.expand_limit = min(known) // _EXPANDED_SHARE if known else None

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, FileSummary | Failure]]:
        """The results. A worker that dies takes the files with it that wait for it: each is tried again alone."""
        killed = []
        for at, future in self._submitted(dict(enumerate(tasks))):
            if _is_killed(future):
                killed.append(at)
            else:
                yield at, _result(future, tasks[at])
        for each in killed:
            for at, future in self._submitted({each: tasks[each]}):
                yield at, _result(future, tasks[at])

    def _submitted(self, tasks: Mapping[int, Task]) -> Iterator[tuple[int, Any]]:
        from distributed import as_completed

        number = {self._client.submit(summarise_path, task, pure=False): at for at, task in tasks.items()}
        for future in as_completed(list(number)):
            yield number.pop(future), future
            future.release()


def _is_killed(future: Any) -> bool:
    return future.status == "error" and type(future.exception()).__name__ == "KilledWorker"


def _result(future: Any, task: Task) -> FileSummary | Failure:
    if future.status == "finished":
        found: FileSummary | Failure = future.result()
        return found
    if _is_killed(future):
        why = "its worker died, probably out of memory"
    else:
        why = str(future.exception()) if future.status == "error" else f"its task was {future.status}"
    return _failure(task, f"{shown_name(task.path)}: it failed on the cluster: {why}")


@contextmanager
def _workers(cluster: str | None, files: int) -> Iterator[_Workers]:
    if cluster == AUTO:
        many = files >= MANY_FILES and _cores() > 1 and find_spec("distributed") is not None
        cluster = LOCAL if many else None
    if cluster is None:
        yield _ThisProcess()
        return
    if find_spec("distributed") is None:
        hint = "Install it: pip install distributed"
        raise AnalysisError(cluster, "a cluster needs the package dask", hint)
    if cluster == LOCAL:
        with _Local(min(_cores(), files)) as local:
            yield local
        return
    from distributed import Client

    try:
        client = Client(cluster, timeout=_CONNECT_TIMEOUT)
    except (OSError, ValueError) as error:
        raise AnalysisError(
            cluster,
            f"no scheduler answers: {error}",
            "Start one with: dask scheduler; and workers: dask worker ADDRESS",
        ) from None
    with client:
        if not client.scheduler_info(n_workers=-1)["workers"]:
            raise AnalysisError(cluster, "the cluster has no workers", "Start some: dask worker ADDRESS")
        yield _Dask(client)


class _Local:
    """Workers on this machine; until they have started, and where none start, this process does the work."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 // workers
        self.expand_limit: int | None = self._memory // _EXPANDED_SHARE

    def __enter__(self) -> Self:
        self._starter = ThreadPoolExecutor(1)
        self._cluster: Future[Any] = self._starter.submit(_local_cluster, self._workers, self._memory)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(*_NOT_STARTED):
            self._cluster.result().close()
        self._starter.shutdown()

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, FileSummary | Failure]]:
        """The results; the files that are left when the workers are there are theirs."""
        left = iter(enumerate(tasks))
        while not self._cluster.done():
            at, task = next(left, (-1, None))
            if task is None:
                return
            yield at, summarise_path(task)
        rest = list(left)
        with self._started() as workers:
            for place, result in workers.run([task for _, task in rest]):
                yield rest[place][0], result

    @contextmanager
    def _started(self) -> Iterator[_Workers]:
        from distributed import Client

        try:
            client = Client(self._cluster.result())
        except _NOT_STARTED:
            # Workers of one's own are for speed: where none start in time, this process does the work.
            yield _ThisProcess()
            return
        with client:
            yield _Dask(client)


_NOT_STARTED: Final = (OSError, RuntimeError, TimeoutError)


def _local_cluster(workers: int, memory_bytes: int) -> Any:
    """Processes of one thread each, with so much memory each."""
    with _environment(_ALLOCATOR):
        if os.name == "posix":
            # Before Dask sets its own list: this one has what the step for one file imports. The processes that
            # workers are forked from do so while this one imports Dask.
            from multiprocessing import forkserver, get_context

            get_context("forkserver").set_forkserver_preload(list(_IMPORTED_BEFORE_FORKING))
            forkserver.ensure_running()
        import dask
        import distributed.utils
        from distributed import LocalCluster

        # To make its list, Dask would import pandas here.
        distributed.utils._forkserver_preload_set = True
        with dask.config.set(_LOCAL_SETTINGS):
            return LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=memory_bytes,
                # No dashboard, and any free port for what is served without one: another cluster may have Dask's own.
                dashboard_address=":0",
                scheduler_kwargs={"dashboard": False},
                silence_logs="CRITICAL",
            )


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that processes started meanwhile have; what the user has set wins."""
    fresh = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(fresh)
    try:
        yield
    finally:
        for name in fresh:
            os.environ.pop(name, None)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
