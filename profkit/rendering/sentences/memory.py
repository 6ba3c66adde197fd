"""What the memory section says."""

from __future__ import annotations

from typing import Final

from profkit.model.report_memory import Memory, OutOfMemory
from profkit.rendering.sentences.wording import Table

__all__ = ["FINDINGS", "memory_sentence", "oom_explanation"]

FINDINGS: Final[Table] = {}


def memory_sentence(memory: Memory) -> str:
    """What a snapshot by itself says, in place of a verdict on times."""
    raise NotImplementedError


def oom_explanation(oom: OutOfMemory) -> str:
    """Which shortage an allocation met, with the numbers."""
    raise NotImplementedError
