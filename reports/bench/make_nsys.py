#!/usr/bin/env python3
"""Build a large nsys SQLite export by replicating the events of a real one.

The result starts as a byte copy of the source (every table, enum and meta row
stays).  Each further replica inserts the rows of the event tables again with

* ``start``/``end``        + replica * period (span of all CUDA events + gap)
* ``correlationId``        + replica * (largest in the source + 1)
* ``gridId``               + replica * (largest in the source + 1)
* NVTX ``rangeId``         likewise

``globalTid``/``globalPid``, stream, device and name ids are unchanged, so the
launch of each replicated kernel still joins to its own runtime row and lies in
its own NVTX ranges.  Rows without a place in time (NVTX domain names, and
ranges that do not lie within the span) are not repeated.  NVTX texts repeat:
a real export of this length would hold more distinct texts where a name
carries a counter.  ANALYSIS_DETAILS is extended.  Deterministic.

    make_nsys.py SOURCE.sqlite[.gz] OUT.sqlite (--kernels 1000000 | --replicas 10)
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

SHIFTED_BY_TIME = ("start", "end")
SHIFTED_BY_ID = ("correlationId", "gridId", "rangeId", "overheadId")
EVENT_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "NVTX_EVENTS",
)


def columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]


def make(
    path: str | Path, out: str | Path, *, kernels: int = 0, replicas: int = 0, gap_us: int = 1000
) -> int:
    """Write the long export.

    Args:
        path: The real one.
        out: Where the long one goes.
        kernels: The least number of kernels that it shall have.
        replicas: How many replicas, in place of a number of kernels.
        gap_us: Idle time between two replicas.

    Returns:
        How many replicas it has.
    """
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rb") as source, Path(out).open("wb") as target:
        shutil.copyfileobj(source, target)
    with closing(sqlite3.connect(out, isolation_level=None)) as db:
        db.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-400000;"
            "PRAGMA temp_store=MEMORY; BEGIN;"
        )
        present = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        tables = [name for name in EVENT_TABLES if name in present]
        low, high = borders(db, tables)
        period = high - low + gap_us * 1000
        own = db.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()[0]
        replicas = replicas or -(-kernels // own)
        repeated = statements(db, tables, (low, high), period)
        for number in range(1, replicas):
            for statement in repeated:
                db.execute(statement, {"k": number})
        if "ANALYSIS_DETAILS" in present:
            extra = (replicas - 1) * period
            db.execute(
                "UPDATE ANALYSIS_DETAILS SET duration = duration + ?, stopTime = stopTime + ?", (extra, extra)
            )
        db.execute("COMMIT")
    return replicas


def borders(db: sqlite3.Connection, tables: list[str]) -> tuple[int, int]:
    """When the first event starts and the last one ends, ranges that enclose the CUDA work included."""
    cuda = [name for name in tables if name.startswith("CUPTI")]
    low = min(db.execute(f"SELECT min(start) FROM {t}").fetchone()[0] for t in cuda)
    high = max(db.execute(f"SELECT max(end) FROM {t}").fetchone()[0] for t in cuda)
    if "NVTX_EVENTS" in tables:
        first = "SELECT min(start) FROM NVTX_EVENTS WHERE start >= 0 AND end IS NOT NULL"
        low = min(low, *db.execute(first).fetchone())
        high = max(high, *db.execute("SELECT max(end) FROM NVTX_EVENTS").fetchone())
    return low, high


def statements(db: sqlite3.Connection, tables: list[str], span: tuple[int, int], period: int) -> list[str]:
    """What inserts replica ``:k`` of each table, from a copy of the source's rows in their order."""
    step: dict[str, int] = {}
    for table in tables:
        for name in columns(db, table):
            if name in SHIFTED_BY_ID:
                top = db.execute(f"SELECT max({name}) FROM {table}").fetchone()[0]
                step[name] = max(step.get(name, 0), (top or 0) + 1)
    made = []
    for table in tables:
        names = columns(db, table)
        where = "" if table != "NVTX_EVENTS" else f" WHERE start >= {span[0]} AND end <= {span[1]}"
        db.execute(f"CREATE TEMP TABLE src_{table} AS SELECT * FROM {table}{where} ORDER BY rowid")
        moved = [
            f'"{n}" + :k * {period}'
            if n in SHIFTED_BY_TIME
            else f'"{n}" + :k * {step[n]}'
            if n in SHIFTED_BY_ID
            else f'"{n}"'
            for n in names
        ]
        made.append(f"INSERT INTO main.{table} SELECT {', '.join(moved)} FROM src_{table} ORDER BY rowid")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("out")
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--kernels", type=int, default=0)
    size.add_argument("--replicas", type=int, default=0)
    parser.add_argument("--gap-us", type=int, default=1000, help="idle time between replicas")
    args = parser.parse_args()
    replicas = make(args.source, args.out, kernels=args.kernels, replicas=args.replicas, gap_us=args.gap_us)
    print(f"{args.out}: {replicas} replicas, {Path(args.out).stat().st_size} bytes")


if __name__ == "__main__":
    main()
