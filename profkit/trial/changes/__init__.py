"""The changes that can be made from outside, by name.

In: a name. Out: a `Change`, of which the trial asks whether to try it (`Change.obstacle`) and what to write
(`Change.patch`), and which the program's process installs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Final

from profkit.errors import RecordingError
from profkit.trial.changes.base import ALREADY, Change, Promise
from profkit.trial.changes.compiling import Compile, CompileWithGraphs
from profkit.trial.changes.host import CollectRarely, Threads
from profkit.trial.changes.layouts import ChannelsLast, CudnnBenchmark, FusedAttention
from profkit.trial.changes.loading import LoaderWorkers, Pinned
from profkit.trial.changes.optimizers import DropGradients, ForeachOptimizer, FusedOptimizer
from profkit.trial.changes.precision import Bf16, Tf32
from profkit.trial.changes.scaling import Fp16

__all__ = [
    "ALREADY",
    "CHANGES",
    "Change",
    "Promise",
    "change_named",
    "changes_named",
    "compiles",
    "is_autocast",
    "is_compiler",
    "same_kind",
    "weakest",
]

CHANGES: Final[dict[str, type[Change]]] = {
    kind.name: kind
    for kind in (
        Tf32,
        Bf16,
        Fp16,
        FusedOptimizer,
        ForeachOptimizer,
        LoaderWorkers,
        Pinned,
        ChannelsLast,
        CudnnBenchmark,
        FusedAttention,
        Threads,
        DropGradients,
        CollectRarely,
        Compile,
        CompileWithGraphs,
    )
}
"""In the order in which they are tried: those that cost no start-up time first, and usually the largest first."""


def change_named(name: str) -> Change:
    """A new change.

    Args:
        name: A key of `CHANGES`, or ``module:Class`` of a `Change` of your own.

    Raises:
        RecordingError: There is none.
    """
    kind = CHANGES.get(name)
    if kind is None and ":" in name:
        module, _, attribute = name.partition(":")
        try:
            kind = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise RecordingError(name, f"cannot be imported ({error})") from error
    if kind is None:
        raise RecordingError(
            name, "is no change", f"Choose one of {', '.join(CHANGES)}, or name module:Class"
        )
    return kind()


def changes_named(names: Iterable[str]) -> list[Change]:
    """New changes, in the order of the names; a foreign one has its whole name."""
    return [change_named(name) for name in names]


def weakest(names: Sequence[str]) -> Promise:
    """What changes promise together."""
    promises = {change_named(name).promise for name in names}
    return next(each for each in (Promise.PRECISION, Promise.DRAWS, Promise.EQUAL) if each in promises)


def is_compiler(name: str) -> bool:
    """Whether a change starts slowly, since it compiles."""
    return change_named(name).kind_of == "compiler"


def is_autocast(name: str) -> bool:
    """Whether a change computes in fewer bits, on whatever device."""
    return change_named(name).kind_of == "autocast"


def compiles(names: Sequence[str]) -> bool:
    """Whether one of these does."""
    return any(map(is_compiler, names))


def same_kind(name: str, kept: Sequence[str]) -> str | None:
    """The one of these that a change cannot stand beside."""
    kind = change_named(name).kind_of
    return next((each for each in kept if kind and change_named(each).kind_of == kind), None)
