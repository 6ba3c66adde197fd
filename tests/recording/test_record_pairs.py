"""The script that times the study's pairs: it writes as it goes, goes on where it stopped, and stands a pair that fails."""

import importlib
import json
import sys

import pytest

from tests.shared import DATA

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

STUDY = DATA.parents[1] / "reports" / "advice"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.syspath_prepend(str(STUDY))
    module = importlib.import_module("record_pairs")
    yield module
    for name in ("record_pairs", "steps"):
        sys.modules.pop(name, None)


def built(made, name, fails=False):
    def build():
        made.append(name)
        if fails:
            raise RuntimeError("no room")
        x = torch.ones(8)
        return lambda: x + 1

    return build


def test_a_run_that_was_cut_off_goes_on_and_a_failing_pair_fails_alone(script, tmp_path, monkeypatch, capsys):
    made = []
    every = [
        ("one", built(made, "one before"), built(made, "one after")),
        ("two", built(made, "two before"), built(made, "two after", fails=True)),
        ("three", built(made, "three before"), built(made, "three after")),
    ]
    monkeypatch.setattr(script, "pairs", lambda only: [p for p in every if not only or p[0] in only])

    script.main("after", str(tmp_path), "one")
    script.main("after", str(tmp_path))

    found = json.loads((tmp_path / "after.json").read_text())["pairs"]
    assert list(found) == ["one", "two", "three"]
    assert made == ["one before", "one after", "two before", "two after", "three before", "three after"]
    assert found["one"]["after"]["step_ms"] > 0
    assert found["two"]["after"] == {"error": "RuntimeError: no room"}
    assert "3 pairs" in capsys.readouterr().out.splitlines()[-1]


def test_a_lost_device_ends_the_run_after_what_it_has_is_written(script, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        script, "pairs", lambda only: [(n, built(made, n), built(made, n)) for n in ("one", "two")]
    )
    monkeypatch.setattr(script, "lost", lambda: True)

    with pytest.raises(SystemExit, match="lost after one"):
        script.main("after", str(tmp_path))

    assert list(json.loads((tmp_path / "after.json").read_text())["pairs"]) == ["one"]


def test_sides_of_two_cards_are_not_mixed(script, tmp_path):
    (tmp_path / "after.json").write_text(
        json.dumps({"card": "another", "torch": torch.__version__, "pairs": {}})
    )

    with pytest.raises(SystemExit, match="belong on one"):
        script.main("after", str(tmp_path))


def test_the_pairs_are_those_that_are_predicted(script):
    names = {name for name, _, _ in script.pairs(set())}

    assert names == set(json.loads((STUDY / "predictions.json").read_text()))
