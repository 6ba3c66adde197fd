"""The mark by which a phase is recognised in a file: what `recording` writes and the readers look for."""

from __future__ import annotations

from typing import Final

__all__ = ["PHASE_DOMAIN", "PHASE_MARK", "WORK_MARK"]

PHASE_DOMAIN: Final = "profkit"
"""The NVTX domain of `profkit.phase`; readers give it to marked annotations of other formats too."""

PHASE_MARK: Final = "profkit::"
"""The prefix by which `profkit.phase` marks a torch annotation. Readers take it off again."""

WORK_MARK: Final = "profkit.work "
"""How the annotation begins that says the work of the phase around it: ``profkit.work flop=1000 bytes=64``."""
