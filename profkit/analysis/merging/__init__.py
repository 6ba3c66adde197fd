"""One report of many files, each summarised where it lies: only small tables travel."""

from profkit.analysis.merging.files import FileSummary, summarise_file
from profkit.analysis.merging.merge import merge_files

__all__ = ["FileSummary", "merge_files", "summarise_file"]
