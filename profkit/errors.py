"""Every error that profkit raises on purpose.

ProfkitError
├── ReadError        an input file cannot be read as what it seems to be
├── AnalysisError    the inputs were read, but together they make no sense
├── OutputError      a report cannot be written where it was asked for
└── RecordingError   a recording was asked for in a way that cannot work

To handle all of them::

    try:
        report = profkit.analyze("report.sqlite")
    except profkit.ProfkitError as error:
        print(error)  # report.sqlite: not an nsys export: no CUPTI table. Export it with ...

A message says where, what is wrong, and what to do next. Bugs keep their traceback.
"""

from __future__ import annotations

__all__ = ["AnalysisError", "OutputError", "ProfkitError", "ReadError", "RecordingError"]


class ProfkitError(Exception):
    """The root of every error that profkit raises on purpose."""


class _LocatedError(ProfkitError):
    def __init__(self, where: object, problem: str, hint: str = "") -> None:
        self.where = printable(str(where))
        self.problem = printable(problem)
        self.hint = printable(hint)
        super().__init__(where, problem, hint)

    def __str__(self) -> str:
        text = f"{self.where}: {self.problem}"
        return f"{text}. {self.hint}" if self.hint else text


class ReadError(_LocatedError):
    """An input file cannot be read as what it seems to be.

    Args:
        where: The file's name as the user gave it (``-`` for standard input).
        problem: What is wrong, without a full stop.
        hint: What to do next, as a sentence; may be empty.
    """


class AnalysisError(_LocatedError):
    """The inputs were read, but the analysis that was asked for cannot be made of them."""


class OutputError(_LocatedError):
    """A report cannot be written where it was asked for."""


class RecordingError(_LocatedError):
    """A recording was asked for in a way that cannot work."""


def printable(text: str) -> str:
    """Text from an input as one line that a terminal can show: control characters become ``?``."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
