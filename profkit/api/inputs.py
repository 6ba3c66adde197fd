"""Which files inputs stand for, and that none of them is written over."""

from __future__ import annotations

import filecmp
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import TypeAlias

from profkit.errors import OutputError, ProfkitError, ReadError
from profkit.readers.registry import RECORDING_SUFFIXES, without_exported
from profkit.readers.remote import is_remote, list_remote
from profkit.saved_runs.run_file import read_run_file

__all__ = ["PathLike", "as_list", "distinct_files", "expand", "refuse_input"]

PathLike: TypeAlias = str | os.PathLike[str]


def refuse_input(target: Path, inputs: Iterable[PathLike]) -> None:
    """Never write over what was read: a file, one of a folder or pattern, standard input, a history (``DB#RUN``).

    Raises:
        OutputError: The target is one of the inputs.
    """
    try:
        place = target.stat()
    except OSError:  # nothing is there, or writing will say what is wrong
        return
    if any(os.path.samestat(place, source) for each in inputs for source in _stats(each)):
        raise OutputError(target, "it is one of the inputs", "Choose another file with -o")


def _stats(path: PathLike) -> Iterator[os.stat_result]:
    """Where the files lie that an input stands for, as far as they lie on this machine."""
    if str(path) == "-":
        with suppress(OSError, ValueError, AttributeError):  # closed, or no real file
            yield os.fstat(sys.stdin.fileno())
        return
    files: list[str] = []
    with suppress(ReadError):
        files = [] if is_remote(str(path)) else _expand(path)
    for file in (*files, str(path).partition("#")[0]):
        with suppress(OSError, ValueError):
            yield Path(file).stat()


def expand(paths: PathLike | Iterable[PathLike]) -> list[str]:
    """The files that inputs stand for: those of folders and patterns too, in the order of a report.

    Raises:
        ReadError: A folder has no recording in it.
    """
    return [file for path in as_list(paths) for file in _expand(path)]


def as_list(paths: PathLike | Iterable[PathLike]) -> list[PathLike]:
    """One path, or several, as a list.

    Raises:
        ProfkitError: There is none.
    """
    if isinstance(paths, str | os.PathLike):
        return [paths]
    try:
        listed = list(paths)
    except TypeError:
        listed = []
    if not listed:
        raise ProfkitError(f"{paths!r} names no recording. Give a file, a folder, or a list of them")
    return listed


def _expand(path: PathLike) -> list[str]:
    """A folder stands for the recordings in it (not for reports of ours), a pattern for what matches.

    An nsys report whose export lies beside it is the same recording, and is not read again.
    """
    if is_remote(str(path)):
        return list_remote(str(path), RECORDING_SUFFIXES)
    if any(c in str(path) for c in "*?[") and not Path(path).exists():
        return sorted(glob(str(path)), key=_by_number) or [os.fspath(path)]  # noqa: PTH207 - a Path has no absolute pattern
    if str(path) == "-" or not Path(path).is_dir():
        return [os.fspath(path)]
    folder = Path(path)
    found = sorted(
        (
            str(f)
            for f in folder.iterdir()
            if f.is_file()
            and f.name.endswith(RECORDING_SUFFIXES)
            and read_run_file(f) is None
            and not _is_report(f)
        ),
        key=_by_number,
    )
    if not found:
        raise ReadError(
            folder.name, "the folder has no recording in it", "Name a file, or record with profkit.record"
        )
    return without_exported(found)


def _by_number(path: str) -> list[tuple[int, str]]:
    """A key by which ``rank2`` comes before ``rank10``."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", path)]


def distinct_files(files: Sequence[str]) -> list[str]:
    """Each recording once: the same file under two names, or a copy of it, would count twice."""
    by_size: dict[int | None, list[str]] = {}
    found: list[str] = []
    for file in files:
        same_size = by_size.setdefault(_size(file), [])
        if not any(_is_same(file, other) for other in same_size):
            same_size.append(file)
            found.append(file)
    return found


def _size(file: str) -> int | None:
    try:
        return None if is_remote(file) or file == "-" else Path(file).stat().st_size
    except OSError:  # reading says it
        return None


def _is_same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return _size(one) is not None and filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _is_report(file: Path) -> bool:
    """Whether a file is a report or a comparison that profkit has written."""
    try:
        with file.open("rb") as opened:
            return file.suffix == ".json" and b'"schema": "profkit.' in opened.read(100)
    except OSError:
        return False
