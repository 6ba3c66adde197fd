import csv
import io

import pytest

from profkit.errors import printable
from profkit.rendering.table_csv import COLUMNS, render_csv
from tests.rendering.sample_reports import SAMPLES, compute_bound
from tests.rendering.samples import edited


def rows_of(report):
    return list(csv.DictReader(io.StringIO(render_csv(report))))


@pytest.mark.parametrize("name", SAMPLES)
def test_every_kernel_is_a_row_with_every_column(name):
    report = SAMPLES[name]()
    rows = rows_of(report)
    assert len(rows) == len(report.kernels)
    assert all(tuple(row) == COLUMNS for row in rows)


def test_numbers_are_those_of_the_report_and_the_most_expensive_comes_first():
    report = compute_bound()
    rows = rows_of(report)
    assert [int(row["total_ns"]) for row in rows] == sorted(
        (k.total_ns for k in report.kernels), reverse=True
    )
    assert rows[0]["grid"] == "2x66x1"
    assert rows[0]["operators"] == "aten::mm=147"
    assert rows[0]["tensor_core"] == "true"
    assert rows[0]["phases"] == f"backward={rows[0]['total_ns']} in {rows[0]['count']}"
    assert {row["efficiency"] for row in rows if row["bound"] == "overhead"} == {""}


@pytest.mark.parametrize(
    "start", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", "\n＋1", "－1", "＠1"]
)
def test_a_name_that_a_spreadsheet_would_run_is_text(start):
    report = edited(compute_bound(), lambda values: values["kernels"][0].update(name=start))
    assert rows_of(report)[0]["name"] == "'" + printable(start)


def test_no_cell_of_a_hostile_report_starts_a_formula():
    for row in rows_of(SAMPLES["hostile"]()):
        for cell in row.values():
            assert not cell.startswith(("=", "+", "@", "\t"))


def test_a_cell_is_one_line():
    report = edited(compute_bound(), lambda values: values["kernels"][0].update(name="a\r\nb\u2028c\x85d"))
    assert rows_of(report)[0]["name"] == "a  bcd"
