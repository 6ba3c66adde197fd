"""The formats that profkit reads: how each is told from its content, and what reads it.

A new format is a package beside this file and one line in `FORMATS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

from profkit.readers.sources import Input, Kind

if TYPE_CHECKING:
    from profkit.model import Trace
    from profkit.model.memory_history import MemoryHistory

__all__ = ["FORMATS", "RECORDING_SUFFIXES", "Format", "Recording", "format_of_input"]

Recording: TypeAlias = "Trace | MemoryHistory"

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
    Format("snapshot", "a CUDA memory snapshot", (".pickle", ".pkl"), _is_snapshot, "profkit.readers.snapshot:read_snapshot"),
    Format("kineto", "a torch.profiler trace", (".json",), lambda o: o.kind is Kind.JSON, "profkit.readers.kineto:read_kineto"),
    Format("nsys", "an nsys SQLite export", (".sqlite",), lambda o: o.kind is Kind.SQLITE, "profkit.readers.nsys:read_nsys"),
    Format("nsys", "an nsys report", (".nsys-rep", ".qdrep"), lambda o: o.kind is Kind.NSYS_REPORT, "profkit.readers.nsys:read_nsys_report"),
    Format("ncu", "what ncu --csv --page raw printed", (".ncu.csv",), lambda o: o.kind is Kind.COUNTERS, "profkit.readers.ncu:read_ncu"),
)  # fmt: skip
"""In this order: the first that holds an input reads it."""

RECORDING_SUFFIXES: Final = tuple(
    suffix + packed for each in FORMATS for suffix in each.suffixes for packed in ("", ".gz")
)
"""Names of files that a folder is searched for. What a file is, its content tells."""


def format_of_input(opened: Input) -> Format:
    """The format of an opened input."""
    return next(each for each in FORMATS if each.holds(opened))
