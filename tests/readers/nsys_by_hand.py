"""Exports made by hand: only the tables and columns that a test is about."""

import sqlite3
from pathlib import Path
from typing import Any

from profkit.model import Trace
from profkit.readers.nsys import read_nsys

PID, TID = 4242, 100
PROCESS = 1 << 48 | PID << 24
THREAD = PROCESS | TID


class Export:
    """An SQLite file that grows row by row; a table gets the columns of its first row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute(
            "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
        )
        self.columns: dict[str, list[str]] = {}
        self.numbers: dict[str, int] = {}

    def add(self, table: str, **row: object) -> "Export":
        marks = ", ".join("?" * len(row))
        names = ", ".join(f'"{name}"' for name in row)
        if table not in self.columns:
            self.columns[table] = list(row)
            self.connection.execute(f"CREATE TABLE {table} ({names})")
        self.connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))
        return self

    def string(self, value: str | bytes) -> int:
        key = value if isinstance(value, str) else repr(value)
        if key not in self.numbers:
            self.numbers[key] = len(self.numbers) + 1
            cell = "CAST(? AS TEXT)" if isinstance(value, bytes) else "?"
            self.connection.execute(f"INSERT INTO StringIds VALUES (?, {cell})", (self.numbers[key], value))
        return self.numbers[key]

    def kernel(self, name: str | bytes, start: object, end: object, **more: object) -> "Export":
        row = {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1}
        names = {"globalPid": PROCESS, "demangledName": self.string(name), "shortName": self.string("short")}
        return self.add("CUPTI_ACTIVITY_KIND_KERNEL", **{**row, **names, **more})

    def call(self, name: str, start: int, end: int, **more: object) -> "Export":
        row = {"start": start, "end": end, "eventClass": 0, "globalTid": THREAD, "correlationId": 1}
        return self.add("CUPTI_ACTIVITY_KIND_RUNTIME", **{**row, "nameId": self.string(name), **more})

    def nvtx(self, text: object, start: object, end: object, kind: int = 59, **more: object) -> "Export":
        row = {"start": start, "end": end, "eventType": kind, "text": text, "globalTid": THREAD}
        return self.add("NVTX_EVENTS", **{**row, "domainId": 0, "textId": None, **more})


def read(export: Export) -> Trace:
    """What the reader makes of it; nothing can be added any more."""
    export.connection.close()
    return read_nsys(export.path, export.path.name)


def names(trace: Trace, table: Any) -> list[str]:
    return trace.names(table.name).tolist()


def codes(trace: Trace) -> set[str]:
    return {finding.code for finding in trace.findings}
