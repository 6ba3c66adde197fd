"""nsys exports: every text of every table, and the tables of the environment, in a copy that is packed anew."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, TypeAlias

from profkit.errors import ReadError
from profkit.readers.nsys.target import is_fact
from profkit.scrubbing.texts import HIDDEN, Scrubber

__all__ = ["scrub_export"]

_ENVIRONMENT: Final = ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE")
_RANK: Final = re.compile(r'(?:^|;)((?:RANK|OMPI_COMM_WORLD_RANK|PMIX_RANK)="?\d{1,6}"?)(?:;|$)')
_WHOLE: Final = re.compile(r"COMMAND|ARGUMENT|ENVIRON|WORKING", re.IGNORECASE)
"""Rows whose whole value may stand in another table too."""
_PERSONAL: Final = re.compile(r"user|host|machine|computer|login", re.IGNORECASE)
_TELLING: Final = ("/home/", "Users", "=", ".pt.trace.json", "--user", "name:", '":', "'':")
"""What a text has that may name a person or a machine, as SQL."""

_Value: TypeAlias = str | bytes | int | float | None


def scrub_export(file: Path, scrub: Scrubber, *, threads: bool = False) -> None:
    """Take what is to be hidden out of an export, in place; nothing of it stays in free pages.

    Args:
        file: A copy of the export, plain SQLite.
        scrub: What is to be hidden.
        threads: Whether the names of host threads are hidden too.

    Raises:
        ReadError: The database is damaged, or has virtual tables, which run code.
    """
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            database.executescript(
                "PRAGMA trusted_schema=OFF; PRAGMA secure_delete=ON; PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF"
            )
            _without_code(database, file)
            _hide(database, scrub, threads)
            database.execute("VACUUM")
    except sqlite3.DatabaseError as error:
        raise ReadError(file.name, f"the database is damaged ({error})", "Export it again") from error


def _without_code(database: sqlite3.Connection, file: Path) -> None:
    """Drop what would run when rows change, and is not read anyway."""
    rows = database.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    if any(
        kind == "table" and re.match(r"\s*CREATE\s+VIRTUAL", sql or "", re.IGNORECASE)
        for kind, _, sql in rows
    ):
        raise ReadError(file.name, "it has virtual tables, which run code", "Export it again with nsys")
    for kind, name, _ in rows:
        if kind in ("trigger", "view"):
            database.execute(f"DROP {kind} {_quoted(name)}")


def _hide(database: sqlite3.Connection, scrub: Scrubber, threads: bool) -> None:
    names = [
        name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    ]
    tables = {name: _columns(database, name) for name in names if not name.startswith("sqlite_")}
    scrub.learn(text for name, columns in tables.items() for text in _texts(database, name, columns))
    for name in _ENVIRONMENT:
        if {"name", "value"} <= set(tables.get(name, ())):
            _hide_environment(database, name, scrub)
    database.create_function("scrub", 1, lambda value: _scrubbed(value, scrub))
    database.execute("BEGIN")
    for name, columns in tables.items():
        for column in columns:
            database.execute(
                f"UPDATE {_quoted(name)} SET {_quoted(column)} = scrub({_quoted(column)}) "
                f"WHERE typeof({_quoted(column)}) IN ('text', 'blob') AND scrub({_quoted(column)}) IS NOT {_quoted(column)}"
            )
    if threads and "nameId" in tables.get("ThreadNames", ()) and "StringIds" in tables:
        _hide_threads(database, scrub)
    database.execute("COMMIT")


def _hide_environment(database: sqlite3.Connection, table: str, scrub: Scrubber) -> None:
    """Only facts of a known name stay, and the rank; all other values are secret wherever else they stand."""
    for row, name, value in database.execute(f"SELECT rowid, name, value FROM {_quoted(table)}").fetchall():
        key, text = str(name), str(value)
        if is_fact(name, value) or not text:
            continue
        if _PERSONAL.search(key):
            scrub.learn_pair("USER", text)
        rank = _RANK.search(text)
        kept = rank[1] if rank and key.endswith(("ENVIRONMENT_VARIABLE", "DeviceEnvironment")) else HIDDEN
        if kept != text and key.isascii():
            _learn_values(key, text, scrub)
            if _WHOLE.search(key) and len(text) >= 8:
                scrub.add_secret(text)
            scrub.removed["values of the environment"] += 1
            database.execute(f"UPDATE {_quoted(table)} SET value = ? WHERE rowid = ?", (kept, row))


def _learn_values(key: str, text: str, scrub: Scrubber) -> None:
    for part in text.split(";"):
        name, sign, value = part.partition("=")
        scrub.learn_pair(name if sign else key, (value if sign else part).strip('"'))


def _hide_threads(database: sqlite3.Connection, scrub: Scrubber) -> None:
    done = database.execute(
        "UPDATE StringIds SET value = ? WHERE id IN (SELECT nameId FROM ThreadNames) AND value NOT LIKE 'pt_autograd%'",
        (HIDDEN,),
    )
    scrub.removed["thread names"] += done.rowcount


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f"PRAGMA table_info({_quoted(table)})")]


def _texts(database: sqlite3.Connection, table: str, columns: list[str]) -> Iterator[str]:
    """The texts of a table that may name a person or a machine."""
    for column in columns:
        name = _quoted(column)
        told = " OR ".join(f"{name} LIKE '%{sign}%'" for sign in _TELLING)
        query = f"SELECT DISTINCT {name} FROM {_quoted(table)} WHERE typeof({name}) = 'text' AND ({told})"
        for (value,) in database.execute(query):
            yield str(value)


def _scrubbed(value: _Value, scrub: Scrubber) -> _Value:
    if isinstance(value, str):
        return scrub(value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    if isinstance(value, bytes):
        return scrub.bytes(value)
    return value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
