"""``run.json``: what `profkit.record` wrote beside its recordings (docs/recording.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

__all__ = ["RunFile", "read_run_file"]

RunFile: TypeAlias = Mapping[str, object]
"""What the file says, by its names: anyone may have written it."""

_LARGEST: Final = 1_000_000


def read_run_file(file: Path) -> RunFile | None:
    """What a file says of a run; None for any other file, however large, and for a pipe or a device."""
    if file.suffix != ".json" or not file.name.startswith("run"):
        return None
    try:
        if not file.is_file():
            return None
        with file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
        told: Any = json.loads(content) if len(content) <= _LARGEST else None
    except (OSError, ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) and str(told.get("schema")).startswith("profkit.run/") else None
