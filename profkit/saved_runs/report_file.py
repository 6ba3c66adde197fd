"""Saved reports read back: those of this version, and `profkit.report/1` under the names of today."""

from __future__ import annotations

import gzip
import mmap
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final, cast

import msgspec

from profkit.errors import ReadError
from profkit.model.report import REPORT_SCHEMA
from profkit.rendering.document import Document
from profkit.rendering.first_edition import FIRST_EDITION, second_edition

__all__ = ["read_report_file", "report_of"]

_MARK: Final = b'"profkit.report/'
_GZIP: Final = b"\x1f\x8b"
_HEAD: Final = 1 << 16
_LARGEST: Final = 1 << 30


def read_report_file(path: str | os.PathLike[str]) -> Document | None:
    """The report in a file, also a gzip-compressed one; None when the file is something else.

    Raises:
        ReadError: The file is a report that is damaged, or of another version.
    """
    file = Path(path)
    try:
        if not file.is_file() or not _looks_like_a_report(file):
            return None
        with _opened(file) as stream:
            text = stream.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ReadError(file.name, "the report is larger than 1 GiB", "Analyse the recording itself")
        document = msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"))
    except (OSError, EOFError, zlib.error, RecursionError) as error:
        raise ReadError(file.name, f"the report cannot be read: {error}", "Save it again") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReadError(
            file.name, "the report is incomplete JSON", "Save it again with --format json"
        ) from error
    # A trace may hold the name of the schema somewhere; only a report has it on top.
    if not isinstance(document, Mapping) or not str(document.get("schema")).startswith("profkit.report/"):
        return None
    return report_of(document, file.name)


def report_of(document: object, where: str) -> Document:
    """A report from its JSON, checked against the types.

    Args:
        document: What was read.
        where: What to call it in an error.

    Raises:
        ReadError: It is of another version, not whole, or contradicts itself.
    """
    schema = document.get("schema") if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or schema not in (FIRST_EDITION, REPORT_SCHEMA):
        raise ReadError(where, f"not a report that this profkit reads: {schema!s:.40}", "Save it again")
    try:
        report = msgspec.convert(second_edition(document), Document)
    except (msgspec.ValidationError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ReadError(where, f"not a complete {schema}: {str(error)[:200]}", "Save it again") from error
    whole = report.window.device_ns
    parts = sum(part.ns for part in report.window.parts) if report.window.parts else whole
    for what, ns in (("parts", parts), ("shares", sum(report.verdict.shares.values()))):
        if ns != whole:
            raise ReadError(
                where,
                f"the report contradicts itself: its {what} do not add up to its window",
                "Save it again",
            )
    return report


def _looks_like_a_report(file: Path) -> bool:
    with _opened(file) as stream:
        head = stream.read(_HEAD)
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return False
    if _MARK in head or _is_gzip(file):
        return _MARK in head
    # Tools that sort keys put the schema's name late.
    with file.open("rb") as plain, mmap.mmap(plain.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(_MARK) >= 0


def _opened(file: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(file)) if _is_gzip(file) else file.open("rb")


def _is_gzip(file: Path) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(_GZIP)) == _GZIP
