"""The files that were read, as lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from profkit.model.report import InputRow
from profkit.units import count_text

__all__ = ["input_lines"]

_FEW: Final = 4
"""So many files are all named."""


def input_lines(inputs: Sequence[InputRow]) -> list[tuple[str, str]]:
    """Each file and what wrote it; of many that differ in numbers only, their pattern and count: ``rank*.json (64 files)``."""
    groups: dict[tuple[str, str], list[InputRow]] = {}
    for row in inputs:
        pattern = re.sub(r"\d+", "*", row.path) if len(inputs) > _FEW else row.path
        groups.setdefault((pattern, _tool(row)), []).append(row)
    return [(_pattern([row.path for row in rows]), tool) for (_, tool), rows in groups.items()]


def _pattern(paths: Sequence[str]) -> str:
    """Paths that differ in numbers as one, with a star for each number that is not the same in all."""
    if len(paths) == 1:
        return paths[0]
    parts = zip(*(re.split(r"(\d+)", path) for path in paths), strict=True)
    shown = "".join(part[0] if len(set(part)) == 1 else "*" for part in parts)
    return f"{shown} ({count_text(len(paths))} files)"


def _tool(row: InputRow) -> str:
    return " ".join(filter(None, (row.tool, row.tool_version))) or row.format
