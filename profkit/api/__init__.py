"""What a program or a notebook calls: files in, a report out."""

from profkit.api.events import export, export_timeline
from profkit.api.inputs import PathLike, expand, refuse_input
from profkit.api.output_files import write_whole
from profkit.api.report import Report, analyze

__all__ = [
    "PathLike",
    "Report",
    "analyze",
    "expand",
    "export",
    "export_timeline",
    "refuse_input",
    "write_whole",
]
