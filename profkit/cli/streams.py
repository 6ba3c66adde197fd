"""Standard streams that take any text, whatever their encoding, and also where the caller has closed them."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import Final
from unicodedata import normalize

import click

from profkit.errors import printable

__all__ = ["echo", "echo_document", "prepare_streams"]

_HANDLER: Final = "profkit.replace"
_SIMILAR: Final = {
    "–": "-",
    "—": "-",
    "×": "x",
    "→": "->",
    "≥": ">=",
    "≤": "<=",
    "≈": "~",
    "█": "#",
    "·": ".",
}
"""For what reports print and Unicode decomposes into nothing of ASCII."""


def prepare_streams() -> None:
    """Let standard output and errors take any text: what their encoding lacks is replaced, never a traceback."""
    _replace_closed()
    codecs.register_error(_HANDLER, _replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_similar, error.object[error.start : error.end])), error.end


def _similar(character: str) -> str:
    """The nearest text in ASCII, a question mark where there is none."""
    return _SIMILAR.get(character) or normalize("NFKD", character).encode("ascii", "ignore").decode() or "?"


def _replace_closed() -> None:
    """Streams in place of those that the caller has closed, so that no file of ours gets their numbers.

    Nothing can be written to that of standard output: a report that was to be printed is not lost silently.
    """
    if sys.stdout is None:
        unwritable = io.FileIO(os.open(os.devnull, os.O_RDONLY), "w")  # no buffer keeps what fails
        sys.stdout = io.TextIOWrapper(unwritable, encoding="utf-8", write_through=True)
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")


def echo(text: str, *, err: bool = False) -> None:
    """Print lines; characters that would control the terminal are shown as ``?``."""
    click.echo("\n".join(map(printable, text.split("\n"))), err=err)


def echo_document(text: str, format: str) -> None:
    """Print a rendered report, which is safe as it is; a page says of itself that it is UTF-8."""
    click.echo(text.encode() if format == "html" else text, nl=False)
