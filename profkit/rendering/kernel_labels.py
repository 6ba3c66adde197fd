"""Names of kernels for people, told apart where several kernels share one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["told_apart"]

_WIDTH: Final = 43
"""Characters of a label with its addition: text has no room for more."""
_MOST_WORDS: Final = 3
_LONGEST_WORD: Final = 16
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9]+")
_PART: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Where the next part of a word in mixed case begins: ``winograd|Forward|Data4x4``."""


def told_apart(labels: Sequence[str], names: Sequence[str]) -> list[str]:
    """The labels, and behind those that several names share the words of the name that the others lack.

    Args:
        labels: What each kernel is called.
        names: Their names as the library gave them, each once.
    """
    sharing: dict[str, list[int]] = {}
    for at, label in enumerate(labels):
        sharing.setdefault(label, []).append(at)
    told = list(labels)
    for label, rows in sharing.items():
        if len(rows) > 1:
            for at, words in zip(rows, _differences([names[at] for at in rows]), strict=True):
                told[at] = _joined(label, words)
    return told


def _differences(names: Sequence[str]) -> list[str]:
    """As few words of each name as tell it from the others; none for the one that has no word of its own."""
    split = [[_PART.split(word) for word in _NO_WORD.split(name)] for name in names]
    parts = [{part for word in words for part in word} for words in split]
    common = set.intersection(*parts)
    runs = [[run for word in words for run in _runs(word, common)] for words in split]
    plain = [[run for run in own if run[0][0].isalpha()] for own in runs]
    told: list[str] = []
    for kind in (plain, runs):  # numbers only where words do not do
        told = [" ".join(_telling(own, parts, at)) for at, own in enumerate(kind)]
        if len(set(told)) == len(told):
            break
    return told


def _runs(word: Sequence[str], common: set[str]) -> Iterator[tuple[str, ...]]:
    """The parts of a word that not all names have: neighbours together as far as there is room."""
    run: tuple[str, ...] = ()
    for part in word:
        own = bool(part) and part not in common
        if run and not (own and len("".join(run)) + len(part) <= _LONGEST_WORD):
            yield run
            run = ()
        run = (*run, part) if own else run
    if run:
        yield run


def _telling(runs: Sequence[tuple[str, ...]], parts: Sequence[set[str]], mine: int) -> Iterator[str]:
    """Of a name's own words those that leave the fewest others that have them too."""
    others = [names for at, names in enumerate(parts) if at != mine]
    for _ in range(_MOST_WORDS):
        left = [[names for names in others if names.issuperset(run)] for run in runs]
        fewest = min(range(len(runs)), key=lambda at: len(left[at]), default=None)
        if fewest is None or len(left[fewest]) == len(others):
            return
        word = "".join(runs[fewest])
        yield word if len(word) <= _LONGEST_WORD else word[: _LONGEST_WORD - 1] + "…"
        others = left[fewest]


def _joined(label: str, words: str) -> str:
    if not words:
        return label
    room = max(_WIDTH - len(words) - 3, 12)
    return f"{label if len(label) <= room else label[: room - 1] + '…'} · {words}"
