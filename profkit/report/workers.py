"""Where each file is read and summarised: in this process, or on the workers of a Dask cluster.

The step for one file is a pure function of its path; only its summary comes back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from profkit.errors import AnalysisError, ProfkitError
from profkit.model import Trace
from profkit.model.memory_history import MemoryHistory
from profkit.readers import read
from profkit.readers.remote import shown_name, without_secrets
from profkit.report.file_summary import FileSummary, summarise_file, tell
from profkit.report.identity import joined_recording
from profkit.report.joining import Told
from profkit.report.views import Options
from profkit.simulation.exchanged import Exchanged

__all__ = ["AUTO", "LOCAL", "MANY_FILES", "Ask", "Failure", "Result", "Task", "Workers", "work_on", "workers"]

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
    "profkit.report.workers",
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
class Ask:
    """To tell something for the whole report, where the summaries are there already."""

    offset_ns: int
    """What to add to the file's times to have report times."""
    known: Told | None
    """What is told of the memory; None to find that out."""
    exchanged: Exchanged
    """The collectives of all recordings."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One file, and what to make of it."""

    path: str
    then: Sequence[str] = ()
    """Files that follow it on the same device: all are one recording."""
    beside: Sequence[Sequence[str]] = ()
    """Recordings of the same program that give it something; those of each group follow each other."""
    gives: bool = False
    """Whether it only gives something to the timelines of others."""
    options: Options
    left_out: NDArray[np.bool_] | None = None
    ask: Ask | None = None
    """None to summarise it."""
    expand_limit: int | None = None


Result: TypeAlias = FileSummary | Told | Failure


def work_on(task: Task) -> Result:
    """Read one file, and summarise it or what is asked; whatever goes wrong with it is returned, not raised."""
    name = shown_name(task.path)
    try:
        parts = _read(task, (task.path, *task.then))
        beside = [joined_recording(_read(task, paths)) for paths in task.beside]
        if task.ask is None:
            return summarise_file(
                parts, task.options, beside=beside, gives=task.gives, left_out=task.left_out
            )
        return tell(
            [joined_recording(parts), *beside],
            task.options,
            task.left_out,
            task.ask.offset_ns,
            task.ask.known,
            task.ask.exchanged,
        )
    except ProfkitError as error:
        return _failure(task, str(error))
    except Exception as error:  # noqa: BLE001 - one rank's surprise must not cost the report of the others
        return _failure(task, f"{name}: it failed with {type(error).__name__}: {error}")


def _read(task: Task, paths: Sequence[str]) -> list[Trace | MemoryHistory]:
    return [read(path, expand_limit=task.expand_limit) for path in paths]


def _failure(task: Task, message: str) -> Failure:
    """A failure that shows the file's name, and neither its folder nor what an address may hold of secrets."""
    for path in (task.path, *task.then, *chain.from_iterable(task.beside)):
        for written in (path, without_secrets(path)):
            message = message.replace(written, shown_name(path))
    return Failure(shown_name(task.path), without_secrets(message))


class Workers(Protocol):
    """Something that runs tasks."""

    expand_limit: int | None

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """The results with the tasks' numbers, in any order."""


class _ThisProcess:
    """One file after the other."""

    expand_limit: int | None = None

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        for at, task in enumerate(tasks):
            yield at, work_on(task)


class _Dask:
    """The workers of a cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client
        limits = [w["memory_limit"] for w in client.scheduler_info(n_workers=-1)["workers"].values()]
        known = [limit for limit in limits if limit]
        self.expand_limit = min(known) // _EXPANDED_SHARE if known else None

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
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

        number = {self._client.submit(work_on, task, pure=False): at for at, task in tasks.items()}
        for future in as_completed(list(number)):
            yield number.pop(future), future
            future.release()


def _is_killed(future: Any) -> bool:
    return future.status == "error" and type(future.exception()).__name__ == "KilledWorker"


def _result(future: Any, task: Task) -> Result:
    if future.status == "finished":
        found: Result = future.result()
        return found
    if _is_killed(future):
        why = "its worker died, probably out of memory"
    else:
        why = str(future.exception()) if future.status == "error" else f"its task was {future.status}"
    return _failure(task, f"{shown_name(task.path)}: it failed on the cluster: {why}")


@contextmanager
def workers(cluster: str | None, files: int) -> Iterator[Workers]:
    """Who summarises the files.

    Args:
        cluster: The address of a Dask scheduler; `LOCAL` for workers on this machine; None for this process.
        files: How many there are.

    Raises:
        AnalysisError: The cluster cannot be used.
    """
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

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
        """The results; the files that are left when the workers are there are theirs."""
        left = iter(enumerate(tasks))
        while not self._cluster.done():
            at, task = next(left, (-1, None))
            if task is None:
                return
            yield at, work_on(task)
        rest = list(left)
        with self._started() as started:
            for place, result in started.run([task for _, task in rest]):
                yield rest[place][0], result

    @contextmanager
    def _started(self) -> Iterator[Workers]:
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
