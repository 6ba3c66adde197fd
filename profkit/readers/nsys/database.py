"""The SQLite file of an export, opened so that nothing in it can run, change or hang.

Columns are read by letting SQLite join each of them into one text, a chunk of rows at a time, which numpy
parses: fewer Python objects, hence faster and lighter than fetching rows (docs/dev/reading-nsys.md has the table).
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from profkit.errors import ReadError
from profkit.model import Finding, Severity
from profkit.model.findings import Param
from profkit.readers.nsys.columns import NULL, Columns, Integers, constant, is_constant

__all__ = ["Chunk", "Database", "Table", "integer", "text"]

_CHUNK_ROWS = 1 << 14
"""What is made of so few rows stays in the processor's cache, and its memory is used again."""
_SMALLEST_CHUNK = 64
_ROW_NUMBERS = ("rowid", "_rowid_", "oid")
"""What SQLite calls the number of a row."""
_SMALL_TABLE_ROWS = 1_000_000
_STATEMENT_SECONDS = 30.0
_LONGEST_VALUE = 64 << 20
"""Bytes of one cell, and of what SQLite joins of a chunk; a chunk whose texts are longer is read in pieces."""
_HINT = "Export it again: nsys export --type sqlite --lazy=false -o report.sqlite report.nsys-rep"

_SEPARATOR = b"\x1f"

Chunk = tuple[list[Integers], list[bytes]]
"""Columns of some rows, and the texts of the same rows where they were asked for; empty for NULL."""


def text(value: object) -> str:
    """A cell as valid Unicode, whatever its bytes are."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def integer(value: object) -> int | None:
    """A cell as an integer; None when it is no number."""
    try:
        return int(value) if isinstance(value, int | float) else int(text(value))
    except (ValueError, OverflowError):
        return None


class Database:
    """The real tables of a SQLite file; views and virtual tables are not among them."""

    def __init__(self, path: Path, name: str) -> None:
        """Open ``path`` without ever writing to it or beside it.

        Raises:
            ReadError: It is not a readable SQLite database.
        """
        self.findings: list[Finding] = []
        self._deadline = 0.0
        # immutable: no lock, no journal and no -shm file appear beside the input
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        try:
            self._connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        except sqlite3.Error as error:
            raise ReadError(name, f"cannot be opened as a SQLite database ({error})", _HINT) from error
        self._connection.text_factory = bytes
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        self._connection.set_progress_handler(self._too_late, 50_000)
        try:
            schema = self._schema()
        except sqlite3.Error as error:
            self._connection.close()
            raise ReadError(name, f"not a readable SQLite database ({error})", _HINT) from error
        self._note_unfinished_writes(path)
        self.tables: dict[str, str] = {}
        self._refused: set[str] = set()
        for raw_name, kind, sql in schema:
            if kind == b"table" and re.match(r"CREATE\s+TABLE\b", text(sql).lstrip(), re.IGNORECASE):
                self.tables[text(raw_name).upper()] = text(raw_name)
            elif kind in (b"view", b"table"):
                self._refused.add(text(raw_name).upper())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def table(self, name: str) -> Table | None:
        """The table of that name, or of that name with the highest version suffix; None without one."""
        found = self.tables.get(name)
        if found is None and name in self._refused:
            self._refused.discard(name)
            self.note("table-refused", Severity.ERROR, table=name)
        if found is None:
            found = self._suffixed(name)
        if found is None:
            return None
        try:
            return Table(self, found)
        except sqlite3.Error as error:
            self.note("damaged", Severity.ERROR, table=found, error=str(error))
            return None

    def fetch(self, sql: str, values: Sequence[int] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query, within the time limit of one statement."""
        return list(self.stream(sql, values))

    def stream(self, sql: str, values: Sequence[int] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query one by one, within the time limit of one statement."""
        self._deadline = time.monotonic() + _STATEMENT_SECONDS
        try:
            yield from self._connection.execute(sql, values)
        except UnicodeDecodeError as error:  # the message of SQLite's own error holds a damaged name
            raise sqlite3.DatabaseError("its schema is damaged") from error

    def note(self, code: str, severity: Severity, count: int = 1, **params: Param) -> None:
        """Remember something that a person should know."""
        self.findings.append(Finding(code, severity, count=count, params=params))

    def _schema(self) -> list[tuple[Any, ...]]:
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON"):
            self._connection.execute(f"PRAGMA {pragma}")
        sql = "SELECT name, type, sql FROM sqlite_master"
        try:
            return self.fetch(sql)
        except sqlite3.DatabaseError as error:
            if "malformed" not in str(error):
                raise
            # only so does SQLite open a file that is shorter than it should be; nothing can be written anyway
            self._connection.execute("PRAGMA writable_schema=ON")
            schema = self.fetch(sql)
            self.note("truncated", Severity.ERROR)
            return schema

    def _too_late(self) -> bool:
        return time.monotonic() > self._deadline

    def _note_unfinished_writes(self, path: Path) -> None:
        for suffix in ("-wal", "-journal"):
            beside = path.with_name(path.name + suffix)
            if beside.is_file() and beside.stat().st_size:
                self.note("unfinished-writes", Severity.WARNING, suffix=suffix)

    def _suffixed(self, name: str) -> str | None:
        versions = {}
        for upper, found in self.tables.items():
            match = re.fullmatch(re.escape(name) + r"_V(\d{1,9})", upper)
            if match:
                versions[int(match[1])] = found
        if not versions:
            return None
        found = versions[max(versions)]
        self.note("schema-newer", Severity.INFO, table=found, known=name)
        return found


class Table:
    """One real table: what columns it has, and their values."""

    def __init__(self, database: Database, name: str) -> None:
        self.name = name
        self._database = database
        self._quoted = _quote(name)
        info = database.fetch(f"PRAGMA table_info({self._quoted})")
        self._columns = {text(row[1]).upper(): text(row[1]) for row in info}
        # A column may be called rowid; it then hides SQLite's own number of the row.
        self._row = next(
            (name for name in _ROW_NUMBERS if name.upper() not in self._columns), _ROW_NUMBERS[0]
        )
        self._not_null = {text(row[1]).upper() for row in info if row[3]}

    def __contains__(self, column: str) -> bool:
        return column.upper() in self._columns

    def is_filled_in(self, column: str) -> bool:
        """Whether the column cannot be NULL: the oldest exports wrote 0 for missing values there."""
        return column.upper() in self._not_null

    def integers(self, columns: Mapping[str, int]) -> Columns:
        """Whole columns as int64; each has its value for NULL, which also fills one that is absent."""
        parts = [values for values, _ in self.chunks(columns)]
        length = sum(len(part[0]) for part in parts)
        return Columns(length, join(columns, parts, length))

    def chunks(self, columns: Mapping[str, int], texts: str = "") -> Iterator[Chunk]:
        """The columns in pieces, in the order of the rows. What a damaged page hides is noted and left out.

        Args:
            columns: Names, each with its value for NULL.
            texts: One more column, of texts.
        """
        present = {name: null for name, null in columns.items() if name in self}
        selected = "".join(f", {self._of(name)} AS c{place}" for place, name in enumerate(present))
        lists = "".join(
            f", group_concat(coalesce(CAST(c{place} AS INTEGER), {null}))"
            for place, null in enumerate(present.values())
        )
        if texts in self:
            selected += f", {self._of(texts)} AS t"
            lists += f", group_concat(coalesce(CAST(t AS TEXT), ''), char({ord(_SEPARATOR)}))"
        sql = (
            f"SELECT count(*), max(r){lists} FROM (SELECT {self._row} AS r{selected} FROM {self._quoted}"
            f" WHERE {self._row} > ? ORDER BY {self._row} LIMIT ?)"
        )
        last, size, total = NULL, _CHUNK_ROWS, 0
        while True:
            try:
                count, newest, *joined = self._database.fetch(sql, (last, size))[0]
                contents = (
                    self._split(joined.pop(), count, texts, (last, newest)) if texts in self and count else []
                )
            except sqlite3.Error as error:
                size //= 16
                if size < _SMALLEST_CHUNK or "interrupted" in str(error):
                    self._note_damage(error, total)
                    return
                continue
            if not count:
                return
            if newest <= last and total:  # damaged pages can lead in a circle
                self._note_damage(sqlite3.DatabaseError("rows out of order"), total)
                return
            parsed = iter([constant(np.fromstring(values, np.int64, sep=",")) for values in joined])
            constants = [np.broadcast_to(np.int64(null), count) for null in columns.values()]
            yield (
                [next(parsed) if name in present else constants[i] for i, name in enumerate(columns)],
                contents,
            )
            last, total = newest, total + count

    def _split(self, joined: bytes, count: int, column: str, bounds: tuple[int, int]) -> list[bytes]:
        """Texts that SQLite has joined; one by one where a text holds the separator itself."""
        contents = joined.split(_SEPARATOR)
        if len(contents) == count:
            return contents
        sql = f"SELECT CAST({self._of(column)} AS TEXT) FROM {self._quoted} WHERE {self._row} > ? AND {self._row} <= ? ORDER BY {self._row}"
        return [content or b"" for (content,) in self._database.fetch(sql, bounds)]

    def rows(self, *columns: str, where: str = "") -> list[tuple[Any, ...]]:
        """The rows of a small table; absent columns are None. A damaged table ends early, and that is noted."""
        chosen = ", ".join(self._of(name) if name in self else "NULL" for name in columns)
        rows: list[tuple[Any, ...]] = []
        sql = f"SELECT {chosen} FROM {self._quoted} {where} LIMIT {_SMALL_TABLE_ROWS}"
        try:
            rows.extend(self._database.stream(sql))
        except sqlite3.Error as error:
            self._note_damage(error, len(rows))
        return rows

    def pairs(self, key: str, value: str) -> dict[int, bytes]:
        """A table of numbered texts as a dictionary."""
        found: dict[int, bytes] = {}
        if key not in self or value not in self:
            return found
        sql = f"SELECT CAST({self._of(key)} AS INTEGER), CAST({self._of(value)} AS TEXT) FROM {self._quoted}"
        try:
            for number, content in self._database.stream(sql):
                found[number] = content
        except sqlite3.Error as error:
            self._note_damage(error, len(found))
        return found

    def count(self) -> int:
        """How many rows the table has; 0 when it cannot be read."""
        try:
            return int(self._database.fetch(f"SELECT count(*) FROM {self._quoted}")[0][0])
        except sqlite3.Error:
            return 0

    def _of(self, column: str) -> str:
        return _quote(self._columns[column.upper()])

    def _note_damage(self, error: sqlite3.Error, saved: int) -> None:
        self._database.note("damaged", Severity.ERROR, table=self.name, rows=saved, error=str(error))


def join(columns: Mapping[str, int], parts: Sequence[list[Integers]], length: int) -> dict[str, Integers]:
    """Pieces of columns as whole columns; the pieces are given up one column at a time."""
    whole: dict[str, Integers] = {}
    for place, (name, null) in enumerate(columns.items()):
        pieces = [part[place] for part in parts]
        filled = [piece for piece in pieces if len(piece)]
        if all(is_constant(piece) and piece[0] == filled[0][0] for piece in filled):
            whole[name] = np.broadcast_to(filled[0][0] if filled else np.int64(null), length)
        else:
            whole[name] = np.concatenate(filled)
        for part in parts:
            part[place] = np.empty(0, np.int64)
    return whole


def _quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
