"""What is tried, in which order, and what is known at any end; processes are stand-ins."""

import time

import pytest

from profkit.errors import RecordingError
from profkit.model.rows import Interval
from profkit.trial import attempts, search
from profkit.trial.document import Kept, LossRow, TrialRow
from profkit.trial.messages import Block, Facts, OptimizerFacts
from profkit.trial.plan import Plan
from profkit.trial.running import Failed, Program
from profkit.trial.search import Trial
from profkit.trial.sentences import NO_TURN, closing_sentence

FACTS = Facts(
    cuda=True,
    capability=(9, 0),
    modules=1,
    optimizers=[OptimizerFacts(name="Adam", fused=False, foreach=False, can_fuse=True, can_foreach=True)],
)
GAINS = {"tf32": 1.3, "bf16": 1.6, "fused-optimizer": 1.2, "foreach-optimizer": 1.1, "compile": 2.0}


class Stand:
    """A program whose step takes what its changes make of it."""

    ended, outside = None, ()

    def __init__(self, machine, names, seed_shift=0):
        self.machine, self.changes = machine, list(names)
        self.seed_shift = seed_shift
        self.first = self.peak_bytes = None
        self.losses = []
        self.is_up = False
        self.start_s = machine.start_s

    def hurry(self, patience_s, until):
        pass

    def launch(self):
        self.machine.launched.append(tuple(self.changes))

    def start(self):
        if self.first is None:
            failure = self.machine.failures.get((*self.changes, *(["seed"] if self.seed_shift else [])))
            if failure is not None:
                raise failure
            self.first = Block(steps=5, ns=1, facts=FACTS, applied=dict.fromkeys(self.changes, 1))
            self.machine.started.append(tuple(self.changes))
        self.is_up = True
        return self.first

    @property
    def step_s(self):
        return 0.02

    def turn(self, steps):
        self.losses.append(1.0)
        time.sleep(self.machine.turn_s)
        ns = 1e7 * (self.machine.seeds_differ if self.seed_shift else 1.0)
        for name in self.changes:
            ns /= self.machine.gains.get(name, 1.0)
        return ns

    def pause(self, standing):
        pass

    def stop(self):
        self.is_up = False


class Machine:
    """All stand-ins of a trial."""

    def __init__(self):
        self.gains = dict(GAINS)
        self.failures = {}
        self.turn_s = self.start_s = 0.0
        self.seeds_differ = 1.0
        self.launched, self.started = [], []

    def side(self, program, changes=(), seed_shift=0, environment=None):
        return Stand(self, changes, seed_shift)


@pytest.fixture
def machine(monkeypatch):
    made = Machine()
    monkeypatch.setattr(search, "Side", made.side)
    monkeypatch.setattr(attempts, "Side", made.side)
    return made


def run(*only, **plan):
    program = Program(("python", "train.py"))
    return Trial(program, Plan(only=only, **plan), tell=lambda line: None).run()


def test_the_best_is_first_compilers_are_last_and_the_whole_is_measured(machine):
    found = run("fused-optimizer", "compile", "bf16", "tf32")
    assert found.final.changes == ["bf16", "tf32", "fused-optimizer", "compile"]
    assert found.final.speedup.likely == pytest.approx(1.6 * 1.3 * 1.2 * 2.0)
    assert found.final.after_ms == pytest.approx(found.final.before_ms / found.final.speedup.likely)


def test_one_of_a_kind_is_kept_and_the_other_is_told(machine):
    found = run("fused-optimizer", "foreach-optimizer")
    assert found.final.changes == ["fused-optimizer"]
    assert found.trials[-1].why == "fused-optimizer stands in its place"


def test_a_change_that_adds_nothing_is_not_kept(machine):
    machine.gains["tf32"] = 1.0
    found = run("tf32", "bf16")
    assert found.final.changes == ["bf16"]


def test_where_nothing_helps_it_is_said(machine):
    machine.gains.clear()
    found = run("tf32", "bf16")
    assert found.final.speedup is None
    assert found.sentence == "Nothing helps: the step takes 10.0 ms as it is."


def test_nothing_helps_is_said_only_where_all_is_known():
    rows = [
        TrialRow(change="bf16", measured=Interval(low=0.5, likely=2.0, high=8.0), undecided=True),
        TrialRow(change="tf32", measured=Interval(low=0.99, likely=1.0, high=1.01)),
        TrialRow(change="compile", why=NO_TURN),
    ]
    final = Kept(speedup=None, before_ms=10.0, after_ms=10.0, changes=[], patch=[], environment=[])
    loss = LossRow(unchanged=None, why="")
    assert closing_sentence(final, loss, rows[1:2]) == "Nothing helps: the step takes 10.0 ms as it is."
    assert closing_sentence(final, loss, rows) == (
        "Nothing is shown to help: the step takes 10.0 ms as it is. Their turns scatter too much to tell: bf16. "
        "The budget ended before the turn of 1 change."
    )


@pytest.mark.parametrize(("keep_going", "kept"), [(False, []), (True, ["bf16"])])
def test_unchanged_programs_that_differ_much_end_a_trial_unless_it_is_to_go_on(machine, keep_going, kept):
    machine.seeds_differ = 1.3
    found = run("bf16", keep_going=keep_going)
    assert found.notes[0].startswith("two unchanged programs differ by 30%: time more steps (--steps)")
    assert found.final.changes == kept


def test_a_change_that_gains_less_than_unchanged_programs_differ_is_not_kept(machine):
    machine.seeds_differ, machine.gains["bf16"] = 1.1, 1.08
    found = run("bf16")
    assert found.final.changes == []
    assert "not beyond the noise of 10.0%" in found.trials[-1].why


@pytest.mark.parametrize("at_once", [1, 8])
def test_what_is_known_is_told_where_the_trial_is_ended(machine, monkeypatch, at_once):
    monkeypatch.setattr(search, "at_once", lambda facts, peak_bytes: at_once)
    machine.failures["bf16", "tf32"] = KeyboardInterrupt()
    found = run("tf32", "bf16")
    assert found.final.changes == ["bf16"]
    assert found.final.speedup.likely == pytest.approx(1.6)
    assert "interrupted" in found.notes[-1]


def test_an_end_in_the_middle_of_a_combination_tells_what_is_kept_of_it(machine):
    machine.failures["bf16", "tf32", "fused-optimizer"] = KeyboardInterrupt()
    found = run("tf32", "bf16", "fused-optimizer")
    assert found.final.changes == ["bf16", "tf32"]
    assert found.final.speedup.likely == pytest.approx(1.6 * 1.3)
    assert found.loss.unchanged
    assert "product" in found.notes[-1]


def test_a_combination_that_does_not_start_again_leaves_what_helps_alone(machine, monkeypatch):
    original = Stand.start

    def start(side):
        if machine.started.count(("bf16",)) and side.first is None and side.changes == ["bf16"]:
            raise Failed("hung", "planted")
        return original(side)

    monkeypatch.setattr(Stand, "start", start)
    machine.gains["set-to-none"] = 1.0
    monkeypatch.setattr(FACTS, "zeroed", True)
    found = run("bf16", "set-to-none")
    assert found.final.changes == ["bf16"]
    assert found.notes == ["what helps alone was not measured together: planted"]


def test_a_single_change_is_started_once(machine):
    found = run("bf16")
    assert found.final.changes == ["bf16"]
    assert machine.started.count(("bf16",)) == 1
    assert not [note for note in found.notes if "budget is short" in note]


def test_another_seed_that_fails_is_a_note(machine):
    machine.failures["seed",] = Failed("out-of-memory", "no memory for two")
    found = run("bf16")
    assert found.final.changes == ["bf16"]
    assert "another seed: no memory for two" in found.notes


def test_an_unchanged_program_that_fails_is_an_error(machine):
    machine.failures[()] = Failed("crashed", "its own fault")
    with pytest.raises(RecordingError, match="its own fault"):
        run("bf16")


def test_on_a_machine_of_many_cores_all_start_before_the_first_turn(machine, monkeypatch):
    monkeypatch.setattr(search, "at_once", lambda facts, peak_bytes: 8)
    run("tf32", "bf16", "compile")
    assert machine.started[:5] == [(), (), (), ("tf32",), ("bf16",)]
    assert ("bf16", "tf32", "compile") in machine.launched


def test_the_budget_is_kept_and_what_it_did_not_hold_is_told(machine):
    machine.turn_s = 0.2
    begun = time.monotonic()
    found = run("tf32", "bf16", budget_s=0.5)
    assert time.monotonic() - begun < 2.0
    assert all("budget" in row.why for row in found.trials)
    assert found.final.changes == []
