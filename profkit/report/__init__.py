"""One report of many files, each summarised where it lies: only small tables travel."""

from profkit.report.file_summary import FileSummary, summarise_file
from profkit.report.merge import Merged

__all__ = ["FileSummary", "Merged", "summarise_file"]
