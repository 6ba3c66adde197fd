"""Results before and after a change -> what changed, by how much, and whether it is more than noise."""

from profkit.analysis.comparison.summary import (
    COMPARE_SCHEMA,
    Comparison,
    compare_results,
    part_label,
    signed_text,
)

__all__ = ["COMPARE_SCHEMA", "Comparison", "compare_results", "part_label", "signed_text"]
