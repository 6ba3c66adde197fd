"""What a file is called is what is in it."""

import csv

import pytest
from click.testing import CliRunner

from profkit.cli import main
from tests.shared import DATA

TRACE = str(DATA / "pairs" / "gpt_none.json.gz")


@pytest.mark.parametrize(
    "command",
    [["analyze", TRACE], ["show", TRACE], ["compare", TRACE, TRACE], ["gate", TRACE, "--min-busy", "1%"]],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("name", ["x.pdf", "x.json.gz"])
def test_a_suffix_that_no_format_has_is_refused_before_anything_is_read(command, name, tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.api.report.read", lambda *_: pytest.fail("it was read"))
    done = CliRunner().invoke(main, [*command, "-o", str(tmp_path / name)])
    assert done.exit_code == 1
    assert "there is no format ." in done.output
    assert "Choose one of .html" in done.output
    assert not list(tmp_path.iterdir())


def test_a_format_that_is_named_may_be_kept_under_any_name(tmp_path):
    done = CliRunner().invoke(main, ["show", TRACE, "-o", str(tmp_path / "x.log"), "--format", "text"])
    assert done.exit_code == 0
    assert (tmp_path / "x.log").read_text().startswith("The step is")


def test_a_missing_file_says_what_to_do(tmp_path):
    done = CliRunner().invoke(main, ["analyze", str(tmp_path / "none.json")])
    assert done.exit_code == 1
    assert "there is no such file. Check the name and the folder" in done.output


def test_a_trend_is_a_page(tmp_path):
    done = CliRunner().invoke(main, ["history", "--metric", "step_ms", "-o", str(tmp_path / "x.md")])
    assert done.exit_code == 2
    assert "name end in .html" in done.output


@pytest.mark.parametrize("command", [["compare", TRACE, TRACE], ["gate", TRACE, "--baseline", TRACE]])
def test_a_comparison_of_unknown_format_is_refused_before_anything_is_read(command, tmp_path, monkeypatch):
    monkeypatch.setattr("profkit.api.report.read", lambda *_: pytest.fail("it was read"))
    done = CliRunner().invoke(main, [*command, "-o", str(tmp_path / "x.xyz")])
    assert done.exit_code == 1
    assert "Choose one of .html, .htm, .json, .md, .txt, .csv, or" in done.output


@pytest.mark.parametrize("name", ["x.csv", ".csv"])
def test_a_comparison_is_a_table_by_its_suffix(name, tmp_path):
    done = CliRunner().invoke(main, ["compare", TRACE, TRACE, "-o", str(tmp_path / name)])
    assert done.exit_code == 0
    header, *rows = (tmp_path / name).read_text().splitlines()
    assert rows
    assert {header.count(",")} == {len(row) - 1 for row in csv.reader(rows)}


def test_a_file_that_is_called_like_a_suffix_has_its_format(tmp_path):
    done = CliRunner().invoke(main, ["analyze", TRACE, "-q", "-o", str(tmp_path / ".json")])
    assert done.exit_code == 0
    assert (tmp_path / ".json").read_text().startswith("{")
