"""Reports, recordings and saved runs in, a comparison out: what ``profkit.compare`` does."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from profkit.api import PathLike, Report, analyze, write_whole
from profkit.comparison import Limits, LimitTexts, compare_reports, judge_limits
from profkit.comparison.rows import PartChange
from profkit.errors import AnalysisError, OutputError, ReadError
from profkit.rendering.comparison_document import (
    ComparisonDocument,
    GateDocument,
    LimitRow,
    SetupRow,
    StepChange,
    comparison_document,
    gate_document,
)
from profkit.rendering.comparisons import (
    COMPARISON_RENDERERS,
    render_comparison_text,
    render_gate_json,
)
from profkit.rendering.formats import format_of
from profkit.saved_runs.report_file import read_report_file

__all__ = [
    "DATABASE",
    "ComparisonReport",
    "Gate",
    "compare",
    "gate",
    "gate_settings",
    "load",
    "save_run",
    "saved_run_of",
]

Source = PathLike | Report
DATABASE: Final = "profkit.db"
"""Where a history is kept unless another place is named."""
_RUN: Final = re.compile(r"(?P<database>.+)#(?P<run>[^#/\\]+)")


@dataclass(frozen=True, eq=False, repr=False)
class ComparisonReport:
    """A finished comparison, which can save and show itself."""

    comparison: ComparisonDocument
    """The same as typed rows, under the names of the published schema."""
    _pages: list[Path] = field(default_factory=list, init=False)
    """Where its page was saved: a notebook's cell links to it."""

    @property
    def verdict(self) -> str:
        """``no change``, ``faster``, ``slower`` or ``not comparable``."""
        return self.comparison.verdict

    @property
    def step(self) -> StepChange:
        """``before_ns``, ``after_ns``, ``noise_ns`` and more, per typical step of one device."""
        return self.comparison.step

    @property
    def parts(self) -> Sequence[PartChange]:
        """What the step's difference consists of, what explains it first."""
        return self.comparison.parts

    @property
    def warnings(self) -> Sequence[SetupRow]:
        """What differs in the setup."""
        return self.comparison.warnings

    def as_dict(self) -> Any:
        """The comparison as `profkit.compare/1`: an object of JSON."""
        return json.loads(COMPARISON_RENDERERS["json"](self.comparison))

    def render(self, format: str) -> str:
        """The comparison as ``html``, ``json``, ``md``, ``text`` or ``csv``.

        Raises:
            OutputError: There is no such format.
        """
        if format not in COMPARISON_RENDERERS:
            raise OutputError(format, "no such format", f"Choose one of {', '.join(COMPARISON_RENDERERS)}")
        return COMPARISON_RENDERERS[format](self.comparison)

    def save(self, path: PathLike) -> Path:
        """Write the comparison to a file; its suffix chooses the format (html without one).

        Raises:
            OutputError: It cannot be written there.
        """
        target = Path(path)
        format = format_of(target, formats=tuple(COMPARISON_RENDERERS))
        write_whole(target, self.render(format))
        if format == "html":
            self._pages.append(target.absolute())
        return target

    def _repr_html_(self) -> str:
        from profkit.rendering.notebook import comparison_cell

        return comparison_cell(self.comparison, self._pages[-1] if self._pages else None)

    def __str__(self) -> str:
        return render_comparison_text(self.comparison)

    def __repr__(self) -> str:
        return f"<ComparisonReport: {self.comparison.sentence}>"


def compare(
    before: Source | Iterable[Source],
    after: Source | Iterable[Source],
    *,
    step: str | None = None,
    device: int | None = None,
    plain_step: str | tuple[str, str] | None = None,
    plain_step_ns: int | tuple[int, int] | None = None,
) -> ComparisonReport:
    """Compare a training step before and after a change.

    Args:
        before: A recording, a folder of recordings of one run, a saved ``report.json``, a saved run
            ``profkit.db#12`` or ``profkit.db#NAME``, or a `Report`; several are repetitions of the same step,
            whose differences count as noise.
        after: The same of the step after.
        step: The name of the ranges that are steps, in recordings.
        device: The report's id of the only device to look at, in recordings.
        plain_step: The step's time without a profiler: of both sides (``38.3ms``), or of the one and the other.
        plain_step_ns: The same in ns.

    Raises:
        ReadError: A file cannot be read.
        ProfkitError: ``plain_step`` is no duration.

    >>> import profkit
    >>> profkit.compare("tests/data/pairs/gpt_item.json.gz", "tests/data/pairs/gpt_none.json.gz").verdict
    'faster'
    """
    texts = plain_step if isinstance(plain_step, tuple) else (plain_step, plain_step)
    times = plain_step_ns if isinstance(plain_step_ns, tuple) else (plain_step_ns, plain_step_ns)
    sides = [
        [
            load(source, step=step, device=device, plain_step=text, plain_step_ns=ns).document
            for source in _as_list(side)
        ]
        for side, text, ns in zip((before, after), texts, times, strict=True)
    ]
    return ComparisonReport(comparison_document(compare_reports(*sides)))


def load(
    source: Source,
    *,
    step: str | None = None,
    device: int | None = None,
    plain_step: str | None = None,
    plain_step_ns: int | None = None,
) -> Report:
    """A report from whatever tells of a run: a saved ``report.json``, a run of a history, or recordings.

    Args:
        source: A file or folder, or ``profkit.db#12``, or ``profkit.db#NAME`` of a baseline; a report is itself.
        step: The name of the ranges that are steps, in recordings: what is saved stays as it was saved.
        device: The report's id of the only device to look at, in recordings.
        plain_step: The step's time without a profiler (``38.3ms``), of recordings.
        plain_step_ns: The same in ns.

    Raises:
        ReadError: It cannot be read.
    """
    if isinstance(source, Report):
        return source
    saved = saved_run_of(source)
    if saved is not None:
        from profkit.saved_runs import History

        with History(saved[0]) as history:
            return Report(history.load(saved[1]))
    document = read_report_file(source) if os.fspath(source) != "-" else None
    if document is not None:
        return Report(document)
    return analyze(source, step=step, device=device, plain_step=plain_step, plain_step_ns=plain_step_ns)


@dataclass(frozen=True)
class Gate:
    """Whether a report keeps its limits."""

    document: GateDocument
    """What was found, under the names of the published schema."""

    @property
    def passed(self) -> bool:
        """Whether the gate opens: all limits are kept, or unknown ones are allowed and none is broken."""
        return self.document.passed

    @property
    def limits(self) -> Sequence[LimitRow]:
        """What was found about each limit."""
        return self.document.limits

    @property
    def failures(self) -> list[str]:
        """What breaks a limit, or cannot be judged, one sentence each."""
        return [row.message for row in self.limits if row.outcome != "kept"]

    @property
    def comparison(self) -> ComparisonReport | None:
        """The report against its baseline, where there is one."""
        against = self.document.comparison
        return None if against is None else ComparisonReport(against)

    def as_dict(self) -> Any:
        """The gate as `profkit.gate/1`: an object of JSON."""
        return json.loads(render_gate_json(self.document))


def gate(  # noqa: PLR0913 - options by name, as on the command line
    report: Source,
    limits: LimitTexts | None = None,
    *,
    baseline: Source | None = None,
    database: PathLike = DATABASE,
    allow_unknown: bool = False,
    step: str | None = None,
    device: int | None = None,
    plain_step: str | None = None,
    plain_step_ns: int | None = None,
) -> Gate:
    """Judge a report by limits.

    Args:
        report: As for `compare`.
        limits: Texts by name: ``{"max-step": "+3%", "max-memory": "40GiB", "min-busy": "80%", "max-idle": "20%",
            "max-launches": "+5%", "max-phase": {"forward": "+5%"}}``. Without any, the step may be 3 % slower.
        baseline: As for `compare`, or the name of a baseline in the database.
        database: The history with the baselines.
        allow_unknown: Whether the gate opens where a limit cannot be judged.
        step: The name of the ranges that are steps, in recordings.
        device: The report's id of the only device to look at, in recordings.
        plain_step: The step's time without a profiler (``38.3ms``), of the report alone.
        plain_step_ns: The same in ns.

    Raises:
        AnalysisError: A limit is wrong, or needs a baseline.
        ReadError: A file cannot be read.

    >>> import profkit
    >>> gate = profkit.gate("tests/data/kineto/sync_item.json.gz", {"min-busy": "80%"})
    >>> gate.passed
    False
    """
    wanted = Limits.of(limits or {})
    if baseline is None and wanted == Limits():
        hint = "Name one with --baseline, or a limit such as --max-step 42ms"
        raise AnalysisError("gate", "neither a baseline nor a limit is given", hint)
    if baseline is None and wanted.need_a_baseline:
        raise AnalysisError("gate", "a limit that starts with + needs a baseline", "Name one with --baseline")
    judged = load(
        report, step=step, device=device, plain_step=plain_step, plain_step_ns=plain_step_ns
    ).document
    before = None
    if baseline is not None:
        before = load(_baseline(baseline, database), step=step, device=device).document
    against = None if before is None else compare_reports([before], [judged])
    found = judge_limits(wanted, judged, before, against)
    told = None if against is None else comparison_document(against)
    return Gate(gate_document(found, told, allow_unknown=allow_unknown))


def save_run(
    report: Report,
    files: Iterable[PathLike] = (),
    database: PathLike | None = None,
    *,
    tags: Mapping[str, str] | None = None,
    baseline: str | None = None,
) -> str:
    """Keep a report in a history.

    Args:
        report: The report.
        files: Its recordings, whose ``run.json`` tells versions and the git revision.
        database: The history; made when it is missing.
        tags: What to find the run by.
        baseline: A name to give the run.

    Returns:
        What to call the run: ``profkit.db#12``.

    Raises:
        OutputError: It cannot be written.
        ReadError: The database is something else.
    """
    from profkit.saved_runs import History, facts_of

    place = DATABASE if database is None else os.fspath(database)
    facts = facts_of(report.document, [os.fspath(file) for file in files])
    with History(place, create=True) as history:
        run = history.save(report.document, tags=tags, environment=facts)
        if baseline is not None:
            history.set_baseline(baseline, run)
    return f"{place}#{run}"


def gate_settings(folder: Path) -> dict[str, Any]:
    """The table ``[tool.profkit.gate]`` of the ``pyproject.toml`` in a folder or the nearest above; empty without.

    Raises:
        ReadError: The file is damaged.
    """
    import tomllib

    for place in (folder, *folder.parents):
        file = place / "pyproject.toml"
        if file.is_file():
            try:
                settings = tomllib.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ReadError(file, f"cannot be read: {error}", "Fix it") from error
            table: Any = settings
            for name in ("tool", "profkit", "gate"):
                table = table.get(name, {}) if isinstance(table, dict) else {}
            return table if isinstance(table, dict) else {}
    return {}


def _baseline(baseline: Source, database: PathLike) -> Source:
    """A name is one of the database, unless a file is called so.

    Raises:
        ReadError: There is none of this name.
    """
    if isinstance(baseline, Report):
        return baseline
    saved = saved_run_of(baseline)
    if saved is None and Path(baseline).exists():
        return baseline
    place, name = saved or (Path(database), os.fspath(baseline))
    if not _has_run(place, name):
        hint = f"Make one: profkit analyze FILE --save --db {place} --baseline NAME"
        raise ReadError(f"{place}#{name}", "there is no such baseline", hint)
    return f"{place}#{name}"


def _has_run(place: Path, name: str) -> bool:
    from profkit.saved_runs import History

    if not place.exists():
        return False
    with History(place) as history:
        return history.has_run(name)


def saved_run_of(source: PathLike) -> tuple[Path, str] | None:
    """The database and the run that ``profkit.db#12`` names; None for another source, also a file with a ``#``."""
    match = _RUN.fullmatch(os.fspath(source))
    return None if match is None or Path(source).exists() else (Path(match["database"]), match["run"])


def _as_list(sources: Any) -> Sequence[Source]:
    if isinstance(sources, str | os.PathLike | Report):
        return [sources]
    return list(sources)
