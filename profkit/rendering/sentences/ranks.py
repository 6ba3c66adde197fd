"""What the comparison of ranks says: stragglers, waiting, and how the work is spread over devices."""

from __future__ import annotations

from typing import Final

from profkit.model.report_ranks import Parallelism
from profkit.model.report_verdict import Verdict
from profkit.rendering.sentences.wording import Table

__all__ = ["FINDINGS", "parallelism_evidence", "straggler_caveats", "straggler_sentence"]

FINDINGS: Final[Table] = {}


def straggler_sentence(verdict: Verdict) -> str | None:
    """The verdict's sentence where waiting for a rank leads it (``straggler.leads``); else None."""
    return None


def straggler_caveats(verdict: Verdict) -> list[str]:
    """What is said of a straggler beside the verdict's sentence."""
    return []


def parallelism_evidence(row: Parallelism) -> str:
    """What shows that work is spread so."""
    raise NotImplementedError
