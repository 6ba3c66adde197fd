"""In which order a person would take advice: what it saves, how sure that is, and how much work it is."""

from __future__ import annotations

from typing import Final

from profkit.model.report_verdict import AdviceRow

__all__ = ["order_of"]

_SURE: Final = {"high": 1.0, "medium": 0.9, "low": 0.7}
_ONE_LINE: Final = frozenset(
    {
        "anomaly-mode", "bf16-autocast", "channels-last", "cudnn-benchmark", "ddp-buckets", "ddp-unused-parameters",
        "fragmentation", "fused-optimizer", "launch-blocking", "loader-workers", "pinned-copies", "set-to-none", "tf32",
        "torch-compile",
    }
)  # fmt: skip
_REWRITE: Final = frozenset({"cuda-graphs", "fp8", "pipeline-bubble", "python-loop", "streams-take-turns"})
_EASY, _USUAL, _HARD, _LATER = 1.0, 0.95, 0.85, 0.4
"""What a saving counts for by its work: a line, a few of them, another structure; mild, so that twice the saving is first.
What can be made only after another change comes after one that can be made now and saves half as much."""


def order_of(row: AdviceRow) -> tuple[float, float]:
    """Ascending: first what saves most for its work and certainty, then what has no price, the surest first."""
    sure = _SURE[row.confidence]
    work = _EASY if row.id in _ONE_LINE else _HARD if row.id in _REWRITE else _USUAL
    work = _LATER if row.precondition_unmet else work
    return -(row.saving_ns or 0) * sure * work, -sure * work
