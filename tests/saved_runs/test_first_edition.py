"""Reports that profkit 0.1 saved are still shown, compared and kept in a history."""

import gzip
import json

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli import main
from profkit.errors import ReadError
from profkit.rendering import render_json
from profkit.saved_runs import History, read_report_file
from profkit.saved_runs.report_file import report_of
from tests.shared import DATA

SAVED = DATA / "reports" / "sync_item.first_edition.json.gz"
RECORDING = DATA / "nsys" / "sync_item.sqlite.gz"


def test_it_says_what_the_recording_says():
    saved, today = read_report_file(SAVED), profkit.analyze(RECORDING).document
    assert saved is not None
    assert saved.window.device_ns == today.window.device_ns
    assert saved.verdict.bound == today.verdict.bound
    assert sum(row.count for row in saved.kernels) == sum(row.count for row in today.kernels)
    assert {row.path: row.gpu_inclusive_ns for row in saved.phases} == {
        row.path: row.gpu_inclusive_ns for row in today.phases
    }


def test_launches_of_a_phase_are_unknown_where_it_did_not_tell_them():
    document = json.loads(gzip.decompress(SAVED.read_bytes()))
    row = document["kernels"][0]
    (whole,) = report_of(document, "report.json").kernels[0].phases.values()
    assert (whole.ns, whole.count) == (row["total_ns"], row["count"])
    row["phases"] = {"forward": 5, "backward": row["total_ns"] - 5}
    parts = report_of(document, "report.json").kernels[0].phases
    assert {path: (part.ns, part.count) for path, part in parts.items()} == {
        "forward": (5, None),
        "backward": (row["total_ns"] - 5, None),
    }


@pytest.mark.parametrize("form", ["html", "json", "md", "text", "csv"])
def test_it_is_shown_in_every_format(form):
    result = CliRunner().invoke(main, ["show", str(SAVED), "--format", form, "-o", "-"])
    assert result.exit_code == 0, result.output
    if form == "json":
        assert json.loads(result.output)["schema"] == "profkit.report/2"


def test_it_is_compared_with_the_recording_of_today():
    assert profkit.compare(SAVED, RECORDING).verdict == "no change"


def test_a_history_keeps_it(tmp_path):
    saved = read_report_file(SAVED)
    assert saved is not None
    with History(tmp_path / "runs.db", create=True) as history:
        assert render_json(history.load(history.save(saved))) == render_json(saved)


@pytest.mark.parametrize("name", ["verdict", "idle", "kernels", "window", "ranks"])
@pytest.mark.parametrize("value", [None, 3, "x", [[]], {}])
def test_a_damaged_one_is_refused_and_never_a_crash(name, value):
    document = json.loads(gzip.decompress(SAVED.read_bytes()))
    with pytest.raises(ReadError, match="not a complete"):
        report_of({**document, name: value}, "report.json")


@pytest.mark.parametrize("method", [3, "x", [[]], {"thresholds": [{"name": "x"}]}, {"ranks": 1}])
def test_a_damaged_method_is_refused_too(method):
    document = json.loads(gzip.decompress(SAVED.read_bytes()))
    with pytest.raises(ReadError, match="not a complete"):
        report_of({**document, "method": method}, "report.json")
