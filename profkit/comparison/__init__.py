"""Results before and after a change -> what changed, by how much, and whether it is more than noise."""

from profkit.comparison.compare_reports import (
    COMPARE_SCHEMA,
    Comparison,
    compare_results,
    part_label,
    signed_text,
)
from profkit.comparison.limits import Limits, broken_limits
from profkit.comparison.trend import Change, find_changes

__all__ = [
    "COMPARE_SCHEMA",
    "Change",
    "Comparison",
    "Limits",
    "broken_limits",
    "compare_results",
    "find_changes",
    "part_label",
    "signed_text",
]
