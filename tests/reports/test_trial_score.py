"""The score of the study of trials: nothing that went wrong is left out."""

import importlib.util
import json
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "reports" / "trial" / "score.py"


@pytest.fixture(scope="module")
def score():
    spec = importlib.util.spec_from_file_location("trial_score", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def runs(**ways):
    return [{"way": way.replace("_", " "), "step_ms": ms} for way, ms in ways.items()]


def write(out, name, kept=(), later=None, later_kept=None, overhead=None, failed=False):
    trial = {"final": {"changes": list(kept), "speedup": {"low": 2.0, "likely": 2.1, "high": 2.2}}}
    if failed:
        (out / f"{name}.trial.failed").write_text(json.dumps({"try": None, "said": "first\nlast words\n"}))
    else:
        (out / f"{name}.trial.json").write_text(json.dumps({"try": trial}))
    if later is not None:
        found = {"kept": ",".join(kept if later_kept is None else later_kept), "runs": later}
        (out / f"{name}.later.json").write_text(json.dumps(found))
    if overhead is not None:
        (out / f"{name}.overhead.json").write_text(json.dumps({"ratio": overhead}))


def test_a_trial_that_failed_is_a_row_that_gained_nothing(score, tmp_path):
    write(tmp_path, "gpt2", failed=True, later=runs(bare=100.0, expert=25.0))
    row = score.row(tmp_path, "gpt2")
    assert score.gain_share(row) == pytest.approx(0.25)
    assert row["notes"] == ["trial: last words"]
    assert "0 of 1 reach" in score.demands([row])[0]


def test_a_way_of_the_expert_that_crashes_is_told(score, tmp_path):
    later = [*runs(bare=100.0, kept=50.0), {"way": "expert: compile", "code": 1, "said": "x\nTypeError: no"}]
    write(tmp_path, "t5", kept=["bf16"], later=later)
    row = score.row(tmp_path, "t5")
    assert row["notes"] == ["expert: compile: TypeError: no"]
    assert "- t5: expert: compile: TypeError: no" in score.table([row])


def test_what_is_slower_later_loses_time(score, tmp_path):
    later = [*runs(bare=100.0, kept=100.4), *runs(bare=100.2, kept=100.1)]
    write(tmp_path, "swin", kept=["tf32"], later=later)
    assert score.demands([score.row(tmp_path, "swin")])[1] == "1 lose time by what was kept."


def test_a_later_measurement_of_another_trial_does_not_count(score, tmp_path):
    write(tmp_path, "swin", kept=["tf32"], later=runs(bare=100.0, kept=50.0), later_kept=["bf16"])
    row = score.row(tmp_path, "swin")
    assert score.gain_share(row) is None
    assert "1 more were not measured later" in score.demands([row])[0]


def test_the_overhead_counts_by_its_likely_value_and_by_its_upper_end(score, tmp_path):
    write(tmp_path, "a", overhead=[0.99, 1.02, 1.05])
    write(tmp_path, "b", overhead=[0.99, 1.0, 1.02])
    rows = [score.row(tmp_path, name) for name in "ab"]
    assert score.demands(rows)[2] == "1 of 2 within 1.01 of the bare step, 0 with their upper end."


def test_what_a_recording_promises_stands_beside_what_was_measured(score, tmp_path):
    write(tmp_path, "gpt2", kept=["tf32", "loader-workers"], later=runs(bare=100.0, kept=50.0))
    whole = {"name": "tf32", "speedup": {"low": 1.4, "likely": 1.5, "high": 1.6}}
    found = {"kept": "tf32,loader-workers", "what_if": {"changes": [whole]}}
    (tmp_path / "gpt2.predicted.json").write_text(json.dumps(found))
    assert (
        "| 1.50 (1.40 to 1.60) without loader-workers | 2.10" in score.table([score.row(tmp_path, "gpt2")])[2]
    )
    found["kept"] = "bf16"
    (tmp_path / "gpt2.predicted.json").write_text(json.dumps(found))
    assert "1.50" not in score.table([score.row(tmp_path, "gpt2")])[2]


def test_results_are_kept_by_program_without_what_a_machine_said(score, tmp_path):
    kept = tmp_path / "results.json"
    for name, after in (("b", 50.0), ("a", 25.0), ("b", 20.0)):
        out = tmp_path / f"{name}{after}"
        out.mkdir()
        later = [*runs(bare=100.0, kept=after), {"way": "expert: x", "code": 1, "said": "/home/me/x.py"}]
        write(out, name, kept=["tf32"], later=later)
        score.keep(score.rows_of(out), kept)
    assert [(row["name"], row["kept"]) for row in score.rows_of(kept)] == [("a", 4.0), ("b", 5.0)]
    assert "/home" not in kept.read_text()


def test_the_readme_has_the_table_of_the_results(score):
    rows = score.rows_of(PATH.parent / "results.json")
    text = (PATH.parent / "README.md").read_text()
    *table, _ = score.table(rows)
    assert "\n".join(table) in text
    assert all(line in text for line in score.demands(rows))
