"""A report as the document that profkit publishes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from profkit.model.result import Result
from profkit.rendering.document import Document
from profkit.rendering.first_edition import second_edition

__all__ = ["document_of"]


def document_of(report: Result | Document) -> Document:
    """The report as a document.

    Args:
        report: One with its sentences; of a document itself.
    """
    if isinstance(report, Document):
        return report
    # TRANSITIONAL: goes when the analysis returns a typed report; until then its rows are dictionaries or structs.
    given = msgspec.to_builtins(report.as_dict(), enc_hook=_plain)
    return msgspec.convert(second_edition(given), Document)


def _plain(value: Any) -> Any:
    """Numpy's numbers and arrays as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise NotImplementedError(f"a report holds plain values, not {type(value).__name__}")
