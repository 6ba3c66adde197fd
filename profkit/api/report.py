"""Files in, a report out: what ``profkit.analyze`` does."""

from __future__ import annotations

import filecmp
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from profkit.api.output_files import write_whole
from profkit.api.run_folder import run_steps
from profkit.errors import OutputError, ReadError
from profkit.model import Finding, Severity, rows
from profkit.model.report import (
    AdviceRow,
    CommunicationRow,
    DeviceRow,
    KernelRow,
    OperatorRow,
    PhaseRow,
    RangeRow,
    RankRow,
    SyncRow,
)
from profkit.model.report_precision import OperatorTypes, PrecisionRow
from profkit.model.report_time import GapRow
from profkit.readers import read
from profkit.readers.registry import RECORDING_SUFFIXES, without_exported
from profkit.readers.remote import is_remote, list_remote, shown_name
from profkit.rendering import RENDERERS, render_html, render_json, render_text
from profkit.rendering.document import Document, StepRow, Verdict
from profkit.rendering.document_of import document_of
from profkit.rendering.formats import format_of
from profkit.report.assembly import summarise, time_offsets, timelines
from profkit.report.many_files import AUTO, MANY_FILES, failure_findings, summarise_many, with_findings
from profkit.report.views import Options
from profkit.saved_runs.run_file import read_run_file

if TYPE_CHECKING:
    import pandas as pd

    from profkit.hardware import Gpu
    from profkit.model import Trace
    from profkit.model.memory_history import MemoryHistory

__all__ = ["Report", "analyze", "expand", "export_timeline", "refuse_input"]

PathLike = str | os.PathLike[str]

JsonObject: TypeAlias = dict[str, Any]
"""An object of JSON."""


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """A finished analysis: tables as DataFrames, and a page.

    Every table of `profkit.report/2` is an attribute: ``report.kernels``, ``report.phases``, ``report.steps``,
    ``report.operators``, ``report.ranges``, ``report.syncs``, ``report.gaps``, ``report.devices``,
    ``report.communication``, ``report.ranks``, ``report.advice``, ``report.precision``, ``report.operator_types``. Times are ns, sizes bytes, shares 0..1.
    """

    document: Document
    """The report as typed rows with their sentences: what is published as `profkit.report/2`."""

    @property
    def verdict(self) -> Verdict:
        """The verdict: ``bound``, ``share``, ``sentence``, ``shares`` and more."""
        return self.document.verdict

    @property
    def kernels(self) -> pd.DataFrame:
        """The kernel breakdown, most expensive first."""
        return _frame(KernelRow, self.document.kernels)

    @property
    def phases(self) -> pd.DataFrame:
        """The phases by path."""
        return _frame(PhaseRow, self.document.phases)

    @property
    def steps(self) -> pd.DataFrame:
        """The steps; ``kept`` ones make the window."""
        return _frame(StepRow, self.document.window.steps)

    @property
    def devices(self) -> pd.DataFrame:
        """The devices with their shares."""
        return _frame(DeviceRow, self.document.devices)

    @property
    def operators(self) -> pd.DataFrame:
        """Operators by name and phase."""
        return _frame(OperatorRow, self.document.operators)

    @property
    def precision(self) -> pd.DataFrame:
        """Which arithmetic ran in each phase, on which unit."""
        return _frame(PrecisionRow, self.document.precision)

    @property
    def operator_types(self) -> pd.DataFrame:
        """Which types operators took, computed in and gave."""
        return _frame(OperatorTypes, self.document.operator_types)

    @property
    def ranges(self) -> pd.DataFrame:
        """Ranges that are no phases."""
        return _frame(RangeRow, self.document.ranges)

    @property
    def syncs(self) -> pd.DataFrame:
        """Waits of the host and what they cost."""
        return _frame(SyncRow, self.document.syncs)

    @property
    def gaps(self) -> pd.DataFrame:
        """The longest idle stretches with their causes."""
        return _frame(GapRow, self.document.idle.gaps)

    @property
    def communication(self) -> pd.DataFrame:
        """Collectives."""
        return _frame(CommunicationRow, self.document.communication)

    @property
    def ranks(self) -> pd.DataFrame:
        """Ranks."""
        return _frame(RankRow, self.document.ranks)

    @property
    def advice(self) -> pd.DataFrame:
        """What to do, by what it saves."""
        return _frame(AdviceRow, self.document.advice)

    def as_dict(self) -> JsonObject:
        """The report as `profkit.report/2`: an object of JSON."""
        document: JsonObject = json.loads(render_json(self.document))
        return document

    def render(self, format: str) -> str:
        """The report as ``html``, ``json``, ``md``, ``text`` or ``csv``.

        Raises:
            OutputError: There is no such format.
        """
        if format not in RENDERERS:
            raise OutputError(format, "no such format", f"Choose one of {', '.join(RENDERERS)}")
        return RENDERERS[format](self.document)

    def save(self, path: PathLike) -> Path:
        """Write the report to a file; its suffix chooses the format (html without one).

        The file appears whole or not at all.

        Raises:
            OutputError: It cannot be written there.
        """
        target = Path(path)
        text = self.render(format_of(target))
        write_whole(target, text)
        return target

    def _repr_html_(self) -> str:
        import html

        page = html.escape(render_html(self.document), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:720px;border:0" sandbox="allow-scripts"></iframe>'

    def __str__(self) -> str:
        return render_text(self.document)

    def __repr__(self) -> str:
        return f"<Report: {self.verdict.sentence}>"


def analyze(  # noqa: PLR0913 - options by name, as on the command line
    paths: PathLike | Iterable[PathLike],
    *,
    step: str | None = None,
    device: int | None = None,
    peaks: Gpu | None = None,
    plain_step_ns: int | None = None,
    progress: Callable[[str], None] | None = None,
    cluster: str | None = None,
) -> Report:
    """Read recordings and analyse them as one report.

    Args:
        paths: One or several files or folders: nsys exports or reports, torch.profiler traces, memory snapshots,
            also compressed; ``-`` is standard input. Remote ones and patterns too: ``s3://bucket/run/*.json.gz``.
        step: The name of the ranges that are steps, where they are not called step, iteration or ProfilerStep#N.
        device: The report's id of the only device to look at.
        peaks: Rates of the GPU, in place of the table's.
        plain_step_ns: The step's time without a profiler, in ns; a ``run.json`` that lists a file tells it by itself.
        progress: Called with a few words before each long piece of work.
        cluster: Where to summarise many files: the address of a Dask scheduler (``tcp://host:8786``), ``local`` for
            workers on this machine, ``auto`` for those only when there are many files. Then a file that cannot be
            read is a finding, and the others are reported. By default all is done in this process. A script that
            asks for ``local`` or ``auto`` needs ``if __name__ == "__main__"``: workers are new processes.

    Raises:
        ReadError: A file cannot be read; the message says why and what to do.
        AnalysisError: The cluster cannot be used.
    """
    given = expand(paths)
    files = distinct_files(given)
    options = Options(
        step_name=step,
        device=device,
        peaks=peaks,
        plain_step_ns=plain_step_ns,
        run_steps=run_steps(files),
    )
    findings: list[Finding] = []
    if cluster is not None and (cluster != AUTO or len(files) >= MANY_FILES) and device is None:
        found = summarise_many(files, options, cluster, progress)
    else:
        say = progress or (lambda _: None)
        recordings, failures = _read_all(files, say)
        say("analysing")
        found, findings = summarise(recordings, options), failure_findings(failures)
    if len(files) < len(given):
        findings.append(Finding("file-repeated", Severity.WARNING, count=len(given) - len(files)))
    return Report(document_of(with_findings(found, findings) if findings else found))


def _read_all(
    files: Sequence[str], say: Callable[[str], None]
) -> tuple[list[Trace | MemoryHistory], list[str]]:
    """The recordings, and what is wrong with each file that is none; of several, some may fail."""
    recordings: list[Trace | MemoryHistory] = []
    failures: list[str] = []
    for number, file in enumerate(files, 1):
        say(f"reading {Path(file).name}" + (f" ({number} of {len(files)})" if len(files) > 1 else ""))
        try:
            recordings.append(read(file))
        except ReadError as error:
            failures.append(str(error).replace(file, shown_name(file)))
            if len(failures) == len(files):
                raise
    return recordings, failures


def export_timeline(paths: PathLike | Iterable[PathLike], *, step: str | None = None) -> bytes:
    """Recordings as a timeline for Perfetto, gzip-compressed.

    Args:
        paths: As for `analyze`.
        step: The name of the ranges that are steps.

    Raises:
        ReadError: A file cannot be read.
    """
    from profkit.rendering.perfetto import render_perfetto

    recordings = [read(file) for file in expand(paths)]
    views, memory = timelines(recordings, Options(step_name=step))
    return render_perfetto(views, time_offsets(views), memory.curve if memory else ())


def refuse_input(target: Path, inputs: Iterable[PathLike]) -> None:
    """Never write over what was read: a file, one of a folder or pattern, standard input, a history (``DB#RUN``).

    Raises:
        OutputError: The target is one of the inputs.
    """
    try:
        place = target.stat()
    except OSError:  # nothing is there, or writing will say what is wrong
        return
    if any(os.path.samestat(place, source) for each in inputs for source in _stats(each)):
        raise OutputError(target, "it is one of the inputs", "Choose another file with -o")


def _stats(path: PathLike) -> Iterator[os.stat_result]:
    """Where the files lie that an input stands for, as far as they lie on this machine."""
    if str(path) == "-":
        with suppress(OSError, ValueError, AttributeError):  # closed, or no real file
            yield os.fstat(sys.stdin.fileno())
        return
    files: list[str] = []
    with suppress(ReadError):
        files = [] if is_remote(str(path)) else _expand(path)
    for file in (*files, str(path).partition("#")[0]):
        with suppress(OSError, ValueError):
            yield Path(file).stat()


def expand(paths: PathLike | Iterable[PathLike]) -> list[str]:
    """The files that inputs stand for: those of folders and patterns too, in the order of a report.

    Raises:
        ReadError: A folder has no recording in it.
    """
    return [file for path in _as_list(paths) for file in _expand(path)]


def _as_list(paths: PathLike | Iterable[PathLike]) -> list[PathLike]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


def _expand(path: PathLike) -> list[str]:
    """A folder stands for the recordings in it (not for reports of ours), a pattern for what matches.

    An nsys report whose export lies beside it is the same recording, and is not read again.
    """
    if is_remote(str(path)):
        return list_remote(str(path), RECORDING_SUFFIXES)
    if any(c in str(path) for c in "*?[") and not Path(path).exists():
        return sorted(glob(str(path))) or [os.fspath(path)]  # noqa: PTH207 - a Path has no absolute pattern
    if str(path) == "-" or not Path(path).is_dir():
        return [os.fspath(path)]
    folder = Path(path)
    found = sorted(
        str(f)
        for f in folder.iterdir()
        if f.is_file()
        and f.name.endswith(RECORDING_SUFFIXES)
        and read_run_file(f) is None
        and not _is_report(f)
    )
    if not found:
        raise ReadError(
            folder.name, "the folder has no recording in it", "Name a file, or record with profkit.record"
        )
    return without_exported(found)


def distinct_files(files: Sequence[str]) -> list[str]:
    """Each recording once: the same file under two names, or a copy of it, would count twice."""
    by_size: dict[int | None, list[str]] = {}
    found: list[str] = []
    for file in files:
        same_size = by_size.setdefault(_size(file), [])
        if not any(_is_same(file, other) for other in same_size):
            same_size.append(file)
            found.append(file)
    return found


def _size(file: str) -> int | None:
    try:
        return None if is_remote(file) or file == "-" else Path(file).stat().st_size
    except OSError:  # reading says it
        return None


def _is_same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return _size(one) is not None and filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _is_report(file: Path) -> bool:
    """Whether a file is a report or a comparison that profkit has written."""
    try:
        with file.open("rb") as opened:
            return file.suffix == ".json" and b'"schema": "profkit.' in opened.read(100)
    except OSError:
        return False


def _frame(kind: type[rows.Row], table: Sequence[rows.Row]) -> pd.DataFrame:
    """A table as a DataFrame with all columns of its rows, also where it is empty."""
    import pandas as pd

    return pd.DataFrame(msgspec.to_builtins(table), columns=list(kind.__struct_encode_fields__))
