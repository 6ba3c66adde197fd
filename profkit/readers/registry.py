"""The formats that profkit reads: how each is told from its content, and what reads it.

A new format is a package beside this file and one line in `FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from profkit.model import Trace
    from profkit.model.memory_history import MemoryHistory

__all__ = [
    "FORMATS",
    "RECORDING_SUFFIXES",
    "Format",
    "Recording",
    "Role",
    "WITHOUT_TIMES",
    "format_named",
    "format_beginning",
    "originals_of",
    "role_of",
    "stem_of",
    "without_exported",
]

Recording: TypeAlias = "Trace | MemoryHistory"

Role: TypeAlias = Literal["timeline", "operators", "counters", "memory", "numerics"]
"""What a recording is for beside others of the same program. A timeline's times count. Operators are a timeline too, of
a recorder that slows the host: beside a better one it only gives shapes and operators. Counters are of single kernels,
run alone: they have no timeline of their own. Memory has no times of kernels, numerics no times at all."""

WITHOUT_TIMES: Final[tuple[Role, ...]] = ("memory", "counters", "numerics")
"""Roles of recordings without times of the step."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A kind of recording."""

    name: str
    """As ``inputs[].format`` says it."""
    what: str
    """As a message calls it, with its article."""
    suffixes: tuple[str, ...]
    """Of files that a folder is searched for; each also with ``.gz``."""
    begins: Callable[[bytes], bool]
    """Whether a file is of this format, by its first 4,096 bytes: uncompressed, as UTF-8, after white space."""
    role: Role
    allocations: Literal["allocator", "driver"] | None = None
    """Whose allocations it records along its timeline: blocks of PyTorch's allocator, or what CUDA gave."""
    versioned_by: Literal["pytorch", "recorder"] = "recorder"
    """Whose version ``tool_version`` is."""
    imported: bool = False
    """Whether the recorder's own tool made it from raw events, and may have lost some that it does not know."""
    exported_as: tuple[str, ...] = ()
    """Suffixes of files that hold the same recording: where one lies beside it, it is not read again."""
    on_disk: bool = False
    """Whether its reader needs a real file; else it is given the bytes."""
    reader: str
    """``module:function``, imported when it is needed; called with the content and with the name to show."""

    def read(self, content: Any, name: str) -> Recording:
        """Read a recording of this format.

        Raises:
            ReadError: It is damaged beyond use.
        """
        module, _, function = self.reader.partition(":")
        made: Recording = getattr(import_module(module), function)(content, name)
        return made


_SNAPSHOT_JSON: Final = re.compile(
    rb'\{\s*"(?:segments|device_traces)"|\[\s*\{\s*"(?:device|address|total_size)"'
)
_PICKLES: Final = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"(dp", b"(lp", b"}q", b"]q")
_NUMERICS: Final = re.compile(rb'\{\s*"schema"\s*:\s*"profkit\.numerics/')
_COUNTERS: Final = (b'"ID","Process ID"', b"==PROF==", b"==WARNING==", b"==ERROR==")

FORMATS: Final = (
    Format(
        name="snapshot",
        what="a CUDA memory snapshot",
        suffixes=(".pickle", ".pkl"),
        begins=lambda head: head.startswith(_PICKLES) or _SNAPSHOT_JSON.match(head) is not None,
        role="memory",
        reader="profkit.readers.snapshot:read_snapshot",
    ),
    Format(
        name="numerics",
        what="a recording of numerics",
        suffixes=(".json",),
        begins=lambda head: _NUMERICS.match(head) is not None,
        role="numerics",
        reader="profkit.readers.numerics:read_numerics",
    ),
    Format(
        name="kineto",
        what="a torch.profiler trace",
        suffixes=(".json",),
        begins=lambda head: head.startswith((b"{", b"[")),
        role="operators",
        allocations="allocator",
        versioned_by="pytorch",
        reader="profkit.readers.kineto:read_kineto",
    ),
    Format(
        name="nsys",
        what="an nsys SQLite export",
        suffixes=(".sqlite",),
        begins=lambda head: head.startswith(b"SQLite format 3\x00"),
        role="timeline",
        allocations="driver",
        imported=True,
        on_disk=True,
        reader="profkit.readers.nsys:read_nsys",
    ),
    Format(
        name="nsys",
        what="an nsys report",
        suffixes=(".nsys-rep", ".qdrep"),
        begins=lambda head: head.startswith(b"NVIDIA Tegra Profiler Report"),
        role="timeline",
        allocations="driver",
        imported=True,
        exported_as=(".sqlite", ".sqlite.gz"),
        on_disk=True,
        reader="profkit.readers.nsys:read_nsys_report",
    ),
    Format(
        name="ncu",
        what="a table of Nsight Compute",
        suffixes=(".ncu.csv",),
        begins=lambda head: any(line.startswith(_COUNTERS) for line in head.splitlines()),
        role="counters",
        reader="profkit.readers.ncu:read_ncu",
    ),
)
"""In this order: the first whose ``begins`` holds reads the file."""

RECORDING_SUFFIXES: Final = tuple(
    suffix + packed for each in FORMATS for suffix in each.suffixes for packed in ("", ".gz")
)
"""Names of files that a folder is searched for. What a file is, its content tells."""


def format_beginning(head: bytes) -> Format | None:
    """The format of a file, by its first bytes; see `Format.begins`."""
    return next((each for each in FORMATS if each.begins(head)), None)


def stem_of(name: str) -> str:
    """The name of a file without the suffixes of recordings and compressions."""
    while end := next((end for end in _SUFFIXES if name.lower().endswith(end)), None):
        name = name[: -len(end)]
    return name


_SUFFIXES: Final = (*RECORDING_SUFFIXES, ".csv", ".gz", ".bz2", ".xz", ".zst")


def originals_of(export: str) -> list[str]:
    """Names that the original of an export may have: ``run.nsys-rep`` for ``run.sqlite``."""
    return [
        export.removesuffix(end) + suffix
        for each in FORMATS
        for end in each.exported_as
        if export.endswith(end)
        for suffix in each.suffixes
    ]


def without_exported(files: Sequence[str]) -> list[str]:
    """The files of a folder without those whose export lies beside them, which is the same recording."""
    originals = {original for file in files for original in originals_of(file)}
    return [file for file in files if file not in originals]


def format_named(name: str) -> Format | None:
    """The format of this name; None for one that this version does not know, as a saved report may have."""
    return next((each for each in FORMATS if each.name == name), None)


def role_of(name: str) -> Role | None:
    """What recordings of a format are for; None for a format that this version does not know."""
    known = format_named(name)
    return known.role if known else None
