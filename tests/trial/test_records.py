"""What a trial is given: a recording's promises, and the state of an earlier run. Processes are stand-ins."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from profkit.api.trying import Tried, try_program
from profkit.cli import main
from profkit.errors import ReadError
from profkit.model.rows import Interval
from profkit.simulation.answer import WhatIfChange
from profkit.trial import attempts, search
from profkit.trial.by_hand import by_hand
from profkit.trial.document import encode
from profkit.trial.plan import Plan
from profkit.trial.running import Program
from profkit.trial.sentences import trial_text
from tests.shared import DATA
from tests.trial.test_search import Machine

PROGRAM = Program(("python", "train.py"))


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(search, "Side", made.side)
    monkeypatch.setattr(attempts, "Side", made.side)
    return made


def priced(name, speedup):
    interval = Interval(low=speedup - 0.1, likely=speedup, high=speedup + 0.1)
    return WhatIfChange(name=name, after_ns=1, saving_ns=1, speedup=interval, limit="")


def test_what_takes_an_edit_has_its_price_and_the_code():
    rows = by_hand(
        [priced("no-sync", 1.2), priced("tf32", 3.0), priced("cuda-graphs", 1.5), priced("aligned", 0.9)]
    )
    assert [row.change for row in rows] == ["cuda-graphs", "no-sync"]
    assert rows[0].code[0] == "graph = torch.cuda.CUDAGraph()"


def test_several_changes_together_are_none_of_its_own():
    assert by_hand([priced("no-sync + tf32", 2.0)]) == ()


def test_a_recording_orders_the_trial_and_its_promises_are_told(machine):
    recording = DATA / "kineto" / "dataloader_stall.json.gz"
    found = try_program(PROGRAM, Plan(only=("tf32", "compile")), recording=str(recording))
    compiled = next(row for row in found.trials if row.change == "compile")
    assert compiled.predicted is not None
    assert [row.change for row in found.by_hand] == ["cuda-graphs"]
    assert "graph.replay()" in trial_text(found)
    assert b'"by_hand"' in encode(found).encode()


def test_an_interrupted_trial_goes_on_from_its_state(machine, tmp_path):
    state = str(tmp_path / "state.json")
    plan = Plan(only=("fused-optimizer", "tf32", "bf16"))
    machine.failures["bf16",] = KeyboardInterrupt()
    first = try_program(PROGRAM, plan, state=state)
    assert "interrupted" in first.notes[-1]
    known = [row["change"] for row in msgspec.json.decode((tmp_path / "state.json").read_bytes())["rows"]]
    assert known == ["fused-optimizer", "tf32"]
    machine.failures.clear()
    machine.started.clear()
    second = try_program(PROGRAM, plan, state=state)
    assert set(second.final.changes) == {"bf16", "tf32", "fused-optimizer"}
    assert ("tf32",) not in machine.started


def test_a_short_budget_goes_on_from_what_was_kept(machine, tmp_path, monkeypatch):
    state = str(tmp_path / "state.json")
    try_program(PROGRAM, Plan(only=("tf32",)), state=state)
    monkeypatch.setattr(search.Trial, "_changes_take_s", lambda trial: 1e9)
    found = try_program(PROGRAM, Plan(only=("tf32", "bf16")), state=state)
    assert set(found.final.changes) == {"tf32", "bf16"}


def test_the_state_of_another_program_is_refused(machine, tmp_path):
    state = str(tmp_path / "state.json")
    try_program(PROGRAM, Plan(only=("tf32",)), state=state)
    with pytest.raises(ReadError, match="another program"):
        try_program(Program(("python", "other.py")), Plan(only=("tf32",)), state=state)


def test_what_was_predicted_and_measured_is_kept_in_a_history(machine, tmp_path):
    recording = DATA / "kineto" / "dataloader_stall.json.gz"
    found = try_program(PROGRAM, Plan(only=("tf32", "compile")), recording=str(recording))
    database = str(tmp_path / "profkit.db")
    Tried(found).keep(database)
    Tried(found).keep(database)
    told = CliRunner().invoke(main, ["history", "--db", database, "--trials", "--format", "json"])
    rows = json.loads(told.output)
    assert len(rows) == 2 * len([row for row in found.trials if row.measured])
    compiled = next(row for row in rows if row["changes"] == "compile")
    row = next(row for row in found.trials if row.change == "compile")
    assert (compiled["predicted"], compiled["measured"]) == (row.predicted.likely, row.measured.likely)
    text = CliRunner().invoke(main, ["history", "--db", database, "--trials"]).output
    assert f"{row.measured.likely:.2f}x" in text
    assert "compile (beside tf32)" in text
    assert text.count("\n") == len(rows) + 1
