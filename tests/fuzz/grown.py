"""Real recordings grown to cost much in at most 2 MB: any table or list many times as long, any field of it odd.

Each cell of each table that is read, and each value of each JSON-like format, is a field; see `FIELDS`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import pickle
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import profkit
from tests.fuzz.damage import Made
from tests.fuzz.nsys_tables import TABLES
from tests.shared import DATA

_COUNTS = (200, 2_000, 20_000, 60_000)
_MOST_TEXT = 60_000_000
"""Characters in one file, as it is unpacked."""
_MOST_SAMPLED = 400
"""Elements of a list whose fields are looked up."""
_TIMES = frozenset({"ts", "time_us", "address", "addr", "start", "timestamp", "rawTimestamp"})
_EXPORT = "nsys/sync_item.sqlite.gz"

Value = Callable[[int], Any]
Path_ = tuple[str | int, ...]


def values(unit: str, length: int, random: Random) -> Value:
    """What the cells of one field hold, by their number."""
    text, start = (unit * (length // len(unit) + 1))[:length], random.choice([0, 1, 1 << 40, -(1 << 30)])
    step = random.choice([1, 7, 1000, 1 << 24, 1_000_003])
    deep = "[" * min(length, 900) + "]" * min(length, 900)
    made: list[Value] = [
        lambda n: f"{text}{n}",
        lambda n: f"{n}{text}",
        lambda n: text,
        lambda n: (start + n * step) % (1 << 62),
        lambda n: (1 << 62) - n * step,
        lambda n: -n * step,
        lambda n: n % 300,
        lambda n: 0.1 * n,
        lambda n: str(n),
        lambda n: f"[{n}, {'1, ' * min(length, 999)}1]",
        lambda n: deep,
        lambda n: None,
    ]
    return made[0] if random.random() < 0.3 else random.choice(made)


# Exports


@cache
def _export() -> tuple[bytes, tuple[tuple[str, str], ...]]:
    data = gzip.decompress((DATA / _EXPORT).read_bytes())
    with _opened(data) as (database, _):
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        own = {
            name: tuple(row[1] for row in database.execute(f'PRAGMA table_info("{name}")'))
            for name in names
            if not name.startswith(("ENUM_", "sqlite_"))
        }
    known = {name.upper() for name in own}
    tables = own | {name: columns for name, columns in TABLES.items() if name.upper() not in known}
    return data, tuple((table, column) for table, columns in tables.items() for column in columns)


class _opened:
    def __init__(self, data: bytes) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._file = Path(self._folder.name) / "made.sqlite"
        self._file.write_bytes(data)
        self._database = sqlite3.connect(self._file)

    def __enter__(self) -> tuple[sqlite3.Connection, Path]:
        return self._database, self._file

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._folder.cleanup()


def _grown_export(field: tuple[str, str], value: Value, count: int, random: Random) -> tuple[bytes, str]:
    table, column = field
    data, fields = _export()
    with _opened(data) as (database, file):
        columns = [name for each, name in fields if each == table]
        quoted = ", ".join(f'"{name}"' for name in columns)
        with suppress(sqlite3.Error):
            database.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({quoted})')
        old = database.execute(f'SELECT {quoted} FROM "{table}" LIMIT 50').fetchall() or [
            (None,) * len(columns)
        ]
        (begin,) = database.execute("SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        pace, length = random.choice([0, 1, 100, 10_000]), random.choice([0, 50, 10**6, 10**10])
        also = random.choice([None, random.choice(columns)])
        other = values("a", 8, random)
        rows = []
        for number in range(count):
            row = dict(zip(columns, old[number % len(old)], strict=True))
            for name in columns:
                if name in _TIMES:
                    row[name] = begin + number * pace
                elif name == "end":
                    row[name] = begin + number * pace + length
                elif row[name] is None:
                    row[name] = number % 300
            if also:
                row[also] = other(number)
            row[column] = value(number)
            rows.append(list(row.values()))
        sql = f'INSERT OR REPLACE INTO "{table}" ({quoted}) VALUES ({", ".join("?" * len(columns))})'
        try:
            database.executemany(sql, rows)
        except sqlite3.IntegrityError:  # a key that is a number holds no text
            database.execute(f'ALTER TABLE "{table}" RENAME TO former')
            database.execute(f'CREATE TABLE "{table}" ({quoted})')
            database.execute(f'INSERT INTO "{table}" SELECT {quoted} FROM former')
            database.executemany(sql, rows)
        if _refers_to_text(table, column):
            base = 1 << 20
            database.execute(f'UPDATE "{table}" SET "{column}" = rowid + {base}')
            texts = [(base + n, value(n)) for n in range(count)]
            with suppress(sqlite3.IntegrityError):  # a text that is NULL: then the numbers lead nowhere
                database.executemany("INSERT OR REPLACE INTO StringIds VALUES (?, ?)", texts)
        database.commit()
        return file.read_bytes(), ".sqlite"


def _refers_to_text(table: str, column: str) -> bool:
    return table != "StringIds" and (
        column in ("nameId", "textId", "demangledName", "shortName", "symbol", "module")
    )


# Whatever is like JSON


@cache
def _document(kind: str) -> Any:
    if kind == "snapshot":
        return pickle.loads(gzip.decompress((DATA / "snapshot/sync_item.pickle.gz").read_bytes()))
    if kind == "report":
        report = profkit.analyze([DATA / "kineto/sync_item_stack.json.gz", DATA / "ncu/mixed.csv.gz"])
        return json.loads(report.render("json"))
    if kind == "run":
        return json.loads((DATA / "run_gpt/run.json").read_bytes())
    if kind == "numerics":
        return numerics_file()
    return json.loads(gzip.decompress((DATA / f"kineto/{kind}.json.gz").read_bytes()))


def numerics_file() -> Any:
    exponents = [0] * 256
    tensor = dict(
        name="layers.0", tensor="gradient", dtype="fp16", steps=[1, 2], norms=[1.0, None], largest=[1.0, None],
        smallest=1e-9, values=99, zeros=1, below=2, infinite=1, nan=0, exponents=exponents,
    )  # fmt: skip
    update = dict(name="layers.0", dtype="bf16", steps=[1, 2], ratios=[0.1, None], values=9, swallowed=3)
    scale = dict(steps=[1, 2], scales=[65536.0, 32768.0], skipped=[1], grown=[])
    first = dict(step=1, value="inf", name="layers.0", tensor="gradient", clean_step=0)
    return dict(
        schema="profkit.numerics/1", path="", rank=None, model="Net", every=1, step_count=3, steps=[0, 1, 2],
        tensors=[tensor] * 3, updates=[update] * 3, loss_scale=scale, non_finite=[first], findings=[],
        tool_version="0.2.0", facts={"torch": "2.9.0"},
    )  # fmt: skip


JSON_KINDS = ("sync_item_stack", "ddp_rank0", "snapshot", "report", "run", "numerics")


def _paths(value: Any, path: Path_ = (), label: str = "") -> Iterator[tuple[str, Path_]]:
    """Every value in a document: what it is, and where."""
    yield label, path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _paths(each, (*path, key), f"{label}.{key}")
    elif isinstance(value, list):
        for number, each in enumerate(value[:_MOST_SAMPLED]):
            cat = each.get("cat") or each.get("action") if isinstance(each, dict) else None
            yield from _paths(each, (*path, number), f"{label}[{cat or ''}]")


@cache
def _fields_of(kind: str) -> dict[str, Path_]:
    document = _document(kind)
    if (
        "traceEvents" in document
    ):  # one of each category first, so that each is among those that are looked at
        events, seen = document["traceEvents"], {}
        for event in events:
            seen.setdefault((event.get("cat"), event.get("name") if event["ph"] != "X" else None), event)
        events[:] = [*list(seen.values())[:200], *events]
    return dict(_paths(document))


def _grown_document(field: tuple[str, str], value: Value, count: int, random: Random) -> tuple[bytes, str]:
    kind, label = field
    document, path = _document(kind), _fields_of(kind)[label]
    lists = [at for at in range(len(path)) if isinstance(path[at], int)]
    if lists and random.random() < 0.85:
        at = lists[-1] if random.random() < 0.7 else lists[0]
        row, rest = _at(document, path[: at + 1]), path[at + 1 :]
        pace = random.choice([0, 1, 100, 10_000])
        also = random.choice([None, *(row if isinstance(row, dict) else ())])
        other = values("a", 8, random)
        rows = []
        for number in range(count):
            made = _with(row, rest, value(number))
            if isinstance(made, dict):
                made = dict(made)
                for name in _TIMES & made.keys() - set(rest[:1]):
                    made[name] = _moved(made[name], number * pace)
                if also and (also,) != rest:
                    made[also] = other(number)
            rows.append(made)
        grown = _with(document, path[:at], [*_at(document, path[:at]), *rows])
    else:
        grown = _with(document, path, _large(_at(document, path), value, count))
    if kind == "snapshot":
        return pickle.dumps(grown, 4), ".pickle"
    if kind == "run":
        text = json.dumps(grown).encode()
        return text[:1_900_000] if random.random() < 0.1 else text, "run"
    return json.dumps(grown).encode(), ".report" if kind == "report" else ".json"


def _large(value: Any, made: Value, count: int) -> Any:
    if isinstance(value, dict):
        return value | {str(made(number)): made(number) for number in range(count)}
    if isinstance(value, list):
        return [*value, *(made(number) for number in range(count))]
    text = made(0)
    return text * max(_MOST_TEXT // 4 // max(len(text), 1), 1) if isinstance(text, str) else text


def _moved(value: Any, by: int) -> Any:
    return value + by if isinstance(value, int | float) else value


def _at(value: Any, path: Path_) -> Any:
    for key in path:
        value = value[key]
    return value


def _with(value: Any, path: Path_, new: Any) -> Any:
    """A value with another one at one place; what is not on the way is shared."""
    if not path:
        return new
    made = dict(value) if isinstance(value, dict) else list(value)
    made[path[0]] = _with(value[path[0]], path[1:], new)
    return made


# Tables of counters


@cache
def _counters() -> list[list[str]]:
    text = gzip.decompress((DATA / "ncu/mixed.csv.gz").read_bytes()).decode()
    return list(csv.reader(line for line in text.splitlines() if line.startswith('"')))


def _grown_counters(field: tuple[str, str], value: Value, count: int, _random: Random) -> tuple[bytes, str]:
    rows = _counters()
    at, count = rows[0].index(field[1]), min(count, _MOST_TEXT // sum(map(len, rows[2])))
    more = []
    for number in range(count):
        row = list(rows[2 + number % (len(rows) - 2)])
        row[at] = str(value(number))
        more.append(row)
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows + more)
    return written.getvalue().encode(), ".csv"


@cache
def fields() -> list[tuple[str, tuple[str, str]]]:
    """Every field: its format, and its table and column or its document and label."""
    return [
        *(("nsys", field) for field in _export()[1]),
        *(("json", (kind, label)) for kind in JSON_KINDS for label in _fields_of(kind)),
        *(("ncu", ("", column)) for column in _counters()[0]),
    ]


_MAKERS = {"nsys": _grown_export, "json": _grown_document, "ncu": _grown_counters}


def grown(unit: str, number: int, random: Random) -> Made:
    """The file of one number: fields take turns."""
    format_, field = fields()[number % len(fields())]
    length = random.choice([0, 8, 8, 100, 4000, 100_000])
    count = min(random.choice(_COUNTS), _MOST_TEXT // (length + 400))
    while True:
        data, suffix = _MAKERS[format_](field, values(unit, length, random), count, random)
        packed = data if suffix in ("run", ".report") else gzip.compress(data, 6, mtime=0)
        if len(packed) <= 2_000_000:
            return Made(packed, suffix)
        count, length = count // 2, length // 2


def name_of(number: int) -> str:
    """The field that one number changes."""
    format_, field = fields()[number % len(fields())]
    return "/".join((format_, *field))
