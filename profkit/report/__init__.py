"""One report of many files, each summarised where it lies: only small tables travel."""

from profkit.report.merge import merge_files
from profkit.report.part import FileSummary, summarise_file

__all__ = ["FileSummary", "merge_files", "summarise_file"]
