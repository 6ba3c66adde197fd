"""The least that reading a file can cost: decode or fetch what an analysis needs, and do nothing with it.

floors.py msgspec|sqlite3|duckdb|unpickle FILE
"""

from __future__ import annotations

import gc
import pickle
import sqlite3
import sys
from pathlib import Path

NEEDED = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("start", "end", "deviceId", "streamId", "correlationId", "demangledName"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId"),
    "NVTX_EVENTS": ("start", "end", "eventType", "globalTid", "domainId", "text"),
}


def msgspec(path: str) -> int:
    """Every event of a profiler trace, only the fields that are needed, as typed objects."""
    import msgspec

    numbers = [(name, int | None, None) for name in ("correlation", "stream")]
    external = ("external", int | None, msgspec.field(default=None, name="External id"))
    arguments = msgspec.defstruct("Arguments", [*numbers, external], gc=False)
    fields = [
        ("ph", str),
        *((name, str | None, None) for name in ("name", "cat")),
        *((name, float | None, None) for name in ("ts", "dur")),
        *((name, int | str | None, None) for name in ("pid", "tid")),
        ("args", arguments | None, None),
    ]
    event = msgspec.defstruct("Event", fields, gc=False)
    events = ("events", list[event], msgspec.field(name="traceEvents"))
    file = msgspec.defstruct("File", [events], gc=False)
    return len(msgspec.json.decode(Path(path).read_bytes(), type=file, strict=False).events)


def sqlite3_rows(path: str) -> int:
    """Every kernel, call and range of an nsys export, as tuples."""
    db = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    held = [db.execute(f"SELECT {', '.join(map(quoted, c))} FROM {t}").fetchall() for t, c in NEEDED.items()]
    return sum(map(len, held))


def duckdb(path: str) -> int:
    """The same as Arrow columns, on one thread, with the extension of the package duckdb-ext-sqlite."""
    import duckdb
    import duckdb_ext

    folder = Path(next(iter(duckdb_ext.__path__))) / "extensions"
    extension = next(folder.rglob("sqlite_scanner.duckdb_extension"))
    db = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "1"})
    db.execute(f"LOAD '{extension}'")
    held = [
        db.execute(
            f"SELECT {', '.join(map(quoted, c))} FROM sqlite_scan('{path}', '{t}')"
        ).fetch_arrow_table()
        for t, c in NEEDED.items()
    ]
    return sum(table.num_rows for table in held)


def unpickle(path: str) -> int:
    """A memory snapshot, with no class allowed and the garbage collector off."""

    class Plain(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> object:
            raise pickle.UnpicklingError(f"{module}.{name}")

    gc.disable()
    with Path(path).open("rb") as file:
        return sum(map(len, Plain(file).load()["device_traces"]))


def quoted(name: str) -> str:
    return f'"{name}"'


if __name__ == "__main__":
    floors = {"msgspec": msgspec, "sqlite3": sqlite3_rows, "duckdb": duckdb, "unpickle": unpickle}
    print(floors[sys.argv[1]](sys.argv[2]))
