"""What the health section says of a recording and of numbers that contradict each other."""

from __future__ import annotations

from typing import Final

from profkit.rendering.sentences.wording import Table

__all__ = ["FINDINGS"]

FINDINGS: Final[Table] = {}
