"""Recordings in, copies that can be shared out: what ``profkit scrub`` does."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profkit.api.inputs import PathLike, as_list, refuse_input
from profkit.api.output_files import write_whole
from profkit.errors import OutputError
from profkit.scrubbing import scrub_file

__all__ = ["Copied", "scrub"]


@dataclass(frozen=True)
class Copied:
    """A copy that was written."""

    path: Path
    removed: Mapping[str, int]
    """How many were removed, by what they were."""


def scrub(
    paths: PathLike | Iterable[PathLike],
    target: PathLike,
    *,
    threads: bool = False,
    words: Sequence[str] = (),
) -> Iterator[Copied]:
    """Write copies without environment, keys, names of people and machines, folders and command lines.

    Args:
        paths: Recordings of any format but ``.nsys-rep``; folders are not searched.
        target: The file to write; of several, or where it is one already, the folder.
        threads: Whether the names of host threads are hidden too.
        words: More texts to hide.

    Raises:
        ReadError: A file cannot be read.
        OutputError: A copy cannot be written, or would still hold a secret.
    """
    files = [str(path) for path in as_list(paths)]
    folder = len(files) > 1 or Path(target).is_dir() or str(target).endswith("/")
    written: set[Path] = set()
    for file in files:
        if not folder:
            refuse_input(Path(target), files)
        done = scrub_file(file, threads=threads, words=tuple(words))
        place = Path(target) / done.name if folder else Path(target)
        if place in written:
            raise OutputError(target, "two files have one name", "Scrub them one after the other")
        refuse_input(place, files)
        written.add(place)
        if folder:
            place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, gzip.compress(done.data, 6, mtime=0) if place.suffix == ".gz" else done.data)
        yield Copied(place, done.removed)
