"""Reports that were saved as `profkit.report/1` JSON, read back."""

from __future__ import annotations

import gzip
import json
import mmap
import os
import zlib
from pathlib import Path
from typing import IO, Any, Final, cast

from profkit.errors import ReadError
from profkit.model.result import REPORT_SCHEMA, Result
from profkit.rendering import report_schema
from profkit.rendering.first_edition import counted_phases

__all__ = ["read_report_file", "result_of"]

_MARK: Final = f'"{REPORT_SCHEMA}"'.encode()
_GZIP: Final = b"\x1f\x8b"
_HEAD: Final = 1 << 16
_LARGEST: Final = 1 << 30


def read_report_file(path: str | os.PathLike[str]) -> Result | None:
    """The result in a saved report, also a gzip-compressed one; None when the file is something else.

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
        document = json.loads(text)
    except (OSError, EOFError, zlib.error, RecursionError) as error:
        raise ReadError(file.name, f"the report cannot be read: {error}", "Save it anew") from error
    except ValueError as error:
        raise ReadError(
            file.name, "the report is no whole JSON", "Save it anew with --format json"
        ) from error
    # A trace may hold the name of the schema somewhere; only a report has it on top.
    if not isinstance(document, dict) or document.get("schema") != REPORT_SCHEMA:
        return None
    return result_of(document, file.name)


def result_of(document: Any, where: str) -> Result:
    """A result from a report's document, checked against the schema.

    Args:
        document: What was read.
        where: What to call it in an error.

    Raises:
        ReadError: It is not as the schema demands.
    """
    import jsonschema

    if isinstance(document, dict):
        document = {**document, **counted_phases(document)}
    fault = next(iter(jsonschema.Draft202012Validator(report_schema()).iter_errors(document)), None)
    if fault is not None:
        place = "/".join(str(step) for step in fault.absolute_path) or "its top"
        raise ReadError(
            where, f"not a whole {REPORT_SCHEMA}: at {place}, {fault.message[:200]}", "Save it anew"
        )
    result = Result.from_dict(document)
    whole = result.window["device_ns"]
    parts = result.window.get("parts")
    for what, ns in (
        ("parts", sum(p["ns"] for p in parts or ())),
        ("shares", sum(result.verdict["shares"].values())),
    ):
        if ns != whole and not (what == "parts" and parts is None):
            raise ReadError(
                where,
                f"the report contradicts itself: its {what} do not add up to its window",
                "Save it anew",
            )
    return result


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
