"""The formats that profkit reads: how each is told from its content, and what reads it.

A new format is a package beside this file and one line in `FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from profkit.readers.sources import Input, Kind

if TYPE_CHECKING:
    from profkit.model import Trace
    from profkit.model.memory_history import MemoryHistory

__all__ = [
    "FORMATS",
    "RECORDING_SUFFIXES",
    "Format",
    "Recording",
    "Role",
    "format_named",
    "format_of_input",
    "role_of",
    "stem_of",
    "without_exported",
]

Recording: TypeAlias = "Trace | MemoryHistory"

Role: TypeAlias = Literal["timeline", "operators", "counters", "memory"]
"""What a recording is for beside others of the same program. A timeline's times count. Operators are a timeline too, of
a recorder that slows the host: beside a better one it only gives shapes and operators. Counters are of single kernels,
run alone: they have no timeline of their own. Memory has no times of kernels."""

_SNAPSHOT_JSON: Final = re.compile(
    rb'\s*(?:\{\s*"(?:segments|device_traces)"|\[\s*\{\s*"(?:device|address|total_size)")'
)


@dataclass(frozen=True)
class Format:
    """A kind of recording."""

    name: str
    """As ``inputs[].format`` says it."""
    what: str
    """As a message calls it, with its article."""
    suffixes: tuple[str, ...]
    """Of files that a folder is searched for; each also with ``.gz``."""
    holds: Callable[[Input], bool]
    """Whether an opened input is of this format; each input is of one at most."""
    role: Role
    allocations: Literal["allocator", "driver"] | None
    """Whose allocations it records along its timeline: blocks of PyTorch's allocator, or what CUDA gave."""
    exported_as: tuple[str, ...]
    """Suffixes of files that hold the same recording: where one lies beside it, it is not read again."""
    reader: str
    """``module:function``, imported when it is needed; called with the input's bytes, or with the file where the
    format needs a real one, and with the name to show."""

    def read(self, opened: Input, name: str) -> Recording:
        """Read an input of this format.

        Raises:
            ReadError: It is damaged beyond use.
        """
        module, _, function = self.reader.partition(":")
        content = opened.data if opened.file is None else opened.file
        made: Recording = getattr(import_module(module), function)(content, name)
        return made


def _is_snapshot(opened: Input) -> bool:
    return opened.kind is Kind.PICKLE or (
        opened.kind is Kind.JSON and _SNAPSHOT_JSON.match(opened.data) is not None
    )


FORMATS: Final = (
    Format("snapshot", "a CUDA memory snapshot", (".pickle", ".pkl"), _is_snapshot, "memory", None, (), "profkit.readers.snapshot:read_snapshot"),
    Format("kineto", "a torch.profiler trace", (".json",), lambda o: o.kind is Kind.JSON, "operators", "allocator", (), "profkit.readers.kineto:read_kineto"),
    Format("nsys", "an nsys SQLite export", (".sqlite",), lambda o: o.kind is Kind.SQLITE, "timeline", "driver", (), "profkit.readers.nsys:read_nsys"),
    Format("nsys", "an nsys report", (".nsys-rep", ".qdrep"), lambda o: o.kind is Kind.NSYS_REPORT, "timeline", "driver", (".sqlite", ".sqlite.gz"), "profkit.readers.nsys:read_nsys_report"),
    Format("ncu", "a table of Nsight Compute", (".ncu.csv",), lambda o: o.kind is Kind.COUNTERS, "counters", None, (), "profkit.readers.ncu:read_ncu"),
)  # fmt: skip
"""In this order: the first that holds an input reads it."""

RECORDING_SUFFIXES: Final = tuple(
    suffix + packed for each in FORMATS for suffix in each.suffixes for packed in ("", ".gz")
)
"""Names of files that a folder is searched for. What a file is, its content tells."""


def format_of_input(opened: Input) -> Format:
    """The format of an opened input."""
    return next(each for each in FORMATS if each.holds(opened))


def stem_of(name: str) -> str:
    """The name of a file without the suffixes of recordings and compressions."""
    while name.lower().endswith(_SUFFIXES):
        name = PurePath(name).stem
    return name


_SUFFIXES: Final = (*RECORDING_SUFFIXES, ".csv", ".gz", ".bz2", ".xz", ".zst")


def without_exported(files: Sequence[str]) -> list[str]:
    """The files of a folder without those whose export lies beside them, which is the same recording."""
    there = set(files)
    twice = {
        stem + suffix
        for each in FORMATS
        for suffix in each.suffixes
        for stem in (file.removesuffix(suffix) for file in files if file.endswith(suffix))
        if any(stem + exported in there for exported in each.exported_as)
    }
    return [file for file in files if file not in twice]


def format_named(name: str) -> Format | None:
    """The format of this name; None for one that this version does not know, as a saved report may have."""
    return next((each for each in FORMATS if each.name == name), None)


def role_of(name: str) -> Role | None:
    """What recordings of a format are for; None for a format that this version does not know."""
    known = format_named(name)
    return known.role if known else None
