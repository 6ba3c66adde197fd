"""Runs that are kept: saved reports, and a database of them."""

from profkit.saved_runs.facts import facts_of
from profkit.saved_runs.metrics import SUBJECTS, Metric, metric_of
from profkit.saved_runs.report_file import read_report_file
from profkit.saved_runs.store import History

__all__ = ["SUBJECTS", "History", "Metric", "facts_of", "metric_of", "read_report_file"]
