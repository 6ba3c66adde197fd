"""What a run folder tells about its recordings: ``run.json``, which `profkit.record` writes beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from profkit.model.result import Row
from profkit.readers.remote import is_remote

__all__ = ["run_description", "run_steps"]

_LONGEST_NS: Final = 1e15
"""Eleven days: a longer step is a damaged file."""


def run_steps(files: Sequence[str]) -> dict[str, int]:
    """The unprofiled step time of each file that a ``run.json`` beside it lists, in ns, by the file's base name.

    Of several that list files of one name, each in its own folder, the median counts.
    """
    told: dict[str, list[int]] = {}
    for folder in sorted({Path(f).parent for f in files if f != "-" and not is_remote(f)}):
        mine = {Path(f).name for f in files if f != "-" and Path(f).parent == folder}
        for description in map(run_description, sorted(folder.glob("run*.json"))):
            step = (description or {}).get("plain_step_median_ns")
            if description is None or not isinstance(step, int | float) or not 0 < step < _LONGEST_NS:
                continue
            for name in mine.intersection(_listed(description)):
                told.setdefault(name, []).append(round(step))
    return {name: round(median(steps)) for name, steps in told.items()}


def _listed(description: Row) -> Iterable[str]:
    files = description.get("files")
    return (name for name in files if isinstance(name, str)) if isinstance(files, list) else ()


def run_description(file: Path) -> Row | None:
    """What `profkit.record` wrote beside its recordings (docs/recording.md); None for any other file."""
    try:
        if file.suffix != ".json" or not file.name.startswith("run"):
            return None
        if not file.is_file() or file.stat().st_size > 1_000_000:
            return None
        told: Any = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) and str(told.get("schema")).startswith("profkit.run/") else None
