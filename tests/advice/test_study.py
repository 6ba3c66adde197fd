"""The study's predictions stay those of the traces that lie beside them."""

import hashlib
import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from profkit.advice import RULES
from profkit.readers import read
from tests.advice.made_steps import advice_on

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "reports" / "advice"
PREDICTIONS = json.loads((STUDY / "predictions.json").read_text())
FIRST = "54b65947fedff97d196f040e9aa0a459873302ed32dc27a4bfbd2d54cc440747"
FILES = sorted(path.name for path in STUDY.glob("predictions*.json"))


@pytest.mark.parametrize("file", FILES)
def test_predictions_name_the_traces_that_they_were_made_from(file):
    found = json.loads((STUDY / file).read_text())
    found.pop("model_sha256", None)

    assert found.keys() == PREDICTIONS.keys()
    for name, each in found.items():
        content = (STUDY / "data" / f"{name}.json.gz").read_bytes()
        assert each["trace_sha256"] == hashlib.sha256(content).hexdigest(), name
        assert each["speedup"]["low"] <= each["speedup"]["likely"] <= each["speedup"]["high"], name


def test_the_first_predictions_are_frozen():
    assert hashlib.sha256((STUDY / "predictions.json").read_bytes()).hexdigest() == FIRST


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The study's scripts over a folder of its own, with the newest predictions."""
    shutil.copytree(
        STUDY, tmp_path / "advice", ignore=shutil.ignore_patterns("*.gz", "second", "__pycache__")
    )
    monkeypatch.syspath_prepend(str(STUDY))
    modules = [importlib.import_module(name) for name in ("predict", "score")]
    for module in modules:
        monkeypatch.setattr(module, "HERE", tmp_path / "advice")
    yield tmp_path / "advice", *modules
    for name in ("predict", "score"):
        sys.modules.pop(name, None)


def test_what_is_known_is_not_predicted_any_more(study):
    folder, predict, _ = study
    (folder / "data" / "after.json").write_text("{}")

    with pytest.raises(SystemExit, match="cannot be predicted"):
        predict.main()

    assert sorted(path.name for path in folder.glob("predictions*.json")) == FILES


def test_another_model_adds_a_file_and_the_same_model_none(study, monkeypatch):
    folder, predict, _ = study
    (folder / "data" / "after.json").unlink()
    monkeypatch.setattr(predict, "PAIRS", {"compile_chain": (["compile"], None)})
    monkeypatch.setattr(predict, "predict", lambda name: {"speedup": {}})
    monkeypatch.setattr(predict, "model_sha256", lambda: "another")

    predict.main()

    added = [path.name for path in predict.prediction_files() if path.name not in FILES]
    assert added == [f"predictions_{len(FILES) + 1}.json"]
    assert json.loads((folder / added[0]).read_text()) == {
        "model_sha256": "another",
        "compile_chain": {"speedup": {}},
    }
    with pytest.raises(SystemExit, match="this very model"):
        predict.main()


def test_scores_tell_hits_misses_and_promises_that_bring_nothing(study, monkeypatch, capsys):
    folder, _, score = study
    figures = {"low": 1.8, "likely": 2.0, "high": 2.2}
    predictions = {
        name: {"trace_sha256": "as it was", "speedup": figures, "amdahl_speedup": 3.0} for name in "abcd"
    }
    predictions["d"]["trace_sha256"] = "before it changed"
    (folder / "predictions_9.json").write_text(json.dumps(predictions))
    sides = {"a": (10.0, 5.0), "b": (10.0, 8.0), "c": (10.0, 10.1), "d": (10.0, 5.0)}
    pairs = {n: {"before": {"step_ms": b}, "after": {"step_ms": a}} for n, (b, a) in sides.items()}
    pairs["e"] = {"before": {"step_ms": 1.0}, "after": {"error": "out of memory"}}
    (folder / "data" / "after.json").write_text(json.dumps({"pairs": pairs}))
    monkeypatch.setattr(score, "digest", lambda name: "as it was")

    score.main()

    found = json.loads((folder / "scores.json").read_text())
    assert found["blind"] is True
    mine = found["predictions_9.json"]
    assert [row["pair"] for row in mine["rows"]] == ["a", "b", "c"]
    assert mine["traces_that_changed"] == ["d"]
    assert mine["changed"]["pairs"] == 2
    # 5.0 ms were predicted for both: right for a, too little by three eighths for b.
    assert [row["error"] for row in mine["rows"]] == [0.0, -0.375, -0.505]
    assert mine["changed"]["within_25_percent"]["error"] == 0.5
    assert mine["changed"]["inside_low_high"] == 0.5
    assert mine["promises_over_10_percent_that_bring_nothing"] == ["c"]
    assert "| a | 10.00 | 5.00 | 2.00 | 2.00 |" in capsys.readouterr().out


def test_a_well_tuned_step_is_promised_nothing():
    found = advice_on(read(STUDY / "data" / "tuned_gpt.json.gz"))

    assert [row for row in found.values() if row.speedup and row.speedup.likely > 1.03] == []


def test_every_rule_is_described():
    text = (ROOT / "docs" / "advice.md").read_text()

    assert [rule.id for rule in RULES if f"`{rule.id}`" not in text] == []


def test_the_second_study_scores_what_was_timed_and_names_what_failed(study):
    folder, _, score = study
    out = folder / "second"
    out.mkdir(exist_ok=True)
    (out / "a.json.gz").write_bytes(b"a trace")
    made = {
        "trace_sha256": hashlib.sha256(b"a trace").hexdigest(),
        "speedup": {"low": 1.5, "likely": 1.6, "high": 2.1},
        "amdahl_speedup": 3.0,
    }
    pairs = {
        "a": {"predicted": made, "before": {"step_ms": 10.0}, "after": {"step_ms": 5.0}},
        "b": {"predicted": made, "before": {"step_ms": 10.0}, "error": "TimeoutError: the pair took more"},
    }
    head = dict.fromkeys(("card", "torch", "model_sha256", "pairs_sha256"), "known")
    (out / "blind.json").write_text(json.dumps({**head, "pairs": pairs}))

    found = score.blind(out)

    assert [(r["pair"], r["error"], r["inside"]) for r in found["rows"]] == [("a", 0.25, True)]
    assert found["failed"] == {"b": "TimeoutError: the pair took more"}
    (out / "a.json.gz").write_bytes(b"another")
    assert score.blind(out)["traces_that_changed"] == ["a"]
    assert score.blind(folder / "nothing") is None


@pytest.mark.parametrize("folder", ["second", "third"])
def test_traces_of_later_studies_are_those_that_were_predicted_from(folder):
    pairs = json.loads((STUDY / folder / "blind.json").read_text())["pairs"]
    kept = sorted((STUDY / folder).glob("*.json.gz"))

    assert len(kept) >= 4
    for path in kept:
        predicted = pairs[path.name.removesuffix(".json.gz")]["predicted"]
        assert predicted["trace_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest(), path.name


def test_the_figures_of_the_third_study_follow_from_what_was_said_and_timed(study):
    _, _, score = study
    scores = score.blind(STUDY / "third")
    changed = scores["changed"]
    told = (STUDY / "README.md").read_text()
    within, inside = (changed[key] for key in ("within_25_percent", "inside_low_high"))

    assert (
        f"| **study 3, blind** | {within['error']:.0%} of {changed['pairs']} | {inside:.0%} "
        f"| {changed['median_high_over_low']:.2f} |" in told
    )
    assert len(scores["rows"]) == len(json.loads((STUDY / "third" / "blind.json").read_text())["pairs"]) == 44
    assert scores["promises_over_10_percent_that_bring_nothing"] == []
