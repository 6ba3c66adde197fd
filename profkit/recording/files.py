"""Where a recording's files go: one folder a run, names by rank, whole or not there at all."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["RunFolder", "next_folder", "write_whole"]

_GZIP_LEVEL = 4  # a Kineto trace shrinks to 7 %; level 9 takes four times as long for 0.5 % more


class RunFolder:
    """The folder of one run, as one rank sees it. Nothing in it is ever overwritten.

    Args:
        wanted: The folder that was asked for. If this rank has recorded there before, the recording goes to
            ``wanted-2``, ``wanted-3``...
        rank: Part of every file name, where the program is one of several.

    Attributes:
        path: The folder, wherever the program goes from here.
        files: What was written.

    Raises:
        OSError: The folder cannot be made or written to.
    """

    def __init__(self, wanted: Path, rank: int | None) -> None:
        self._suffix = "" if rank is None else f"_rank{rank}"
        self.path = self._claim(wanted.absolute())
        self._began_ns = self.run_file.stat().st_mtime_ns
        self.files: list[Path] = []

    @property
    def run_file(self) -> Path:
        """The file that describes the run: ``run.json``, or ``run_rank3.json``."""
        return self.path / f"run{self._suffix}.json"

    def name(self, stem: str, suffix: str) -> Path:
        """A path that is not taken yet: ``trace_rank0.json.gz``, then ``trace_rank0_2.json.gz``."""
        number = 1
        while True:
            path = self.path / f"{stem}{self._suffix}{'' if number == 1 else f'_{number}'}{suffix}"
            if not path.exists():
                return path
            number += 1

    def has_followers(self) -> bool:
        """Whether another process has begun to record here or beside since this one, which is no rank, has."""
        runs = [*self.path.glob("run_*.json"), *self.path.parent.glob(f"{self.path.name}-*/run*.json")]
        return not self._suffix and any(path.stat().st_mtime_ns >= self._began_ns for path in runs)

    def keep(self, path: Path) -> Path:
        """Note a finished file as part of the run."""
        self.files.append(path)
        return path

    def pack(self, raw: Path, target: Path) -> Path:
        """Compress ``raw`` into ``target`` and remove it; where that fails, ``raw`` is kept as it is.

        Returns:
            The file that holds the recording now.
        """
        try:
            with raw.open("rb") as source:
                write_whole(target, lambda sink: _compress(source, sink))
        except OSError:
            plain = target.with_suffix("") if target.suffix == ".gz" else target
            raw.replace(plain)
            self.keep(plain)
            raise
        raw.unlink()
        return self.keep(target)

    def describe(self, facts: Mapping[str, Any]) -> None:
        """Write the run file."""
        text = json.dumps(facts, indent=1, ensure_ascii=False, default=str) + "\n"
        write_whole(self.run_file, lambda sink: sink.write(text.encode("utf-8", "backslashreplace")))

    def _claim(self, wanted: Path) -> Path:
        number = 1
        while True:
            path = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
            path.mkdir(parents=True, exist_ok=True)
            try:
                (path / f"run{self._suffix}.json").open("x").close()
            except FileExistsError:
                number += 1
            else:
                return path


def next_folder(wanted: Path) -> Path:
    """The folder that a recording without ranks would go to: ``wanted``, or the first free one beside it."""
    number, path = 1, wanted
    while (path / "run.json").exists():
        number += 1
        path = wanted.with_name(f"{wanted.name}-{number}")
    return path


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file beside its place and move it there once it is complete.

    Raises:
        OSError: The disk is full or the folder cannot be written; nothing is left behind.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as sink:
            write(sink)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _compress(source: BinaryIO, sink: BinaryIO) -> None:
    with gzip.GzipFile(filename="", fileobj=sink, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as packed:
        shutil.copyfileobj(source, packed, 1 << 20)
