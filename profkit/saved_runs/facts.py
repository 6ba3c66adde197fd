"""What a run was recorded with, as far as its folder or this one tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from profkit.model.report import Report
from profkit.recording.environment import git_state
from profkit.saved_runs.run_file import read_run_file

__all__ = ["facts_of"]

_LONGEST: Final = 200


def facts_of(report: Report, files: Iterable[str]) -> dict[str, str]:
    """Facts about a run: what its files say of themselves, its run's description, and the revision of the program.

    The revision is that of the description, or else that of the folder where profkit runs.

    Args:
        report: The report.
        files: The recordings' paths.
    """
    facts: dict[str, str] = {}
    for row in report.inputs:
        _add(facts, row.facts)
    told = _run_file(files)
    _add(facts, told.get("versions"))
    _add(facts, {"driver": told.get("driver"), "started": told.get("started")})
    git = told.get("git") if isinstance(told.get("git"), dict) else git_state(Path.cwd())
    if isinstance(git, dict):
        _add(facts, {"git_revision": git.get("revision"), "git_dirty": git.get("dirty")})
    return facts


def _add(facts: dict[str, str], more: object) -> None:
    if isinstance(more, Mapping):
        facts |= {
            str(k)[:_LONGEST]: str(v)[:_LONGEST] for k, v in more.items() if isinstance(v, str | int | float)
        }


def _run_file(files: Iterable[str]) -> Mapping[str, object]:
    """What `profkit.record` wrote beside its recordings (docs/recording.md), when they lie in one folder."""
    folders = {path if path.is_dir() else path.parent for path in map(Path, files) if str(path) != "-"}
    found = sorted(folders.pop().glob("run*.json")) if len(folders) == 1 else []
    return next((told for told in map(read_run_file, found) if told is not None), {})
