"""Reports before and after a change -> what changed, by how much, and whether it is more than noise."""

from profkit.comparison.compare_reports import compare_reports
from profkit.comparison.gate import judge_limits
from profkit.comparison.limits import Limits, LimitTexts
from profkit.comparison.rows import Comparison, LimitResult
from profkit.comparison.trend import Change, Point, find_changes

__all__ = [
    "Change",
    "Comparison",
    "LimitResult",
    "LimitTexts",
    "Limits",
    "Point",
    "compare_reports",
    "find_changes",
    "judge_limits",
]
