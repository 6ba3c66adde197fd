"""The format of a report or a comparison, by the suffix of its file."""

from __future__ import annotations

import os
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


def format_of(path: str | os.PathLike[str], given: str | None = None) -> str:
    """The format that a file's suffix asks for, unless one is given; html without a suffix.

    Raises:
        OutputError: No format has this suffix, so that the file would not be what its name says.
    """
    suffix = Path(path).suffix.lower()
    if given is None and suffix and suffix not in _FORMATS:
        names = ", ".join(_FORMATS)
        raise OutputError(path, f"no format is called {suffix}", f"Choose one of {names}, or name a format")
    return given or _FORMATS.get(suffix, "html")
