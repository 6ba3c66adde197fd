"""The format of a report or a comparison, by the suffix of its file."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from profkit.errors import OutputError

__all__ = ["format_of"]

_FORMATS: Final = {
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".md": "md",
    ".txt": "text",
    ".csv": "csv",
}


def format_of(
    path: str | os.PathLike[str],
    given: str | None = None,
    formats: Collection[str] = tuple(_FORMATS.values()),
) -> str:
    """The format that a file's suffix asks for, unless one is given; html without a suffix.

    Args:
        path: The file; of one that is called ``.json`` that is the suffix.
        given: The format that was asked for.
        formats: Those that there are.

    Raises:
        OutputError: No format has this suffix, so that the file would not be what its name says.
    """
    suffix = Path("x" + Path(path).name).suffix.lower()
    if given is None and suffix and _FORMATS.get(suffix) not in formats:
        names = ", ".join(suffix for suffix, name in _FORMATS.items() if name in formats)
        raise OutputError(path, f"there is no format {suffix}", f"Choose one of {names}, or name a format")
    return given or _FORMATS.get(suffix, "html")
