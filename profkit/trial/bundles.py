"""What a short budget tries together, since a start costs most of it: changes that help often, and each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from profkit.trial.ahead import Names
from profkit.trial.changes import compiles, is_compiler

__all__ = ["bundles_of", "slow_first", "stands_for", "without_suspects"]

_TOGETHER = ("tf32", "fused-attention", "loader-workers", "pinned", "fused-optimizer")
"""They seldom harm, and help more where the others have made way."""
_FEWER_BITS = ("bf16", "fp16")
"""One of them, which slows a step down that the host paces, unless a compiler is there too."""
_LAYOUTS = ("channels-last", "cudnn-benchmark")
"""They suit convolutions in fewer bits, which Tensor Cores compute in that order."""
_COMPILER = "compile"

_SUSPECTS = (("loader-workers", "pinned"), ("fused-optimizer",), ("fused-attention",))
"""What may be at fault where no bundle runs or helps."""


def bundles_of(names: Sequence[str], promised: Callable[[str], float]) -> list[Names]:
    """What is tried together: each bundle after those that it has to beat, as it holds more.

    Args:
        names: What may be tried.
        promised: The speed-up that a recording promises of a change.
    """
    safe = [name for name in _TOGETHER if name in names]
    safe += sorted(
        name
        for name in names
        if promised(name) > 1 and not is_compiler(name) and name not in (*safe, *_FEWER_BITS)
    )
    doubtful = [name for name in _FEWER_BITS if name in names][:1]
    doubtful += [name for name in _LAYOUTS if name in names and name not in safe]
    found = [safe, [*safe, *doubtful]]
    if _COMPILER in names:
        found += [[*each, _COMPILER] for each in found]
    ordered = [tuple(sorted(each, key=lambda name: -promised(name))) for each in found]
    return [names for names in dict.fromkeys(ordered) if names]


def slow_first(bundles: Sequence[Names]) -> list[Names]:
    """What starts at once, in this order: the largest with a compiler takes longest, and a second one would slow it down."""
    largest = max(filter(compiles, bundles), key=len, default=None)
    others = [names for names in bundles if not compiles(names)]
    return others if largest is None else [largest, *others]


def stands_for(guess: Names, wanted: Names, idle: Collection[str] = ()) -> bool:
    """Whether a process with the changes of a guess is one with those that are wanted.

    Args:
        guess: The names of its changes.
        wanted: The others.
        idle: Changes that find nothing to change, since the program has no place for them or has made them itself.
    """
    return set(wanted) <= set(guess) <= {*wanted, *idle}


def without_suspects(bundles: Sequence[Names]) -> list[Names]:
    """Where none of these is any good: the largest without a compiler, and without one thing or another that may be at fault."""
    largest = max((each for each in bundles if not compiles(each)), key=len, default=())
    fewer = [tuple(name for name in largest if name not in suspects) for suspects in _SUSPECTS]
    return [names for names in dict.fromkeys(fewer) if names and names not in bundles]
