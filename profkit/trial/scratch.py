"""A folder in which a program finds its own files, and what it writes touches none of them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Final

from profkit.trial.changes.wrapping import replace

__all__ = ["keep_originals", "mirror"]

_ENTRIES: Final = 2000
"""A folder of more entries is data, which is read: it is linked as a whole."""
_ALL: Final = 20_000
_DEPTH: Final = 4
_MOST_TOLD: Final = 20
_NOBODYS: Final = tuple(
    str(Path(each).expanduser()) + os.sep
    for each in (tempfile.gettempdir(), "~/.cache", "~/.triton", "~/.nv", "/dev", "/proc", "/sys")
)
"""What is written there is a cache's or a device's."""
_READ_ONLY: Final = (".git", ".venv", "venv", "node_modules")


def mirror(folder: Path, scratch: Path) -> None:
    """Fill ``scratch`` with folders like those of ``folder``, and links to its files.

    Large folders, those that are links, and those far down are linked as a whole.
    """
    left = _ALL
    waiting = [(folder.resolve(), scratch, _DEPTH)]
    while waiting:
        origin, copy, depth = waiting.pop()
        for entry in _entries(origin):
            target = copy / entry.name
            if scratch.resolve().is_relative_to(entry.path):
                continue
            count = len(_entries(Path(entry.path))) if entry.is_dir(follow_symlinks=False) else 0
            small = count <= min(_ENTRIES, left) and entry.name not in _READ_ONLY
            if entry.is_dir(follow_symlinks=False) and depth and small:
                left -= count
                target.mkdir()
                waiting.append((Path(entry.path), target, depth - 1))
            else:
                target.symlink_to(entry.path)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(islice(found, _ENTRIES + 1))
    except OSError:
        return []


def keep_originals(scratch: Path, undo: ExitStack) -> dict[str, None]:
    """Put a copy, or nothing, in place of a link within ``scratch`` before the program writes through it.

    It hears what Python opens, and `torch.save`, which opens its files in C++.

    Returns:
        The files outside that the program has written so far, in order: these are its own. Caches are left out.
    """
    import torch

    root = str(scratch.resolve()) + os.sep
    outside: dict[str, None] = {}

    def written(path: str | bytes | os.PathLike[Any], copied: bool) -> None:
        place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - not resolved, since it is about the link
        if place.startswith(root):
            _unlink(place, copied)
            place = os.path.realpath(place)
        if not place.startswith((root, *_NOBODYS)) and len(outside) < _MOST_TOLD:
            outside[place] = None

    def opened(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            writes, empties = _intent(args[1] or "", args[2])
            if writes:
                written(args[0], copied=not empties)

    def saving(original: Callable[..., Any]) -> Callable[..., Any]:
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, str | os.PathLike):
                written(f, copied=False)
            return original(obj, f, *args, **kwargs)

        return save

    sys.addaudithook(opened)
    replace(undo, torch, "save", saving)
    return outside


def _intent(mode: str, flags: object) -> tuple[bool, bool]:
    """Whether a file is opened to be written, and emptied."""
    if isinstance(flags, int):
        return bool(flags & (os.O_WRONLY | os.O_RDWR)), bool(flags & os.O_TRUNC)
    return bool(set(mode) & set("wax+")), "w" in mode


def _unlink(place: str, copied: bool) -> None:
    if not os.path.islink(place) or os.path.isdir(place):  # noqa: PTH114, PTH112
        return
    origin = os.path.realpath(place)
    os.unlink(place)  # noqa: PTH108
    if copied and os.path.exists(origin):  # noqa: PTH110
        shutil.copyfile(origin, place)
