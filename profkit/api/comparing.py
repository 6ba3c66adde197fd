"""Reports, recordings and saved runs in, a comparison out: what ``profkit.compare`` does."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from profkit.api import PathLike, Report, analyze, write_whole
from profkit.comparison import Comparison, Limits, broken_limits, compare_results
from profkit.errors import AnalysisError, OutputError, ReadError
from profkit.model.result import Result, Row
from profkit.rendering.comparisons import (
    COMPARISON_RENDERERS,
    render_comparison_html,
    render_comparison_text,
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
    "open_report",
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

    comparison: Comparison
    """The same as plain values, under the names of the published schema."""

    @property
    def verdict(self) -> str:
        """``no change``, ``faster``, ``slower`` or ``not comparable``."""
        return self.comparison.verdict

    @property
    def step(self) -> Row:
        """``before_ns``, ``after_ns``, ``noise_ns`` and more, per step of one device."""
        return self.comparison.step

    @property
    def parts(self) -> list[Row]:
        """What the step's difference consists of, what explains it first."""
        return self.comparison.parts

    @property
    def warnings(self) -> list[Row]:
        """What differs in the setup."""
        return self.comparison.warnings

    def as_dict(self) -> Row:
        """The comparison as `profkit.compare/1`."""
        document: Row = json.loads(COMPARISON_RENDERERS["json"](self.comparison))
        return document

    def render(self, format: str) -> str:
        """The comparison as ``html``, ``json``, ``md`` or ``text``.

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
        write_whole(target, self.render(format_of(target, formats=tuple(COMPARISON_RENDERERS))))
        return target

    def _repr_html_(self) -> str:
        import html

        page = html.escape(render_comparison_html(self.comparison), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:720px;border:0" sandbox></iframe>'

    def __str__(self) -> str:
        return render_comparison_text(self.comparison)

    def __repr__(self) -> str:
        return f"<ComparisonReport: {self.comparison.sentence}>"


def compare(
    before: Source | Iterable[Source], after: Source | Iterable[Source], *, step: str | None = None
) -> ComparisonReport:
    """Compare a training step before and after a change.

    Args:
        before: A recording, a folder of recordings of one run, a saved ``report.json``, a saved run
            ``profkit.db#12`` or ``profkit.db#NAME``, or a `Report`; several are repetitions of the same step,
            whose differences count as noise.
        after: The same of the step after.
        step: The name of the ranges that are steps, in recordings.

    Raises:
        ReadError: A file cannot be read.
    """
    sides = [
        [cast(Result, _opened(source, step).document) for source in _as_list(side)]
        for side in (before, after)
    ]
    return ComparisonReport(compare_results(*sides))


def open_report(source: PathLike, *, step: str | None = None) -> Report:
    """A report from whatever tells of a run: recordings, a saved ``report.json``, or a run of a history database.

    Args:
        source: A file or folder, or ``profkit.db#12``, or ``profkit.db#NAME`` of a baseline.
        step: The name of the ranges that are steps, in recordings.

    Raises:
        ReadError: It cannot be read.
    """
    saved = saved_run_of(source)
    if saved is not None:
        from profkit.saved_runs import History

        with History(saved[0]) as history:
            return Report(cast(Result, history.load(saved[1])))
    result = read_report_file(source) if os.fspath(source) != "-" else None
    return Report(cast(Result, result)) if result is not None else analyze(source, step=step)


@dataclass(frozen=True)
class Gate:
    """Whether a report keeps its limits."""

    failures: list[str]
    """What breaks them, one sentence each."""
    comparison: ComparisonReport | None
    """The report against its baseline, where there is one."""

    @property
    def passed(self) -> bool:
        """Whether all limits are kept."""
        return not self.failures


def gate(
    report: Source,
    limits: Mapping[str, Any] | None = None,
    *,
    baseline: Source | None = None,
    database: PathLike = DATABASE,
) -> Gate:
    """Judge a report by limits.

    Args:
        report: As for `compare`.
        limits: Texts by name: ``{"max-step": "+3%", "max-memory": "40GiB", "min-busy": "80%", "max-idle": "20%",
            "max-launches": "+5%", "max-phase": {"forward": "+5%"}}``. Without any, the step may not become slower.
        baseline: As for `compare`, or the name of a baseline in the database.
        database: The history with the baselines.

    Raises:
        AnalysisError: A limit is wrong, or needs a baseline.
        ReadError: A file cannot be read.
    """
    wanted = Limits.of(limits or {})
    if baseline is None and wanted == Limits():
        hint = "Name one with --baseline, or a limit such as --max-step 42ms"
        raise AnalysisError("gate", "neither a baseline nor a limit is given", hint)
    if baseline is None and wanted.need_a_baseline:
        raise AnalysisError("gate", "a limit that starts with + needs a baseline", "Name one with --baseline")
    judged = cast(Result, _opened(report, None).document)
    against = None
    if baseline is not None:
        before = cast(Result, _opened(_baseline(baseline, database), None).document)
        against = ComparisonReport(compare_results([before], [judged]))
    return Gate(broken_limits(wanted, judged, against.comparison if against else None), against)


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
    facts = facts_of(report.result, [os.fspath(file) for file in files])
    with History(place, create=True) as history:
        run = history.save(report.result, tags=tags, environment=facts)
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
                raise ReadError(file, f"cannot be read: {error}", "Mend it") from error
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


def _opened(source: Source, step: str | None) -> Report:
    return source if isinstance(source, Report) else open_report(source, step=step)


def _as_list(sources: Any) -> Sequence[Source]:
    if isinstance(sources, str | os.PathLike | Report):
        return [sources]
    return list(sources)
