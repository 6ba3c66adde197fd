"""The numbers that a verdict rests on, for a report to state."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.hardware import OVERHEAD_NS, Gpu
from profkit.model.report import Threshold
from profkit.report.verdict import RUNNER_UP_WITHIN, UNDECIDED
from profkit.roofline.thresholds import UNSATURATED_BELOW
from profkit.timeline.idle import QUEUE_LATENCY_NS
from profkit.timeline.steps import WARM_UP_RATIO

__all__ = ["threshold_rows"]


def threshold_rows(gpus: Sequence[Gpu | None]) -> list[Threshold]:
    """The thresholds, those of the first GPU that is known."""
    known = [gpu for gpu in gpus if gpu is not None]
    overhead = known[0].overhead_ns if known else OVERHEAD_NS
    queue = known[0].queue_ns if known else QUEUE_LATENCY_NS
    return [
        Threshold(code="kernel-overhead", amount=overhead),
        Threshold(code="queue-latency", amount=queue),
        Threshold(code="unsaturated", amount=UNSATURATED_BELOW),
        Threshold(code="warm-up-step", amount=WARM_UP_RATIO),
        Threshold(code="runner-up", amount=RUNNER_UP_WITHIN),
        Threshold(code="undecided", amount=UNDECIDED),
    ]
