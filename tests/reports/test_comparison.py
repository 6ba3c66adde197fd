"""The study of comparisons: its slim reports say what whole ones say, and its scores are right."""

import importlib
import json
import lzma
from pathlib import Path
from types import SimpleNamespace

import pytest

import profkit
from tests.shared import studied_recordings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "reports" / "comparison"
SIDES = ("adam_foreach_fp32", "adamw_fused_fp32")


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(importlib.sys.modules, "record", raising=False)  # the calibration has one too
    yield importlib.import_module
    for name in ("record", "power"):
        importlib.sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def reports():
    folder = studied_recordings() / "kineto"
    return {name: json.loads(profkit.analyze(folder / f"{name}.json.gz").render("json")) for name in SIDES}


@pytest.mark.torch
def test_a_slim_report_compares_as_the_whole_one(study, reports, tmp_path):
    pytest.importorskip("torch")
    said = []
    for keep in (lambda report: report, study("record").slim_report):
        for name in SIDES:
            (tmp_path / f"{name}.json").write_text(
                json.dumps(keep(dict(json.loads(json.dumps(reports[name])))))
            )
        said.append(profkit.compare(*(tmp_path / f"{name}.json" for name in SIDES)).as_dict())
    assert said[0] == said[1]
    assert said[0]["verdict"] == "faster"


def test_every_change_has_an_expectation(study):
    pytest.importorskip("torch")
    assert set(study("cases").CHANGES) == {"none", *study("score").EXPECTED}


def write(folder, reports, rows):
    lines = [json.dumps(row | {"report": reports[side]}) for side, row in rows]
    (folder / "reports.jsonl.xz").write_bytes(lzma.compress("\n".join(lines).encode()))


def test_scores_count_what_a_comparison_says(study, reports, tmp_path, capsys):
    def row(name, change, number=None):
        return {"name": name, "model": "gpt", "change": change, "round": number}

    slow, fast = SIDES
    write(tmp_path, reports, [
        (slow, row("gpt_none", "none")), (fast, row("gpt_tf32", "tf32")), (slow, row("gpt_item", "item")),
        (slow, row("repeated_none_00", "none", 0)), (slow, row("repeated_none_01", "none", 1)),
        (slow, row("repeated_none_03", "none", 0)), (fast, row("repeated_none_02", "none", 2)),
        (slow, row("repeated_planted_02", "planted", 2)), (fast, row("repeated_planted_00", "planted", 0)),
    ])  # fmt: skip
    score = study("score")
    score.main(tmp_path)
    page = capsys.readouterr().out
    assert "| the right verdict of a change | 1 of 2 | all | **no** |" in page
    assert "| the right cause on top | 0 of 2 | all | **no** |" in page  # it is the optimizer's kernels
    assert "| the same step twice is `no change` | 2 of 3 | 19 of 20 | **no** |" in page
    assert "| 5 % planted is `slower` | 1 of 2 | 19 of 20 | **no** |" in page
    assert "| parts and phases add up to the step | 7 of 7 | all | yes |" in page
    assert "| gpt_tf32 | faster |" in page
    assert "optimizer (kernels)" in page


def test_parts_that_miss_a_nanosecond_do_not_add_up(study):
    step = SimpleNamespace(before_ns=5, after_ns=8, delta_ns=3)
    rows = [
        SimpleNamespace(before_ns=2, after_ns=2, delta_ns=0),
        SimpleNamespace(before_ns=3, after_ns=6, delta_ns=3),
    ]
    assert study("score").adds_up(rows, step)
    rows[0].after_ns = 3
    assert not study("score").adds_up(rows, step)


@pytest.mark.slow
def test_the_committed_results_are_what_the_committed_recordings_give(study, tmp_path):
    score = study("score")
    rows, reports = score.read(FOLDER / "data")
    for name, report in reports.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(report))
    found = {"changes": score.changes(rows, tmp_path), **score.repetitions(rows, tmp_path)}
    committed = json.loads((FOLDER / "results.json").read_text())
    assert json.loads(json.dumps(found)) == {key: committed[key] for key in found}


def test_the_power_of_a_comparison_grows_with_steps_and_with_recordings(study, monkeypatch):
    power = study("power")
    monkeypatch.setattr(power, "REPEATS", 60)
    monkeypatch.setattr(power, "MOST_MISSED", 3)
    spread, host = power.Kind(0.02, busy_spread=0.05), power.Kind(0.5)

    def called(*shape):
        return sum(said == "slower" for said in power.verdicts(*shape)) / power.REPEATS

    assert called(spread, 1, 50, (0.05, 0)) > called(spread, 1, 5, (0.05, 0)) + 0.3
    assert called(host, 10, 10, (0, 0.1)) > called(host, 1, 10, (0, 0.1)) + 0.3
    assert power.smallest(power.Kind(0.02), 1, 10, lambda share: (share, 0)) in ("2 %", "2.5 %")
    assert power.smallest(host, 1, 3, lambda _: (0, 0)) == "over 50 %"


@pytest.mark.slow
def test_the_page_of_the_study_holds_the_tables_of_power(study):
    power = study("power")
    page = power.PAGE.read_text()
    between = page.partition(power.START)[2].partition(power.END)[0]
    assert between.count("| 12 % (taken) |") == 1
    assert power.drift() in between
