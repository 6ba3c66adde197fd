"""What a run folder tells about its recordings: ``run.json``, which `profkit.record` writes beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

from profkit.readers.remote import is_remote

__all__ = ["run_description", "run_steps"]

JsonObject: TypeAlias = dict[str, Any]

_LONGEST_NS: Final = 1e15
"""Eleven days: a longer step is a damaged file."""


def run_steps(files: Sequence[str]) -> dict[str, int]:
    """The unprofiled step time of each file that a ``run.json`` beside it lists, in ns, by the file's base name.

    Of several that list files of one name, each in its own folder, the median counts.
    """
    told: dict[str, list[int]] = {}
    for folder in sorted({Path(f).parent for f in files if f != "-" and not is_remote(f)}):
        mine = [Path(f).name for f in files if f != "-" and Path(f).parent == folder]
        for description in map(run_description, sorted(folder.glob("run*.json"))):
            step = (description or {}).get("plain_step_median_ns")
            if description is None or not isinstance(step, int | float) or not 0 < step < _LONGEST_NS:
                continue
            listed = _stems(description)
            for name in mine:
                if name.partition(".")[0] in listed:
                    told.setdefault(name, []).append(round(step))
    return {name: round(median(steps)) for name, steps in told.items()}


def _stems(run: JsonObject) -> set[str]:
    """The files that a run lists, without suffixes: an export stands for its report."""
    files = run.get("files")
    listed = files if isinstance(files, list) else []
    return {name.partition(".")[0] for name in listed if isinstance(name, str)}


def run_description(file: Path) -> JsonObject | None:
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
