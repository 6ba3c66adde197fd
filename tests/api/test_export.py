"""Every device operation as a file: the rows of `Report.launches`, in CSV and Parquet."""

import csv
import io
import json

import pandas as pd
import pytest

import profkit
from profkit.errors import OutputError
from tests.shared import DATA

TRACE = DATA / "kineto" / "sync_item.json.gz"


def rows_of(file):
    return list(csv.DictReader(io.StringIO(file.read_text(), newline="")))


def test_csv_has_a_row_for_every_device_operation(tmp_path):
    launches = profkit.analyze(TRACE).launches
    rows = rows_of(profkit.export(TRACE, tmp_path / "launches.csv"))
    assert list(rows[0]) == list(launches.columns)
    assert [int(row["duration_ns"]) for row in rows] == launches.duration_ns.tolist()
    for name in ("name", "operator", "phase", "bound", "step"):
        assert [row[name] or None for row in rows] == launches[name].astype(object).where(
            launches[name].notna(), None
        ).tolist()
    assert [row["grid"] for row in rows] == [
        "x".join(map(str, each)) if each else "" for each in launches.grid
    ]


def test_parquet_has_the_same_rows(tmp_path):
    pytest.importorskip("pyarrow")
    launches = profkit.analyze(TRACE).launches
    read = pd.read_parquet(profkit.export(TRACE, tmp_path / "launches.parquet"))
    assert list(read.columns) == list(launches.columns)
    for name in ("start_ns", "duration_ns", "name", "operator"):
        assert read[name].fillna("").tolist() == launches[name].fillna("").tolist()
    assert [each if each is None else tuple(each) for each in read.grid] == launches.grid.tolist()


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.api.events.find_spec", lambda name: None)
    with pytest.raises(OutputError, match=r"pyarrow.*pip install 'profkit\[parquet\]'"):
        profkit.export(TRACE, tmp_path / "launches.parquet")


def test_a_name_that_a_spreadsheet_would_run_gets_an_apostrophe(tmp_path):
    trace = tmp_path / "evil.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "=cmd|'/c calc'!A1", "ts": 1, "dur": 2, "pid": 0, "tid": 7}
    trace.write_text(
        json.dumps({"traceEvents": [kernel | {"args": {"device": 0, "stream": 7, "correlation": 1}}]})
    )
    (row,) = rows_of(profkit.export(trace, tmp_path / "launches.csv"))
    assert row["name"].startswith("'=cmd")
