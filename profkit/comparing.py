"""Reports, recordings and saved runs in, a comparison out: what ``profkit.compare`` does."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profkit.analysis.comparison import Comparison, compare_results
from profkit.analysis.result import Row
from profkit.api import PathLike, Report, analyze, write_whole
from profkit.errors import OutputError
from profkit.history.report_file import read_report_file
from profkit.rendering import COMPARISON_RENDERERS, render_comparison_html, render_comparison_text

__all__ = ["ComparisonReport", "compare", "open_report", "saved_run_of"]

Source = PathLike | Report
_FORMATS: Final = {".html": "html", ".htm": "html", ".json": "json", ".md": "md", ".txt": "text"}
_RUN: Final = re.compile(r"(?P<database>.+)#(?P<run>[^#/\\]+)")


@dataclass(frozen=True, eq=False)
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
        """Write the comparison to a file; its suffix chooses the format (html when it says nothing).

        Raises:
            OutputError: It cannot be written there.
        """
        target = Path(path)
        write_whole(target, self.render(_FORMATS.get(target.suffix.lower(), "html")))
        return target

    def _repr_html_(self) -> str:
        import html

        page = html.escape(render_comparison_html(self.comparison), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:720px;border:0" sandbox></iframe>'

    def __str__(self) -> str:
        return render_comparison_text(self.comparison)


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
    sides = [[_opened(source, step).result for source in _as_list(side)] for side in (before, after)]
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
        from profkit.history import History

        with History(saved[0]) as history:
            return Report(history.load(saved[1]))
    result = read_report_file(source) if os.fspath(source) != "-" else None
    return Report(result) if result is not None else analyze(source, step=step)


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
