import gzip
import json

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli import main
from tests.shared import DATA

EAGER, COMPILED = (DATA / "nsys" / f"{name}.sqlite.gz" for name in ("gpt_bf16", "gpt_bf16_compile"))


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def report_json(tmp_path_factory):
    return profkit.analyze(EAGER).save(tmp_path_factory.mktemp("reports") / "report.json")


def test_two_recordings_are_compared_on_the_terminal():
    result = run("compare", EAGER, COMPILED)
    assert result.exit_code == 0
    assert "Faster: 40.2 ms → 28.1 ms per step" in result.output


def test_a_saved_report_compares_like_its_recording(report_json, tmp_path):
    sorted_keys = tmp_path / "sorted.json"
    sorted_keys.write_text(json.dumps(json.loads(report_json.read_text()), sort_keys=True))
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(report_json.read_bytes()))
    expected = json.loads(run("compare", EAGER, COMPILED, "--format", "json").output)
    for saved in (report_json, sorted_keys, packed):
        assert json.loads(run("compare", saved, COMPILED, "--format", "json").output) == expected


def test_more_recordings_of_a_side_count_as_repetitions():
    result = json.loads(run("compare", EAGER, COMPILED, "--after", COMPILED, "--format", "json").output)
    assert result["after"]["steps"] == 4
    assert result["verdict"] == "faster"


def test_the_suffix_chooses_the_format(tmp_path):
    for name, start in (
        ("c.md", "## "),
        ("c.html", "<!doctype html>"),
        ("c.json", "{"),
        ("c.txt", "before: "),
    ):
        result = run("compare", EAGER, COMPILED, "-o", tmp_path / name)
        assert result.exit_code == 0
        assert (tmp_path / name).read_text().startswith(start)


def test_an_input_is_never_written_over(report_json):
    content = report_json.read_bytes()
    result = run("compare", report_json, COMPILED, "-o", report_json)
    assert result.exit_code == 1
    assert "it is one of the inputs" in result.output
    assert report_json.read_bytes() == content


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"schema": "profkit.report/1"}', "not a complete profkit.report/1"),
        ('{"schema": "profkit.report/1", "inputs": [', "the report is incomplete JSON"),
        ('{"schema": "profkit.report/1", "inputs": 3}', "not a complete profkit.report/1"),
    ],
)
def test_a_damaged_report_is_one_clear_line(tmp_path, content, says):
    file = tmp_path / "broken.json"
    file.write_text(content)
    result = run("compare", file, COMPILED)
    assert result.exit_code == 1
    assert "broken.json" in result.output
    assert says in result.output
    assert result.output.count("\n") == 1


def test_python_takes_reports_and_files():
    found = profkit.compare(profkit.analyze(EAGER), [COMPILED])
    assert found.verdict == "faster"
    assert found.as_dict()["schema"] == "profkit.compare/1"
    assert str(found).startswith("before: gpt_bf16.sqlite.gz")
