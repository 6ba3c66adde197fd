"""Files in, a report out: what ``profkit.analyze`` does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from profkit.api.events import Recordings
from profkit.api.inputs import PathLike, distinct_files, expand
from profkit.api.output_files import write_whole
from profkit.api.run_folder import compiled_lines, run_steps, stated_step_ns
from profkit.api.tables import Per, table_of
from profkit.errors import AnalysisError, OutputError, ReadError
from profkit.hardware import Gpu, stated_gpu
from profkit.model import Finding, Severity
from profkit.readers import read
from profkit.readers.remote import shown_name
from profkit.rendering import RENDERERS, render_json, render_text
from profkit.rendering.document import Document, Verdict
from profkit.rendering.document_of import document_of
from profkit.rendering.formats import format_of
from profkit.report.assembly import summarise
from profkit.report.many_files import failure_findings, summarise_many, with_findings
from profkit.report.views import Options
from profkit.report.workers import AUTO, MANY_FILES

if TYPE_CHECKING:
    import pandas as pd

    from profkit.model import Trace
    from profkit.model.memory_history import MemoryHistory

__all__ = ["Report", "analyze"]

JsonObject: TypeAlias = dict[str, Any]
"""An object of JSON."""


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """A finished analysis: tables as DataFrames, and a page. It shows a summary of itself in a notebook.

    Tables are DataFrames of the window's sums, under the names of `profkit.report/2`, and keep their columns when
    empty: times are in ns (``_ns``), sizes in bytes (``_bytes``), shares 0 to 1, unknown is None. `table` gives them
    per step.

    >>> import profkit
    >>> report = profkit.analyze("tests/data/kineto/sync_item.json.gz")
    >>> report.verdict.bound
    'launch'
    >>> bool(report.idle.total_ns.sum() == report.document.idle.total_ns)
    True
    """

    document: Document
    """The report as typed rows with their sentences: what is published as `profkit.report/2`."""
    recordings: Recordings | None = None
    """What it was made of; None for one that was saved."""
    _pages: list[Path] = field(default_factory=list, init=False)
    """Where its page was saved: a notebook's cell links to it."""

    @property
    def verdict(self) -> Verdict:
        """The verdict: ``bound``, ``share``, ``sentence``, ``shares`` and more."""
        return self.document.verdict

    def table(self, name: str, per: Per = "step") -> pd.DataFrame:
        """A table by name: ``kernels``, ``phases``, ``idle`` and the others that are attributes.

        Args:
            name: The attribute's name.
            per: ``step`` for what one step of one device has, with times in ms (``total_ms``); ``window`` for the
                sums over all kept steps and devices, in ns (``total_ns``), which the attributes have too.

        Raises:
            AnalysisError: There is no such table.
        """
        return table_of(self.document, name, per)

    @property
    def kernels(self) -> pd.DataFrame:
        """The kernel breakdown, most expensive first."""
        return table_of(self.document, "kernels")

    @property
    def phases(self) -> pd.DataFrame:
        """The phases by path."""
        return table_of(self.document, "phases")

    @property
    def steps(self) -> pd.DataFrame:
        """The steps; ``kept`` ones make the window."""
        return table_of(self.document, "steps")

    @property
    def devices(self) -> pd.DataFrame:
        """The devices with their shares."""
        return table_of(self.document, "devices")

    @property
    def operators(self) -> pd.DataFrame:
        """Operators by name and phase."""
        return table_of(self.document, "operators")

    @property
    def precision(self) -> pd.DataFrame:
        """Which arithmetic ran in each phase, on which unit."""
        return table_of(self.document, "precision")

    @property
    def operator_types(self) -> pd.DataFrame:
        """Which types operators took, computed in and gave."""
        return table_of(self.document, "operator_types")

    @property
    def ranges(self) -> pd.DataFrame:
        """Ranges that are no phases."""
        return table_of(self.document, "ranges")

    @property
    def sources(self) -> pd.DataFrame:
        """Modules and functions of the program by what they launched."""
        return table_of(self.document, "sources")

    @property
    def fusion(self) -> pd.DataFrame:
        """Chains of the median step's kernels that one kernel could do, with the bytes that saves."""
        return table_of(self.document, "fusion")

    @property
    def syncs(self) -> pd.DataFrame:
        """Waits of the host and what they cost."""
        return table_of(self.document, "syncs")

    @property
    def idle(self) -> pd.DataFrame:
        """Idle time by cause, summed over the devices, most first; `gaps` has the single stretches."""
        return table_of(self.document, "idle")

    @property
    def gaps(self) -> pd.DataFrame:
        """The longest idle stretches with their causes."""
        return table_of(self.document, "gaps")

    @property
    def memory(self) -> pd.DataFrame:
        """Who holds memory at its peak, in bytes, most first; `Report.document` has the other tables of memory."""
        return table_of(self.document, "memory")

    @property
    def communication(self) -> pd.DataFrame:
        """Collectives."""
        return table_of(self.document, "communication")

    @property
    def ranks(self) -> pd.DataFrame:
        """Ranks."""
        return table_of(self.document, "ranks")

    @property
    def advice(self) -> pd.DataFrame:
        """What to do, by what it saves."""
        return table_of(self.document, "advice")

    @property
    def health(self) -> pd.DataFrame:
        """What was found about the files, most severe first."""
        return table_of(self.document, "health")

    @cached_property
    def launches(self) -> pd.DataFrame:
        """Every device operation of the whole files, one row each, by device and start.

        Kernels, copies and memsets with ``device``, ``stream``, ``step`` (None outside of steps), ``phase``, ``operator``,
        ``shapes``, ``name``, ``short_name``, ``dtype``, ``start_ns``, ``duration_ns``, ``grid`` and ``block`` (triples),
        ``bound``, ``basis``, ``flop``, ``dram_bytes``, ``efficiency`` (0 to 1). The files are read again for it.

        Raises:
            AnalysisError: The report was saved, or read from standard input: its events are gone.
            ReadError: A file is no longer there.
        """
        if self.recordings is None:
            hint = "Analyse the recording again"
            raise AnalysisError("launches", "a saved report has tables, and no single events", hint)
        return self.recordings.launches()

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
        if format_of(target) == "html":
            self._pages.append(target.absolute())
        return target

    def _repr_html_(self) -> str:
        from profkit.rendering.notebook import report_cell

        return report_cell(self.document, self._pages[-1] if self._pages else None)

    def __str__(self) -> str:
        return render_text(self.document)

    def __repr__(self) -> str:
        return f"<Report: {self.verdict.sentence}>"


def analyze(  # noqa: PLR0913 - options by name, as on the command line
    paths: PathLike | Iterable[PathLike],
    *,
    step: str | None = None,
    device: int | None = None,
    phase: str | None = None,
    peaks: Gpu | PathLike | None = None,
    plain_step: str | None = None,
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
        phase: The only phase that tables show, with what lies in it: ``forward``, or ``forward/loss``. The verdict
            stays that of the step.
        peaks: Rates of the GPU, in place of those of the recorded one: a name such as ``H100``, or a file of rates.
        plain_step: The step's time without a profiler: ``38.3ms``. A ``run.json`` that lists a file tells it by itself.
        plain_step_ns: The same in ns.
        progress: Called with a few words before each long piece of work.
        cluster: Where to summarise many files: the address of a Dask scheduler (``tcp://host:8786``), ``local`` for
            workers on this machine, ``auto`` for those only when there are many files. Then a file that cannot be
            read is a finding, and the others are reported. By default all is done in this process. A script that
            asks for ``local`` or ``auto`` needs ``if __name__ == "__main__"``: workers are new processes.

    Raises:
        ReadError: A file cannot be read; the message says why and what to do.
        AnalysisError: The cluster cannot be used, or there is no such device, step or phase.
        ProfkitError: ``peaks`` is no known GPU, or ``plain_step`` no duration.
    """
    given = expand(paths)
    files = distinct_files(given)
    options = Options(
        step_name=step,
        device=device,
        phase=phase,
        peaks=stated_gpu(peaks),
        plain_step_ns=stated_step_ns(plain_step, plain_step_ns),
        run_steps=run_steps(files),
        compiled_lines=compiled_lines(files),
    )
    findings: list[Finding] = []
    if cluster is not None and (cluster != AUTO or len(files) >= MANY_FILES) and device is None:
        found = summarise_many(files, options, cluster, progress)
    else:
        say = progress or (lambda _: None)
        recordings, failures = _read_all(files, say)
        say("analysing")
        found, findings = summarise(recordings, options), failure_findings(failures)
    if phase is not None and not found.phases:
        raise AnalysisError(
            f"phase {phase!r}", "no phase has this name", "The report without --phase lists them"
        )
    if len(files) < len(given):
        findings.append(Finding("file-repeated", Severity.WARNING, count=len(given) - len(files)))
    document = document_of(with_findings(found, findings) if findings else found)
    return Report(document, Recordings(files, options))


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
