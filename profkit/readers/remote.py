"""Paths beyond this machine, ``s3://bucket/run/*.json.gz``: whatever fsspec has a file system for."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import PurePath
from typing import IO, TYPE_CHECKING, Any, Final, Self, cast

from profkit.errors import ReadError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["is_remote", "list_remote", "open_remote", "shown_name", "without_secrets"]

_PROTOCOL = re.compile(r"[a-z][a-z0-9+.\-]+(?:://|::)", re.IGNORECASE)
_WEB = re.compile(r"(?:.*::)?https?://", re.IGNORECASE)
_SECRETS = re.compile(
    r"(?P<scheme>(?<![a-z0-9+.\-])[a-z][a-z0-9+.\-]{0,31}://)(?:[^\s/@'\"]{0,999}@)?(?P<place>[^\s?'\"]*)(?:\?[^\s'\"]*)?",
    re.IGNORECASE,
)
_LONGEST_MESSAGE: Final = 300
_INSTALL = "Install it: pip install fsspec, and the file system's own package, such as s3fs."


def is_remote(path: str) -> bool:
    """Whether a path names a file system: ``s3://...``, ``memory://...``; a drive letter is none, nor a file here."""
    return _PROTOCOL.match(path) is not None and not os.path.lexists(path)


def without_secrets(text: str) -> str:
    """Text in which addresses have no user and no query: signed ones would open the file for everybody."""
    return _SECRETS.sub(r"\g<scheme>\g<place>", text)


def shown_name(path: str) -> str:
    """The last part of a path, as a report may show it."""
    return PurePath(without_secrets(path) if is_remote(path) else path).name


def open_remote(path: str) -> IO[bytes]:
    """Open a remote file for reading; the caller closes it.

    Raises:
        ReadError: fsspec or the file system's package is missing, or the file cannot be opened; also from ``read``.
    """
    fs, inside = _file_system(path)
    try:
        stream = fs.open(inside, "rb")
    except FileNotFoundError:
        raise ReadError(
            without_secrets(path), "there is no such file", "Check the name and the folder"
        ) from None
    except Exception as error:  # noqa: BLE001 - a file system raises what its client library likes
        raise _refused(path, error) from None
    return cast("IO[bytes]", _Stream(path, stream))


class _Stream:
    """A remote file: whatever its client library raises while it is read is one line for the user.

    A connection that breaks is no damage to the file, and half of a file is not reported as the whole.
    """

    def __init__(self, path: str, stream: Any) -> None:
        self._path = path
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        try:
            found: bytes = self._stream.read(size)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a file system raises what its client library likes
            raise _refused(self._path, error) from None
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self._stream.close()


def list_remote(path: str, suffixes: Sequence[str]) -> list[str]:
    """The files that a remote path stands for: of a pattern those that match, of a folder the recordings in it.

    Args:
        path: A file, a folder or a pattern.
        suffixes: How the names of recordings end, in a folder.

    Raises:
        ReadError: Nothing is there, or it cannot be listed.
    """
    web = _WEB.match(path) is not None
    wild = "*[" if web else "*?["
    # A page of the web would be read to see whether it lists files, even where it is a trace of gigabytes.
    plain = path.endswith(tuple(suffixes)) or (web and not path.endswith("/"))
    if plain and not any(c in path for c in wild):
        return [path]
    fs, inside = _file_system(path)
    try:
        if any(c in inside for c in wild):
            found = sorted(fs.glob(inside))
            problem = "no file matches it"
        elif fs.isdir(inside):
            found = sorted(f for f in fs.ls(inside, detail=False) if str(f).endswith(tuple(suffixes)))
            problem = "the folder has no recording in it"
        else:
            return [path]
    except Exception as error:  # noqa: BLE001 - a file system raises what its client library likes
        raise _refused(path, error) from None
    if not found:
        hint = "Name a file, a folder or a pattern of recordings."
        raise ReadError(without_secrets(path), problem, hint)
    return [str(fs.unstrip_protocol(each)) for each in found]


def _file_system(path: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise ReadError(without_secrets(path), "remote paths need the package fsspec", _INSTALL) from None
    try:
        fs, inside = fsspec.core.url_to_fs(path)
    except Exception as error:  # noqa: BLE001 - a file system raises what its client library likes
        raise _refused(path, error) from None
    return fs, str(inside)


def _refused(path: str, error: Exception) -> ReadError:
    """File systems raise what they like (their client library's own errors): each is one line for the user."""
    lines = str(error)[: 10 * _LONGEST_MESSAGE].strip().splitlines()
    said = without_secrets(lines[0]).strip()[:_LONGEST_MESSAGE].rstrip(".") if lines else ""
    known = isinstance(error, OSError | ImportError | ValueError)
    kind = "" if known and said else type(error).__name__
    missing = isinstance(error, ImportError)
    return ReadError(
        without_secrets(path),
        f"it cannot be read: {': '.join(part for part in (kind, said) if part)}",
        "Install the package that it names." if missing else "Check the address and your credentials.",
    )
