"""Programs that start slowly, in a budget that holds few starts; the clock is a stand-in, and so are the processes."""

import math
import time

import numpy as np
import pytest

from profkit.trial import attempts, search
from profkit.trial.messages import Block, Facts, OptimizerFacts
from profkit.trial.plan import Plan
from profkit.trial.running import Failed, Program
from profkit.trial.search import Trial

FACTS = Facts(
    cuda=True,
    capability=(9, 0),
    modules=1,
    slow_attention=True,
    optimizers=[OptimizerFacts(name="Adam", fused=False, foreach=False, can_fuse=True, can_foreach=True)],
)
GAINS = {"tf32": 1.5, "bf16": 1.6, "fused-attention": 1.2, "fused-optimizer": 1.2, "compile": 1.5}


class World:
    """A clock, and programs that start in ``start_s`` and step in ``step_s``, less what their changes gain."""

    def __init__(self):
        self.now, self.start_s, self.compiles_s, self.step_s = 1e4, 10.0, 15.0, 0.1
        self.gains, self.noise = dict(GAINS), 0.003
        self.hangs, self.crashes, self.pairs = set(), set(), {}
        self.sides, self.most_up, self.seeds_start_s = [], 100, 0.0
        self.generator = np.random.default_rng(0)

    def sleep_until(self, then):
        self.now = max(self.now, then)

    def side(self, program, changes=(), seed_shift=0, environment=None):
        self.sides.append(Stand(self, program, list(changes), seed_shift))
        return self.sides[-1]

    def gain(self, changes):
        known = [gain for pair, gain in self.pairs.items() if pair <= set(changes)]
        return math.prod([*(self.gains.get(name, 1.0) for name in changes), *known])


class Stand:
    """A side in that world; those that are launched together start together."""

    ended, outside = None, ()

    def __init__(self, world, program, changes, seed_shift):
        self.seed_shift = seed_shift
        self.world, self.program, self.changes = world, program, changes
        self.first = self.peak_bytes = self.launched = None
        self.start_s, self.losses = 0.0, []
        self.begun = self.failure = self.stands = None
        self.stood_s = 0.0

    @property
    def is_up(self):
        return self.first is not None

    @property
    def step_s(self):
        return self.world.step_s / self.world.gain(self.changes)

    def launch(self):
        self.launched = self.world.now if self.launched is None else self.launched
        self.begun = self.launched if self.begun is None else self.begun

    def start(self):
        if self.failure:
            raise self.failure
        self.launch()
        if sum(side.launched is not None for side in self.world.sides) > self.world.most_up:
            raise Failed("out-of-memory", "planted")
        if self.world.crashes & set(self.changes):
            raise Failed("crashed", "planted")
        if self.first is None:
            took = self.world.seeds_start_s if self.seed_shift else 0.0
            took += self.world.start_s + self.world.compiles_s * ("compile" in self.changes)
            took = math.inf if self.world.hangs & set(self.changes) else took + self.stood_s
            hung = self.launched + self.program.patience_s
            until = min(hung, self.program.until)
            self.world.sleep_until(min(self.launched + took, until))
            if self.launched + took > until:
                self.failure = Failed("hung" if until == hung else "late", "planted")
                raise self.failure
            self.first = Block(steps=5, ns=1, facts=FACTS, applied=dict.fromkeys(self.changes, 1))
            self.start_s = took
        return self.first

    def turn(self, steps):
        self.losses += [1.0] * (steps + 1)
        self.world.now += (steps + 1) * self.step_s
        return self.step_s * 1e9 * math.exp(self.world.generator.normal(0, self.world.noise))

    def hurry(self, patience_s, until):
        self.program = self.program.within(patience_s, until)

    def pause(self, standing):
        if standing:
            self.stands = self.world.now
        else:
            self.stood_s += self.world.now - self.stands

    def stop(self):
        self.launched = None


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(search, "Side", made.side)
    monkeypatch.setattr(attempts, "Side", made.side)
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    return made


@pytest.fixture
def run(world, monkeypatch):
    def trial(at_once, **plan):
        monkeypatch.setattr(search, "at_once", lambda facts, peak_bytes: at_once)
        begun = world.now
        plan = Plan(**{"budget_s": 90.0} | plan)
        found = Trial(Program(("python", "train.py")), plan, tell=lambda line: None).run()
        return found, world.now - begun

    return trial


@pytest.mark.parametrize(("at_once", "share"), [(1, 0.5), (2, 0.5), (4, 0.8), (8, 0.99)])
def test_the_likely_best_are_found_within_the_budget(run, at_once, share):
    found, took_s = run(at_once)
    assert found.final.speedup.likely >= share * math.prod(GAINS.values())
    assert {"tf32", "bf16", "fused-attention"} <= set(found.final.changes)
    assert took_s < 95


def test_a_single_change_that_helps_is_found_among_many(run, world):
    world.gains = {"fused-optimizer": 2.0}
    found, took_s = run(8)
    assert found.final.changes == ["fused-optimizer"]
    assert found.final.speedup.likely == pytest.approx(2.0, rel=0.01)
    assert took_s < 95


def test_what_there_is_no_time_to_tell_apart_is_said(run, world):
    world.gains = {"fused-optimizer": 2.0}
    found, took_s = run(1)
    assert "fused-optimizer" in found.final.changes
    assert not {"bf16", "compile"} & set(found.final.changes)
    assert "kept together; a larger --budget tells what each of them adds" in found.notes[-1]
    assert took_s < 95


@pytest.mark.parametrize("at_once", [1, 8])
def test_what_helps_only_beside_a_compiler_is_found(run, world, at_once):
    """As bf16 in a step that the host paces: more launches, until they are fused."""
    world.gains = {"bf16": 0.95, "compile": 1.3}
    world.pairs = {frozenset({"bf16", "compile"}): 1.8}
    found, _ = run(at_once)
    assert {"bf16", "compile"} <= set(found.final.changes)


@pytest.mark.parametrize(
    ("compiles_s", "noise"), [(35.0, 0.1), (45.0, 0.1), (55.0, 0.1), (62.0, 0.003), (62.0, 0.03)]
)
def test_a_compiler_that_starts_slowly_has_its_turn(run, world, noise, compiles_s):
    """As T5 and Swin in 90 s, whose starts take 17 s, whose gain is the compiler's, and which the host paces unevenly."""
    world.start_s, world.compiles_s, world.step_s, world.noise = 17.0, compiles_s, 0.0625, noise
    world.gains = {"tf32": 1.1, "fused-optimizer": 1.2, "bf16": 0.95, "compile": 2.5}
    found, took_s = run(16)
    assert "compile" in found.final.changes
    assert found.final.speedup.likely > 2.2
    assert took_s < 95


def test_a_half_tuned_program_of_convolutions_gets_its_layout(run, world, monkeypatch):
    """As EfficientNet in fp16, whose compiler is not up within 90 s."""
    monkeypatch.setattr(FACTS, "autocast", True)
    monkeypatch.setattr(FACTS, "convolutions", 81)
    world.start_s, world.compiles_s, world.step_s, world.noise = 17.0, 100.0, 0.05, 0.01
    world.gains = {"channels-last": 1.2, "fused-optimizer": 1.02, "compile": 2.0}
    found, took_s = run(16)
    assert "channels-last" in found.final.changes
    assert found.final.speedup.likely > 1.17
    assert "compile" not in found.final.changes
    assert took_s < 95


def test_a_compiler_stands_still_while_others_are_timed(run, world):
    run(16)
    slow = next(side for side in world.sides if "compile" in side.changes)
    assert slow.stood_s > 3
    assert [side for side in world.sides if "compile" in side.changes and side.begun == slow.begun] == [slow]


def test_likely_changes_start_with_the_unchanged_program(run, world):
    run(8)
    unchanged = next(side for side in world.sides if not side.changes)
    assert [side for side in world.sides if side.begun == unchanged.begun and set(side.changes) > set(GAINS)]


def test_a_guess_that_would_change_more_than_is_wanted_is_made_anew(run, world, monkeypatch):
    monkeypatch.setattr(FACTS, "autocast", True)
    found, _ = run(8)
    assert "bf16" not in found.final.changes
    assert "compile" in found.final.changes
    assert [row.why for row in found.trials if row.change == "bf16"] == ["already so"]


def test_an_unchanged_program_that_lacks_memory_beside_others_runs_alone(run, world):
    world.most_up = 2
    found, _ = run(8)
    assert found.final.speedup.likely > 1


def test_a_slow_start_is_not_hung(run):
    found, _ = run(1)
    assert not [row for row in found.trials if row.why.startswith("hung")]


def test_another_seed_that_starts_slowly_does_not_cost_more_than_the_budget(run, world):
    world.seeds_start_s = 1000.0
    found, took_s = run(1, budget_s=40.0)
    assert any(note.startswith("another seed: ") for note in found.notes)
    assert took_s < 45


def test_where_every_bundle_crashes_one_without_the_culprit_is_next(run, world):
    world.crashes = {"fused-attention"}
    found, took_s = run(8)
    assert {"tf32", "bf16", "fused-optimizer"} <= set(found.final.changes)
    assert "fused-attention" not in found.final.changes
    assert took_s < 95


def test_a_start_that_hangs_leaves_time_for_others(run, world):
    world.hangs = {"bf16"}
    found, took_s = run(4)
    assert "hung: planted" in [row.why for row in found.trials]
    assert "tf32" in found.final.changes
    assert took_s < 95


def test_what_a_recording_promises_is_first(run):
    from profkit.model.rows import Interval

    found, _ = run(1, predicted={"compile": Interval(low=3, likely=3, high=3)})
    assert found.final.changes[0] == "compile"


def test_a_budget_without_a_turn_keeps_its_rows(run):
    found, took_s = run(1, budget_s=15.0)
    assert found.baseline_ms.likely == pytest.approx(100)
    assert found.sentence == "Nothing was measured."
    assert "the budget ended before its turn" in [row.why for row in found.trials]
    assert found.notes[-1] == "a start takes 10 s here: --budget 400s leaves time for all of these"
    found, _ = run(1, budget_s=400.0)
    assert not [row for row in found.trials if "budget" in row.why]
    assert took_s < 40


@pytest.mark.parametrize("budget_s", [15.0, 45.0, 90.0])
def test_what_was_tried_by_itself_is_not_tried_again(run, world, budget_s):
    world.gains = {}
    found, _ = run(1, budget_s=budget_s)
    tried = [(row.beside, row.change, row.together) for row in found.trials]
    assert len(tried) == len(set(tried))


def test_a_long_budget_measures_each_alone(run):
    found, _ = run(1, budget_s=600.0)
    assert {row.change for row in found.trials if row.kept and not row.beside} == set(GAINS)
    assert set(found.final.changes) == set(GAINS)


def test_a_noisy_change_leaves_time_to_measure_it_again(run, world):
    world.noise, world.gains = 0.2, {"tf32": 2.0}
    found, took_s = run(1, only=("tf32",), steps=60)
    assert found.final.changes == ["tf32"]
    assert "tf32: did not hold" not in " ".join(found.notes)
    assert not [note for note in found.notes if "measured" in note]
    assert took_s < 95
