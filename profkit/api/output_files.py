"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from profkit.errors import OutputError

__all__ = ["write_whole"]


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that it appears whole or not at all; what a link leads to, and not the link, is replaced.

    A device or a named pipe stays what it is, and is written to.

    Raises:
        OutputError: It cannot be written.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_bytes(data)
        else:
            _replace(path.resolve(), data)
    except (OSError, RuntimeError) as error:  # a RuntimeError is a circle of links
        raise OutputError(
            path,
            f"cannot be written: {getattr(error, 'strerror', None) or error}",
            "Choose another file with -o",
        ) from error


def _replace(path: Path, data: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name[:100]}.", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(data)
            file.flush()
            # A temporary file is for its owner's eyes only; a report is an ordinary file.
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
