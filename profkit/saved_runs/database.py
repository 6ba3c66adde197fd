"""A history database: opened, recognised, migrated, and written by several processes at once."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from profkit.errors import OutputError, ReadError
from profkit.saved_runs.schema import APPLICATION_ID, MIGRATIONS, VERSION

if TYPE_CHECKING:
    import sqlite_utils

__all__ = ["now_text", "open_database", "writing"]

T = TypeVar("T")

_BUSY_S: Final = 30.0
"""How long a writer waits for others."""


def open_database(path: Path, *, create: bool) -> sqlite_utils.Database:
    """Open a history database, and bring it to this version's schema.

    Args:
        path: The file.
        create: Whether to make it when it is missing.

    Raises:
        ReadError: It is missing, no history database, or of a newer profkit.
        OutputError: It cannot be written.
    """
    if not create and not path.is_file():
        raise ReadError(
            path, "there is no such history", "Save a run first: profkit analyze FILE --save --db FILE"
        )
    try:
        # Transactions are begun by hand: sqlite3's own would begin them too late to keep other writers out.
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
    except sqlite3.Error as error:
        raise OutputError(
            path, f"the history cannot be opened: {error}", "Choose another file with --db"
        ) from error
    try:
        with translated(path):
            _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    import sqlite_utils  # it loads pandas, half a second that most commands need not pay

    return sqlite_utils.Database(connection)


@contextlib.contextmanager
def writing(database: sqlite_utils.Database, path: Path) -> Iterator[None]:
    """All of a transaction or nothing; other writers wait for its end.

    Raises:
        OutputError: It cannot be written, or others wrote for too long.
    """
    connection = database.conn
    with translated(path):
        _retried(lambda: connection.execute("BEGIN IMMEDIATE"))
        try:
            yield
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        _retried(lambda: connection.execute("COMMIT"))


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as profkit's."""
    try:
        yield
    except sqlite3.OperationalError as error:
        problem = f"the history cannot be used: {error}"
        raise OutputError(
            path, problem, "Check that it is writable, and that no other program locks it"
        ) from error
    except sqlite3.DatabaseError as error:
        raise ReadError(path, f"not a history database: {error}", "Choose another file with --db") from error


def now_text() -> str:
    """The time as a history keeps it: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA foreign_keys = ON")
    if _version(connection, path) == VERSION:
        return
    # Readers and one writer at once; the file keeps the mode.
    _retried(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
    _retried(lambda: connection.execute("BEGIN IMMEDIATE"))
    try:
        # Asked again, now that no other process can migrate it.
        for version in range(_version(connection, path), VERSION):
            for statement in filter(str.strip, MIGRATIONS[version].split(";\n")):
                connection.execute(statement)
            row = (version + 1, now_text())
            connection.execute("INSERT INTO profkit_schema (version, migrated_at) VALUES (?, ?)", row)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema's version; 0 for a new file, which is given its sign inside a transaction."""
    tables = {
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    }
    if "profkit_schema" not in tables:
        if tables:
            raise ReadError(
                path,
                "a SQLite database of something else, not a profkit history",
                "Choose another file with --db",
            )
        if connection.in_transaction:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(
                "CREATE TABLE profkit_schema (version INTEGER PRIMARY KEY, migrated_at TEXT NOT NULL)"
            )
        return 0
    (version,) = connection.execute("SELECT coalesce(max(version), 0) FROM profkit_schema").fetchone()
    if not isinstance(version, int) or version > VERSION:
        raise ReadError(
            path, f"a history of schema {version}, which is newer than this profkit", "Update profkit"
        )
    return version


def _retried(act: Callable[[], T]) -> T:
    """SQLite does not wait for some locks (a change of the journal's mode, a deadlock): try again."""
    end = time.monotonic() + _BUSY_S
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            busy = "locked" in str(error) or "busy" in str(error)
            if not busy or time.monotonic() > end:
                raise
            time.sleep(0.02)
