"""The texts of a recording, each once: what columns of names point into."""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["LONGEST_NAME", "Strings", "short_name"]

LONGEST_NAME: Final = 6000
"""Characters kept of a name; patterns that meet names are linear, and still cost by the character."""


def short_name(text: str) -> str:
    """A name within bounds: of a longer one its beginning, and a mark that tells it from others that begin alike."""
    if len(text) <= LONGEST_NAME:
        return text
    mark = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{text[: LONGEST_NAME - len(mark) - 1]}~{mark}"


class Strings:
    """Texts, numbered in the order of their first use."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._ids: dict[str, int] = {}

    def add(self, name: str) -> int:
        """The number of a name, which is kept within `LONGEST_NAME`."""
        return self.add_whole(short_name(name))

    def add_whole(self, text: str) -> int:
        """The number of a text that only counts when it is whole: a list of shapes, written as JSON."""
        found = self._ids.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found
