"""What is said of single steps."""

from __future__ import annotations

from profkit.model.report_time import StepRow
from profkit.rendering.sentences.labels import share_label
from profkit.units import duration_text, percent_text

__all__ = ["step_note"]


def step_note(step: StepRow) -> str | None:
    """What made a step much longer than the median one; None for a usual step."""
    if step.excess is None:
        return None
    longer, more = percent_text(step.excess.ratio), duration_text(step.excess.more_ns)
    return f"{longer} longer than the median step: {more} more {share_label(step.excess.share).lower()}"
