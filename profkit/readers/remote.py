"""Paths beyond this machine, ``s3://bucket/run/*.json.gz``: whatever fsspec has a file system for."""

from __future__ import annotations

import re
from typing import IO, TYPE_CHECKING, Any

from profkit.errors import ReadError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["is_remote", "list_remote", "open_remote"]

_PROTOCOL = re.compile(r"[a-z][a-z0-9+.\-]+(?:://|::)", re.IGNORECASE)
_INSTALL = 'Install it: pip install "profkit[remote]" (and the file system that it names).'


def is_remote(path: str) -> bool:
    """Whether a path names a file system: ``s3://...``, ``memory://...``; a drive letter is none."""
    return _PROTOCOL.match(path) is not None


def open_remote(path: str) -> IO[bytes]:
    """Open a remote file for reading; the caller closes it.

    Raises:
        ReadError: fsspec or the file system's package is missing, or the file cannot be opened.
    """
    fs, inside = _file_system(path)
    try:
        stream: IO[bytes] = fs.open(inside, "rb")
    except FileNotFoundError:
        raise ReadError(path, "there is no such file") from None
    except Exception as error:  # noqa: BLE001 - a file system raises what its client library likes
        raise _refused(path, error) from None
    return stream


def list_remote(path: str, suffixes: Sequence[str]) -> list[str]:
    """The files that a remote path stands for: of a pattern those that match, of a folder the recordings in it.

    Args:
        path: A file, a folder or a pattern.
        suffixes: How the names of recordings end, in a folder.

    Raises:
        ReadError: Nothing is there, or it cannot be listed.
    """
    fs, inside = _file_system(path)
    try:
        if any(c in inside for c in "*?["):
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
        raise ReadError(path, problem, "Name a file, a folder or a pattern of recordings.")
    return [str(fs.unstrip_protocol(each)) for each in found]


def _file_system(path: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise ReadError(path, "remote paths need the package fsspec", _INSTALL) from None
    try:
        fs, inside = fsspec.core.url_to_fs(path)
    except Exception as error:  # noqa: BLE001 - a file system raises what its client library likes
        raise _refused(path, error) from None
    return fs, str(inside)


def _refused(path: str, error: Exception) -> ReadError:
    """File systems raise what they like (their client library's own errors): each is one line for the user."""
    hint = (
        _INSTALL if isinstance(error, ImportError | ValueError) else "Check the address and your credentials."
    )
    said = str(error).strip().splitlines()
    return ReadError(path, f"it cannot be read: {said[0] if said else type(error).__name__}", hint)
