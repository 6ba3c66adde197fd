"""Runs kept in a database: saved, listed, named, and shown again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from profkit.comparison import Point
from profkit.errors import OutputError, ReadError
from profkit.rendering.document import Document
from profkit.saved_runs.database import now_text, open_database, translated, writing
from profkit.saved_runs.metrics import Metric
from profkit.saved_runs.rows import (
    Values,
    kernel_name_rows,
    packed_report,
    run_row,
    table_rows,
    unpacked_report,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["History"]


class History:
    """A database of runs; its schema is described in docs/comparing.md.

    Use it as a context manager. Several processes may use one database at once.

    Args:
        path: The file.
        create: Make it when it is missing.

    Raises:
        ReadError: It is missing, or no history.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        self.path = Path(path)
        self._database = open_database(self.path, create=create)

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._database.conn.close()

    def save(
        self,
        report: Document,
        *,
        tags: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Keep a report, all of it or nothing.

        Args:
            report: The report.
            tags: What to find it by, such as ``{"branch": "main"}``.
            environment: What it was recorded with; ``git_revision`` and ``git_dirty`` become columns of the run.

        Returns:
            The run's id.

        Raises:
            OutputError: It cannot be written.
        """
        facts = dict(environment or {})
        revision, dirty = facts.pop("git_revision", None), facts.pop("git_dirty", None)
        run = {
            **run_row(report),
            "git_revision": revision,
            "git_dirty": None if dirty is None else int(dirty == "True"),
            "saved_at": now_text(),
        }
        packed, names = packed_report(report), kernel_name_rows(report)
        database = self._database
        with writing(database, self.path):
            table = database["runs"].insert(run)
            number = int(table.last_pk)
            database["kernel_names"].insert_all(names, ignore=True)
            known = {row.name: self._kernel_id(row.name) for row in report.kernels}
            rows = table_rows(report, number, known) | {
                "reports": [{"run": number, "document": packed}],
                "tags": _pairs(number, tags or {}),
                "environment": _pairs(number, facts),
            }
            for name, values in rows.items():
                if values:
                    database[name].insert_all(values)
        return number

    def load(self, run: str | int) -> Document:
        """The report of a run again.

        Args:
            run: Its id, or the name of a baseline.

        Raises:
            ReadError: There is no such run, or its report is damaged.
        """
        number = self.run_id(run)
        with translated(self.path):
            row = self._database.execute("SELECT document FROM reports WHERE run = ?", [number]).fetchone()
        if row is None:
            raise ReadError(self._place(number), "the run has no report", "Save it again")
        return unpacked_report(row[0], self._place(number))

    def run_id(self, run: str | int) -> int:
        """The id of a run that is named by its id, by a baseline's name, or as ``latest``.

        Raises:
            ReadError: There is no such run.
        """
        found = self._found(run)
        if found is None:
            hint = f"profkit history --db {self.path} lists them"
            raise ReadError(self._place(run), "there is no such run or baseline", hint)
        return found

    def has_run(self, run: str | int) -> bool:
        """Whether there is a run of this id or name."""
        return self._found(run) is not None

    def _found(self, run: str | int) -> int | None:
        text = str(run)
        with translated(self.path):
            found = self._database.execute("SELECT run FROM baselines WHERE name = ?", [text]).fetchone()
            if found is None and text == "latest":
                found = self._database.execute(
                    "SELECT max(id) FROM runs HAVING max(id) IS NOT NULL"
                ).fetchone()
            if found is None and text.isdecimal() and len(text) < 19:
                found = self._database.execute("SELECT id FROM runs WHERE id = ?", [int(text)]).fetchone()
        return None if found is None else int(found[0])

    def set_baseline(self, name: str, run: str | int) -> None:
        """Give a run a name, which moves when it was another's.

        Raises:
            OutputError: The name would be a number.
            ReadError: There is no such run.
        """
        if not name or name.isdecimal() or name == "latest" or "#" in name:
            raise OutputError(name, "not a name for a baseline", "Use one word, such as main")
        number = self.run_id(run)
        with writing(self._database, self.path):
            self._database["baselines"].insert(
                {"name": name, "run": number, "set_at": now_text()}, pk="name", replace=True
            )

    def runs(self, *, tags: Mapping[str, str] | None = None, last: int = 50) -> list[Values]:
        """The latest runs with these tags, oldest first: rows of the view ``run_list``."""
        where, values = _tagged("id", tags or {})
        query = f"SELECT * FROM run_list WHERE {where} ORDER BY id DESC LIMIT ?"
        with translated(self.path):
            return list(self._database.query(query, [*values, last]))[::-1]

    def save_trials(self, rows: Sequence[Values]) -> None:
        """Keep what a trial has measured, a row of ``trials`` for each, but for its time.

        Raises:
            OutputError: It cannot be written.
        """
        saved_at = now_text()
        with writing(self._database, self.path):
            self._database["trials"].insert_all([{"saved_at": saved_at, **row} for row in rows])

    def trials(self, *, last: int = 50) -> list[Values]:
        """What trials predicted and measured, oldest first: rows of ``trials``."""
        with translated(self.path):
            return list(self._database.query("SELECT * FROM trials ORDER BY id DESC LIMIT ?", [last]))[::-1]

    def table(self, *, tags: Mapping[str, str] | None = None, last: int = 1000) -> pd.DataFrame:
        """`runs` as a DataFrame, which keeps its columns when empty: ``id``, ``saved_at`` (UTC), ``step_ms`` and more."""
        import pandas as pd

        with translated(self.path):
            columns = list(self._database["run_list"].columns_dict)
        return pd.DataFrame(self.runs(tags=tags, last=last), columns=columns)

    def series(
        self, metric: Metric, *, tags: Mapping[str, str] | None = None, last: int = 1000
    ) -> list[Point]:
        """A number over the latest runs with these tags that have it, oldest first."""
        where, values = _tagged("runs.id", tags or {})
        query = (
            f"SELECT runs.id AS run, runs.saved_at, ({metric.query}) AS value FROM runs "
            f"WHERE runs.id IN (SELECT id FROM runs WHERE {where.replace('runs.id', 'id')} ORDER BY id DESC LIMIT ?) ORDER BY runs.id"
        )
        with translated(self.path):
            rows = self._database.execute(query, [*metric.values, *values, last]).fetchall()
        return [
            Point(run=run, saved_at=saved_at, value=value * metric.factor)
            for run, saved_at, value in rows
            if value is not None
        ]

    def _kernel_id(self, name: str) -> int:
        (number,) = self._database.execute("SELECT id FROM kernel_names WHERE name = ?", [name]).fetchone()
        return int(number)

    def _place(self, run: object) -> str:
        return f"{self.path}#{run}"


def _pairs(run: int, values: Mapping[str, str]) -> list[Values]:
    return [{"run": run, "key": key, "value": value} for key, value in values.items()]


def _tagged(column: str, tags: Mapping[str, str]) -> tuple[str, list[str]]:
    """A condition on tags, and its values."""
    clause = f"{column} IN (SELECT run FROM tags WHERE key = ? AND value = ?)"
    return " AND ".join([clause] * len(tags)) or "1", [text for pair in tags.items() for text in pair]
