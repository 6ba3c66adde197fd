"""Which ranges mark steps, by their names; where the marks break off; which steps are of one kind."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind, Trace
from profkit.model.names import FoundBy
from profkit.timeline.distinct import distinct
from profkit.timeline.nesting import Nesting
from profkit.timeline.range_names import matching, profiler_step, step_like

__all__ = ["engine_iteration", "kind_of", "marked_rows", "number_in", "step_test", "steps_inside"]

_ENGINE = re.compile(
    r"execute_\w*(?:context|generation|prefill|decode|diffusion|new|cached)_?\d.*"  # vLLM
    r"|step\[[A-Z][A-Z_]*\b.*"  # SGLang
    r"|\[Executor\] _forward_step \d+.*"  # TensorRT-LLM
)
_CONTEXTS = re.compile(r"context_(\d+)|(\d+) ctx reqs")
_GENERATIONS = re.compile(r"generation_(\d+)|(\d+) gen reqs")
_SGLANG = re.compile(r"step\[([A-Z_]+)")
_PREFILLS: Final = frozenset({"EXTEND", "PREFILL"})
_NUMBER = re.compile(r"\d+")
_LONGEST = 256
"""Names of steps are short: longer ones are not searched."""


def step_test(pattern: str, names: list[str]) -> Callable[[str], bool]:
    """The test of a name that a person asks for: the exact name, a glob, ``re:`` with an expression, or a prefix.

    A prefix ends at a word where some name allows it: ``step`` is ``step 3`` and not ``stepper``.

    Args:
        pattern: What was asked for.
        names: The names that there are.

    Raises:
        re.error: The expression after ``re:`` is none.
    """
    if pattern.startswith("re:"):
        expression = re.compile(pattern[3:])
        return lambda name: len(name) <= _LONGEST and expression.search(name) is not None
    if pattern in names:
        return lambda name: name == pattern
    if any(sign in pattern for sign in "*?["):
        return lambda name: fnmatchcase(name, pattern)
    word = re.compile(re.escape(pattern) + r"(?![A-Za-z])")
    if any(word.match(name) for name in names):
        return lambda name: word.match(name) is not None
    return lambda name: name.startswith(pattern)


def engine_iteration(name: str) -> bool:
    """An iteration of vLLM, SGLang or TensorRT-LLM."""
    return len(name) <= _LONGEST and _ENGINE.fullmatch(name) is not None


def kind_of(name: str) -> str:
    """What kind of step a name says: an engine's ``prefill``, ``decode`` or ``mixed``, else the name without numbers."""
    text = name[:_LONGEST]
    if engine_iteration(text):
        mode = _SGLANG.match(text)
        if mode is not None:
            return "prefill" if mode[1] in _PREFILLS else mode[1].lower()
        prefills, decodes = (_count(pattern, text) for pattern in (_CONTEXTS, _GENERATIONS))
        if prefills or decodes:
            return "mixed" if prefills and decodes else "prefill" if prefills else "decode"
    return _NUMBER.sub("", text).strip(" #:_-.")


def _count(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(next((each for each in found.groups() if each), 0)) if found else 0


def number_in(name: str) -> int | None:
    """The number of a step, where its name has exactly one."""
    found = _NUMBER.findall(name[:_LONGEST])
    return int(found[0]) if len(found) == 1 and len(found[0]) < 19 else None


def marked_rows(trace: Trace, pattern: str | None) -> tuple[NDArray[np.bool_], FoundBy]:
    """Which rows of `Trace.ranges` mark steps, nested doubles included, and how they were found.

    Args:
        trace: The timeline.
        pattern: The name that a person asks for; by default ``ProfilerStep#N``, else ranges named step, iteration,
            train_step and the like, else an inference engine's iterations.

    Returns:
        The rows, and ``marks``, ``names`` or ``none``.
    """
    ranges = trace.ranges
    host = np.isin(ranges.kind, (RangeKind.ANNOTATION, RangeKind.START_END))
    if pattern is not None:
        used = distinct(ranges.name[host & (ranges.name >= 0)])[0]
        asked = step_test(pattern, [trace.strings[name] for name in used.tolist()])
        rows: NDArray[np.bool_] = host & matching(trace.strings, ranges.name, asked)
        return rows, "marks" if rows.any() else "none"
    tests: tuple[tuple[Callable[[str], bool], FoundBy], ...] = (
        (profiler_step, "marks"),
        (_whole_step, "marks"),
        (step_like, "marks"),
        (engine_iteration, "names"),
    )
    for test, found_by in tests:
        rows = host & matching(trace.strings, ranges.name, test)
        if rows.any():
            return rows, found_by
    return rows, "none"


def _whole_step(name: str) -> bool:
    """A step's own name: the step of the optimizer is one only where there is no other."""
    return step_like(name) and not name.strip().lower().startswith("optim")


def steps_inside(trace: Trace, rows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The ranges that mark the same steps as these and lie inside them: one named like a step in each."""
    ranges = trace.ranges
    named = (ranges.kind == RangeKind.ANNOTATION) & ~rows
    named &= matching(trace.strings, ranges.name, _whole_step)
    inner = np.flatnonzero(named)
    found = np.zeros(len(ranges), bool)
    if not len(inner) or not rows.any():
        return found
    outer = Nesting.of(ranges, rows).innermost(ranges.thread[inner], ranges.start_ns[inner])
    for name in distinct(ranges.name[inner])[0].tolist():
        mine = (ranges.name[inner] == name) & (outer >= 0)
        if mine.any() and len(np.unique(outer[mine])) == int(mine.sum()):
            found[inner[mine]] = True
    return found
