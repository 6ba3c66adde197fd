"""The texts of a recording, each once: what columns of names point into."""

from __future__ import annotations

__all__ = ["Strings"]


class Strings:
    """Texts, numbered in the order of their first use."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._ids: dict[str, int] = {}

    def add(self, text: str) -> int:
        """The number of a text."""
        found = self._ids.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found
