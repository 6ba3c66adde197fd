"""Exports of nsys made up from real ones: cells, rows, columns and tables damaged in memory, then bytes."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing, suppress
from functools import cache
from random import Random
from typing import Any

from tests.fuzz.damage import NUMBERS, TEXTS, Made, damaged
from tests.fuzz.nsys_tables import add_table, keep_few
from tests.shared import DATA

_RECORDINGS = ("sync_item", "big_gemm_bf16", "elementwise_chain")
_MATTERING = (
    "CUPTI",
    "NVTX",
    "STRINGIDS",
    "TARGET",
    "THREAD",
    "PROC",
    "META",
    "EXPORT",
    "OSRT",
    "DIAG",
    "ANALYSIS",
)
_TYPES = ("INTEGER", "REAL", "TEXT", "BLOB", "NUMERIC")
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@cache
def sources() -> list[bytes]:
    """Exports as bytes: recordings without the tables of constants in all but one, and the cases."""
    found = []
    for place, name in enumerate(_RECORDINGS):
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.deserialize(gzip.decompress((DATA / f"nsys/{name}.sqlite.gz").read_bytes()))
            for table in _names(database) if place else []:
                if table.startswith("ENUM_"):
                    database.execute(f"DROP TABLE {_quoted(table)}")
            database.execute("VACUUM")
            found.append(database.serialize())
    return found + [
        file.read_bytes() for file in sorted((DATA / "cases").glob("*.sqlite")) if "93c" not in file.name
    ]


def make(random: Random) -> Made:
    """One export, different for every state of ``random``."""
    # the small ones more often: they are quicker, and hold what is rare
    data = random.choice(sources() if random.random() < 0.25 else sources()[len(_RECORDINGS) :])
    kernels: int | None = None
    if random.random() < 0.92:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
            database.deserialize(data)
            database.execute("PRAGMA journal_mode=OFF")
            for _ in range(random.choice([1, 1, 2, 4, 8])):
                with suppress(sqlite3.Error, OverflowError, UnicodeError):
                    change = add_table if random.random() < 0.2 else _change
                    change(database, random)
            if random.random() < 0.03:
                with suppress(sqlite3.Error):
                    keep_few(database, _names(database), random)
            kernels = _kernels(database)
            data = database.serialize()
    way = random.random()
    if way < 0.15 or kernels is None:
        return Made(damaged(data, random), ".sqlite")
    if way < 0.18:
        return Made(damaged(gzip.compress(data, 1), random), ".sqlite.gz")
    return Made(data, ".sqlite", kernels)


def _change(database: sqlite3.Connection, random: Random) -> None:
    names = _names(database)
    mattering = [name for name in names if name.upper().startswith(_MATTERING)] or names
    table = _quoted(random.choice(mattering))
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    column = _quoted(random.choice(columns))
    kind = random.random()
    if kind < 0.5:
        _change_cells(database, table, column, random)
    elif kind < 0.72:
        _change_rows(database, table, random)
    else:
        _change_schema(database, table, column, random)


def _change_cells(database: sqlite3.Connection, table: str, column: str, random: Random) -> None:
    some = f"WHERE (rowid * {random.randrange(1, 999)}) % {random.choice([1, 2, 10, 97])} = 0"
    kind = random.random()
    if kind < 0.6:
        value = _cell(random)
        database.execute(f"UPDATE {table} SET {column} = ? {some}", (value,))
    elif kind < 0.85:
        step = random.choice([1, -1, 10**6, -(10**9), 10**15, 2**62, 0.5])
        database.execute(f"UPDATE {table} SET {column} = {column} + ? {some}", (step,))
    else:
        database.execute(f"UPDATE {table} SET {column} = CAST({column} AS {random.choice(_TYPES)}) {some}")


def _change_rows(database: sqlite3.Connection, table: str, random: Random) -> None:
    some = f"WHERE (rowid * {random.randrange(1, 999)}) % {random.choice([1, 2, 10, 97])} = 0"
    if random.random() < 0.5:
        database.execute(f"DELETE FROM {table} {some}")
    else:
        database.execute(
            f"INSERT INTO {table} SELECT * FROM {table} {some} LIMIT {random.choice([1, 5, 500])}"
        )


def _change_schema(database: sqlite3.Connection, table: str, column: str, random: Random) -> None:
    plain = table.strip('"')
    other = random.choice(_names(database))
    new = random.choice(["rowid", "start", "c0", "r", "t", "deviceId", "x y", 'q"q', "globalPid", "select"])
    ways: list[list[str]] = [
        [f"DROP TABLE {table}"],
        [f"ALTER TABLE {table} DROP COLUMN {column}"],
        [f"ALTER TABLE {table} RENAME COLUMN {column} TO {_quoted(new)}"],
        [f'ALTER TABLE {table} RENAME TO "{plain}_V{random.choice([2, 3, 99999999999])}"'],
        [f'CREATE TABLE "{plain}_V2" AS SELECT * FROM {table} LIMIT 3'],
        [f"ALTER TABLE {table} ADD COLUMN {_quoted(new)} {random.choice(_TYPES)}"],
        [f"ALTER TABLE {table} ADD COLUMN g{random.randrange(9)} AS ({column} || randomblob(9))"],
        [f'ALTER TABLE {table} RENAME TO "old"', f'CREATE VIEW {table} AS SELECT * FROM "old"'],
        [f'ALTER TABLE {table} RENAME TO "old"', f'CREATE TABLE {table} AS SELECT CAST({column} AS TEXT) AS {column} FROM "old"'],
        [f'ALTER TABLE {table} RENAME TO "old"', f"ALTER TABLE {_quoted(other)} RENAME TO {table}"],
        [f'ALTER TABLE {table} RENAME TO "old"', f"CREATE TABLE {table} ({column} INTEGER PRIMARY KEY, x) WITHOUT ROWID",
         f"INSERT INTO {table} VALUES (1, 2)"],
        [f'ALTER TABLE {table} RENAME TO "old"', f"CREATE VIRTUAL TABLE {table} USING fts5(a, b)"],
        [f"CREATE TRIGGER tr AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END"],
        [f"CREATE UNIQUE INDEX ix ON {table} ({column})"],
        [f'ALTER TABLE {table} RENAME TO "old"', f"CREATE TABLE {table} (x)"],
    ]  # fmt: skip
    for statement in random.choice(ways):
        database.execute(statement)


def _cell(random: Random) -> Any:
    kind = random.random()
    if kind < 0.15:
        return None
    if kind < 0.3:
        return random.choice([b"", b"\xff\xfe\x00", b"\x00" * 50, random.randbytes(20)])
    if kind < 0.65:
        value = random.choice(NUMBERS)
        return value if isinstance(value, float) or abs(value) < 2**63 else float(value)
    return random.choice(TEXTS)


def _kernels(database: sqlite3.Connection) -> int | None:
    """How many rows all tables of kernels have together, graph launches included."""
    try:
        tables = [
            name
            for name in _names(database)
            if name.upper().startswith((_KERNELS, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"))
        ]
        return sum(database.execute(f"SELECT count(*) FROM {_quoted(name)}").fetchone()[0] for name in tables)
    except sqlite3.Error:
        return None


def _names(database: sqlite3.Connection) -> list[str]:
    return [
        name
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    ]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
