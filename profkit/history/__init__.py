"""Runs that are kept: saved reports, and a database of them."""

from profkit.history.facts import facts_of
from profkit.history.metrics import SUBJECTS, Metric, metric_of
from profkit.history.report_file import read_report_file
from profkit.history.store import History

__all__ = ["SUBJECTS", "History", "Metric", "facts_of", "metric_of", "read_report_file"]
