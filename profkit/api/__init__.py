"""What a program or a notebook calls: files in, a report out."""

from profkit.api.output_files import write_whole
from profkit.api.report import PathLike, Report, analyze, expand, export_timeline, refuse_input

__all__ = ["PathLike", "Report", "analyze", "expand", "export_timeline", "refuse_input", "write_whole"]
