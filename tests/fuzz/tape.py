"""Choices that come from bytes: what a fuzzer mutates, and what hypothesis shrinks."""

from __future__ import annotations

import math
from random import Random


class Tape(Random):
    """Random choices that are read from bytes; after their end, always the same ones."""

    def __init__(self, data: bytes) -> None:
        super().__init__(0)
        self._data, self._at = data, 0

    def _read(self, length: int) -> bytes | None:
        part = self._data[self._at : self._at + length]
        self._at += length
        return part if len(part) == length else None

    def random(self) -> float:
        """Two bytes a number: the makers tell apart no more."""
        part = self._read(2)
        return super().random() if part is None else int.from_bytes(part, "big") / 65536

    def getrandbits(self, k: int, /) -> int:
        part = self._read(math.ceil(k / 8))
        return super().getrandbits(k) if part is None else int.from_bytes(part, "big") % (1 << k)
