"""The numbers that a verdict rests on, for a report to state."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.hardware import OVERHEAD_NS, Gpu
from profkit.model.result import Row
from profkit.report.verdict import RUNNER_UP_WITHIN, UNDECIDED
from profkit.roofline.thresholds import UNSATURATED_BELOW
from profkit.timeline.idle import QUEUE_LATENCY_NS
from profkit.timeline.steps import WARM_UP_RATIO

__all__ = ["threshold_rows"]


def threshold_rows(cards: Sequence[Gpu | None]) -> list[Row]:
    """Name, value and source of each threshold."""
    known = [card for card in cards if card is not None]
    overhead = known[0].overhead_ns if known else OVERHEAD_NS
    queue = known[0].queue_ns if known else QUEUE_LATENCY_NS
    return [
        _row(
            "To: fixed time of any kernel",
            f"{overhead:.0f} ns",
            "measured with empty kernels (docs/models.md)",
        ),
        _row("Q: longest gap between queued operations", f"{queue:.0f} ns", "measured with a full queue"),
        _row("unsaturated below", f"{UNSATURATED_BELOW:.2f} of the roof", "reports/calibration"),
        _row("warm-up step above", f"{WARM_UP_RATIO:.1f}x the median of the later ones", "docs/numbers.md"),
        _row("runner-up named within", f"{RUNNER_UP_WITHIN:.0%} of the window", "docs/numbers.md"),
        _row("undecided above", f"{UNDECIDED:.0%} unclassified or lost", "docs/numbers.md"),
    ]


def _row(name: str, value: str, source: str) -> Row:
    return {"name": name, "value": value, "source": source}
