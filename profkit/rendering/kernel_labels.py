"""Names of kernels for people, told apart where several kernels share one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonprefix
from typing import Final

__all__ = ["told_apart"]

_WIDTH: Final = 43
"""Characters of a label with its addition: text has no room for more."""
_MOST_WORDS: Final = 3
_LONGEST_WORD: Final = 16
_LONG_BEGINNING: Final = 6
"""Characters that words have in common, from which on they are left out."""
_NO_WORD: Final = re.compile(r"[^A-Za-z0-9]+")


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
    words = [_NO_WORD.split(name) for name in names]
    common = set.intersection(*map(set, words))
    own = [[word for word in each if word and word not in common] for each in words]
    begins = commonprefix([each[0] for each in own if each]).rstrip("0123456789")  # noqa: RUF071 - of characters
    begins = begins if len(begins) >= _LONG_BEGINNING else ""
    own = [[word.removeprefix(begins)[:_LONGEST_WORD] or word for word in each] for each in own]
    for most in range(1, _MOST_WORDS + 1):
        found = [" ".join(each[:most]) for each in own]
        if len(set(found)) == len(found):
            break
    return found


def _joined(label: str, words: str) -> str:
    if not words:
        return label
    room = max(_WIDTH - len(words) - 3, 12)
    return f"{label if len(label) <= room else label[: room - 1] + '…'} · {words}"
