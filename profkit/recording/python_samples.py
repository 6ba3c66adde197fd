"""Samples of Python's call stacks, which nsys keeps in its report and leaves out of its SQLite export."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import sqlite3
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from profkit.model.marks import PYTHON_CHAINS, PYTHON_SAMPLES

__all__ = ["add_python_samples"]

_DOMAIN: Final = "Python Backtrace"
"""The NVTX domain of nsys' own sampler. Its events are marks with a payload, which only the JSON export has."""

_HEADER: Final = struct.Struct("<IIQ")
_FRAME: Final = struct.Struct("<QQI4x")
"""Function and file, by their numbers in StringIds, and the line. Seen in nsys 2023.4.4; what follows a line of 32 bits is
not initialised there, and so is the upper half of the header's number of frames."""

_FILE: Final = re.compile(r"\.py$|^(?:<|&lt;)")
"""How a module is written: a file, or what Python itself calls ``<frozen runpy>``."""

_MOSTLY: Final = 0.5
"""Fewer frames of known files, and the numbers are read wrongly: a later nsys may write them otherwise."""


def add_python_samples(nsys: Path, report: Path, database: Path) -> int:
    """Add the samples of a report to its SQLite export.

    Args:
        nsys: The nsys binary.
        report: The ``.nsys-rep`` file.
        database: Its export.

    Returns:
        How many samples there are.

    Raises:
        OSError: nsys cannot be run, or the disk is full.
        sqlite3.Error: The export cannot be written.
    """
    with closing(sqlite3.connect(database)) as connection, connection:
        found = connection.execute(
            "SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND text = ?", (_DOMAIN,)
        )
        domains = {str(number) for (number,) in found}
        if not domains:
            return 0
        chains: dict[bytes, int] = {}
        samples = [
            (time, thread, chains.setdefault(_whole_frames(payload), len(chains)))
            for time, thread, payload in _samples(nsys, report, domains)
        ]
        frames = [
            (number, *frame, depth)
            for chain, number in chains.items()
            for depth, frame in enumerate(_FRAME.iter_unpack(chain))
        ]
        texts: dict[int, str] = dict(connection.execute("SELECT id, value FROM StringIds"))
        files = [_FILE.search(str(texts.get(module))) for _, _, module, _, _ in frames]
        if sum(map(bool, files)) < _MOSTLY * len(files):
            raise sqlite3.DataError("this nsys writes them in a form that is not known")
        connection.execute(f"CREATE TABLE {PYTHON_SAMPLES} (timestamp, globalTid, callchainId)")
        connection.execute(f"CREATE TABLE {PYTHON_CHAINS} (id, symbol, module, line, stackDepth)")
        connection.executemany(f"INSERT INTO {PYTHON_SAMPLES} VALUES (?, ?, ?)", samples)
        connection.executemany(f"INSERT INTO {PYTHON_CHAINS} VALUES (?, ?, ?, ?, ?)", frames)
    return len(samples)


def _whole_frames(payload: bytes) -> bytes:
    """The frames of a payload, without what is not initialised."""
    frames = payload[_HEADER.size :]
    whole = frames[: len(frames) - len(frames) % _FRAME.size]
    return b"".join(_FRAME.pack(*frame) for frame in _FRAME.iter_unpack(whole))


def _samples(nsys: Path, report: Path, domains: set[str]) -> Iterator[tuple[int, int, bytes]]:
    """Time, thread and payload of each sample. The export has the environment in it, so nobody else may read it."""
    text = report.with_name(f".{report.stem}.partial.json")
    try:
        os.close(os.open(text, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
        command = [
            str(nsys),
            "export",
            "--type=json",
            "--force-overwrite=true",
            f"--output={text}",
            str(report),
        ]
        umask = os.umask(0o077)
        try:
            subprocess.run(command, capture_output=True, check=False)
        finally:
            os.umask(umask)
        with text.open("rb") as lines:
            for line in lines:
                if b'"BinaryData"' in line:
                    yield from _sample_of(line, domains)
    finally:
        text.unlink(missing_ok=True)


def _sample_of(line: bytes, domains: set[str]) -> Iterator[tuple[int, int, bytes]]:
    try:
        event: dict[str, Any] = json.loads(line)["NvtxEvent"]
        if str(event["DomainId"]) in domains:
            payload = base64.b64decode(event["Payload"]["BinaryData"][0]["Data"])
            yield int(event["Timestamp"]), int(event["GlobalTid"]), payload
    except (ValueError, KeyError, IndexError, TypeError, binascii.Error):
        return  # another kind of event
