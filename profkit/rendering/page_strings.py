"""The texts of the page's data, each once."""

from __future__ import annotations

from typing import Final

__all__ = ["PageStrings"]

_BUDGET: Final = 1_500_000
_CUT: Final = 160


class PageStrings:
    """The string table: when the budget is spent, texts are cut and say so."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] = {}
        self._left = _BUDGET

    def add(self, text: str | None) -> int:
        """The index of a text, -1 for none."""
        if text is None:
            return -1
        if text not in self._index:
            self._index[text] = len(self.texts)
            kept = text
            if len(text) > max(self._left, _CUT):
                kept = f"{text[:_CUT]}… ({len(text) - _CUT} characters more are not in this page)"
            self._left -= len(kept)
            self.texts.append(kept.replace("\0", "\ufffd"))  # as HTML reads it, so that both halves agree
        return self._index[text]
