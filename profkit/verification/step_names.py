"""Which spans of a plain recording are steps, and of which kind, by their names.

Written from the definitions alone (docs/numbers.md), as `timeline` is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Final

from profkit.verification.events import Span

__all__ = ["chosen_steps", "is_plain_step", "is_step", "kind", "number_jumps"]

_PROFILER_STEP: Final = re.compile(r"ProfilerStep#\d+")
_STEP: Final = re.compile(
    r"(global|train|training|optimi[sz]er)?[ _\-.]?(step|iteration|iter)[ _\-#:.]*\d*", re.IGNORECASE
)
_LONGEST_STEP_NAME: Final = 64
_LONGEST_ENGINE_NAME: Final = 256
_ENGINES: Final = (
    re.compile(r"execute_\w*(context|generation|prefill|decode|diffusion|new|cached)_?\d.*"),
    re.compile(r"step\[[A-Z][A-Z_]*\b.*"),
    re.compile(r"\[Executor\] _forward_step \d+.*"),
)


def is_step(span: Span, name: str | None = None) -> bool:
    """Whether a span may be a step: by the name that was asked for, else by the usual ones."""
    if span.kind not in ("annotation", "start_end"):
        return False
    if name is not None:
        return span.name == name or any(matches(span.name) for matches in _asked(name))
    return is_plain_step(span.name) or _is_of_profiler(span.name) or _engine(span.name)


def is_plain_step(name: str) -> bool:
    """Whether a name says step or iteration, with or without a number."""
    return len(name) < _LONGEST_STEP_NAME and _STEP.fullmatch(name.strip()) is not None


def _is_of_profiler(name: str) -> bool:
    return len(name) < _LONGEST_STEP_NAME and _PROFILER_STEP.fullmatch(name.strip()) is not None


def _engine(name: str) -> bool:
    return len(name) <= _LONGEST_ENGINE_NAME and any(form.fullmatch(name) for form in _ENGINES)


def _asked(name: str) -> list[Callable[[str], bool]]:
    """What a name that is asked for may mean besides itself, best first."""
    if name.startswith("re:"):
        found = re.compile(name[3:]).search
        return [lambda text: len(text) <= _LONGEST_ENGINE_NAME and bool(found(text))]
    if any(sign in name for sign in "*?["):
        return [lambda text: fnmatchcase(text, name)]

    def is_word(text: str) -> bool:
        return text.startswith(name) and re.match("[A-Za-z]", text[len(name) :]) is None

    return [is_word, lambda text: text.startswith(name)]


def chosen_steps(spans: Iterable[Span], name: str | None) -> list[Span]:
    """Of the spans that may be steps those that are: the first kind of name that any has."""
    spans = [span for span in spans if is_step(span, name)]
    if name is None:
        tests: list[Callable[[str], bool]] = [
            lambda text: bool(_PROFILER_STEP.fullmatch(text)),
            lambda text: not _engine(text) and not text.strip().lower().startswith("optim"),
            lambda text: not _engine(text),
            _engine,
        ]
    else:
        exact = [] if name.startswith("re:") else [lambda text: text == name]
        tests = [*exact, *_asked(name)]
    for test in tests:
        found = [span for span in spans if test(span.name)]
        if found:
            return found
    return []


def kind(name: str) -> str:
    """The kind of a step: what an engine says of its iteration, else the name without its numbers."""
    if _engine(name):
        mode = re.match(r"step\[([A-Z_]+)", name)
        if mode:
            return "prefill" if mode[1] in ("EXTEND", "PREFILL") else mode[1].lower()
        prefills = re.search(r"context_(\d+)|(\d+) ctx reqs", name)
        decodes = re.search(r"generation_(\d+)|(\d+) gen reqs", name)
        some = [bool(found) and int(found[1] or found[2]) > 0 for found in (prefills, decodes) if found]
        if any(some):
            return (
                "mixed" if all(some) and len(some) == 2 else "prefill" if prefills and some[0] else "decode"
            )
    return re.sub(r"\d+", "", name[:_LONGEST_ENGINE_NAME]).strip(" #:_-.")


def number_jumps(names: Sequence[str]) -> set[int]:
    """Where the one number in each name grows by more than it usually does."""
    found = [re.findall(r"\d+", name) for name in names]
    if any(len(numbers) != 1 or len(numbers[0]) > 18 for numbers in found) or any(map(_engine, names)):
        return set()
    growth = [int(b[0]) - int(a[0]) for a, b in pairwise(found)]
    usual, times = min(Counter(growth).most_common(), key=lambda entry: (-entry[1], entry[0]), default=(0, 0))
    if times < 2 or min(growth) <= 0:
        return set()
    return {number for number, grown in enumerate(growth, 1) if grown > usual}
