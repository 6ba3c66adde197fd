"""A file of any format: opened, scrubbed, checked, and written in the same format."""

from __future__ import annotations

import csv
import io
import pickle
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from profkit.access_keys import tokens_in
from profkit.errors import OutputError, ReadError
from profkit.readers.remote import shown_name
from profkit.readers.snapshot.pickled import load
from profkit.readers.sources import open_input
from profkit.scrubbing.exports import scrub_export
from profkit.scrubbing.json_files import scrub_json
from profkit.scrubbing.texts import HIDDEN, NAMES, Scrubber, is_private_name

__all__ = ["Scrubbed", "scrub_file"]

_HIDDEN_COLUMNS: Final = ("Host Name", "User Name")
_LEAST_SECRET: Final = 8
"""Shorter ones occur by chance in numbers and compressed data."""


@dataclass(frozen=True)
class Scrubbed:
    """A file without what was hidden in it."""

    data: bytes
    removed: Mapping[str, int]
    """How many were removed, by what they were."""
    name: str
    """The file's own name, without names of people and machines: torch calls a trace after its machine."""


def scrub_file(path: str, *, threads: bool = False, words: tuple[str, ...] = ()) -> Scrubbed:
    """A recording without environment, keys, names of people and machines, folders and command lines.

    Args:
        path: An nsys export, a torch.profiler trace, a memory snapshot, a table of ncu, or a ``run.json``; also
            compressed. What comes out is not.
        threads: Whether names of host threads are hidden too.
        words: More texts to hide.

    Raises:
        ReadError: It cannot be read, or its format cannot be scrubbed.
        OutputError: Something that was to be hidden is still there.
    """
    scrub = Scrubber(path, set(words))
    with open_input(path) as opened:
        if opened.format.exported_as:
            raise ReadError(
                path, "an nsys report cannot be scrubbed", "Export it: nsys export --type sqlite FILE"
            )
        if isinstance(opened.content, Path):
            data = _export(opened.content, scrub, threads)
        elif opened.format.role == "counters":
            data = _table(bytes(opened.content), scrub)
        elif bytes(opened.content[:64]).lstrip().startswith((b"{", b"[")):
            data = scrub_json(bytes(opened.content), scrub, threads=threads)
        else:
            data = _snapshot(opened.content, path, scrub)
    _check(path, data, scrub)
    removed = {what: count for what, count in scrub.removed.items() if count}
    return Scrubbed(data, removed, scrub(shown_name(path)).replace(HIDDEN, "x"))


def _export(source: Path, scrub: Scrubber, threads: bool) -> bytes:
    with tempfile.TemporaryDirectory(prefix="profkit-") as folder:
        copy = Path(folder) / "copy.sqlite"
        shutil.copyfile(source, copy)
        scrub_export(copy, scrub, threads=threads)
        return copy.read_bytes()


def _table(data: bytes, scrub: Scrubber) -> bytes:
    """A table of ncu with the lines around it."""
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    scrub.learn(lines)
    for column, name in _people(lines):
        scrub.learn_pair(column, name)
    header: list[str] = []
    made = []
    for line in lines:
        if not line.startswith('"'):
            made.append(scrub(line))
            continue
        cells = next(csv.reader([line]))
        if "Kernel Name" in cells:
            header = cells
        else:
            cells = [
                scrub.hide(cell, NAMES) if column in _HIDDEN_COLUMNS else scrub(cell)
                for column, cell in zip(header or cells, cells, strict=False)
            ] + cells[len(header or cells) :]
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(cells)
        made.append(out.getvalue())
    return "".join(made).encode()


def _people(lines: list[str]) -> Iterator[tuple[str, str]]:
    """The names in the columns of users and hosts."""
    header: list[str] = []
    for cells in csv.reader(line for line in lines if line.startswith('"')):
        if "Kernel Name" in cells:
            header = cells
        for column, cell in zip(header, cells, strict=False):
            if column in _HIDDEN_COLUMNS and cell != column:
                yield column.replace(" ", "_"), cell


def _snapshot(data: Any, path: str, scrub: Scrubber) -> bytes:
    """A memory snapshot: plain data, whose shared parts stay shared."""
    snapshot = load(data, path)
    _learn(snapshot, scrub, set())
    return pickle.dumps(_walk(snapshot, scrub, {}), protocol=4)


def _learn(value: Any, scrub: Scrubber, seen: set[int | str]) -> None:
    """Names of people and machines, and secrets, in texts and in dictionaries of the environment."""
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        if value not in seen:
            seen.add(value)
            scrub.learn([value])
    elif isinstance(value, dict | list | tuple) and id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, dict):
            for name, each in value.items():
                if isinstance(name, str) and isinstance(each, str):
                    scrub.learn_pair(name, each)
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            _learn(each, scrub, seen)


def _walk(value: Any, scrub: Scrubber, seen: dict[int, Any]) -> Any:
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, bytes):
        return scrub.bytes(value)
    if not isinstance(value, dict | list | tuple):
        return value
    if id(value) not in seen:
        if isinstance(value, dict):
            made: Any = {_walk(k, scrub, seen): _entry(k, v, scrub, seen) for k, v in value.items()}
        else:
            made = type(value)(_walk(each, scrub, seen) for each in value)
        seen[id(value)] = made
    return seen[id(value)]


def _entry(name: Any, value: Any, scrub: Scrubber, seen: dict[int, Any]) -> Any:
    if isinstance(name, str) and isinstance(value, str | list | tuple) and is_private_name(name):
        return scrub.hide(value, "private values") if isinstance(value, str) else type(value)()
    return _walk(value, scrub, seen)


def _check(path: str, data: bytes, scrub: Scrubber) -> None:
    """Nothing is handed on that still holds what was to be hidden, in whatever place.

    Raises:
        OutputError: It does.
    """
    left = [secret for secret in scrub.secrets if len(secret) >= _LEAST_SECRET and secret.encode() in data]
    if left or next(tokens_in(data), None) is not None:
        raise OutputError(
            path, "a secret is still in it, in a place that profkit does not know", "Do not share it"
        )
