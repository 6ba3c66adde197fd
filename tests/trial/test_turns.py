"""When there have been enough turns."""

import math
import time
from dataclasses import dataclass

import numpy as np
import pytest

from profkit.trial.messages import Block
from profkit.trial.running import Failed, Program
from profkit.trial.turns import MOST_TURNS, Side, compare


@dataclass
class Clock:
    """A side whose turns take what a generator says."""

    generator: np.random.Generator
    level_ns: float
    noise: float = 0.05
    step_s = 0.01

    def turn(self, steps):
        return self.level_ns * math.exp(self.generator.normal(0, self.noise))


def turns(seed, ratio, noise=0.05):
    generator = np.random.default_rng(seed)
    sides = Clock(generator, 1e7 * ratio, noise), Clock(generator, 1e7, noise)
    return compare(*sides, steps=20, noise=0.01, deadline=time.monotonic() + 60)


def test_a_large_gain_is_clear_soon():
    assert len(turns(0, 2.0).before_ns) < 12


def test_a_change_that_does_nothing_is_given_up_early():
    counts = [len(turns(seed, 1.0).before_ns) for seed in range(50)]
    assert np.median(counts) <= MOST_TURNS / 3


def test_a_gain_that_all_turns_would_show_is_not_given_up():
    seen = [turns(seed, 1.05).ratio.low > 1.01 for seed in range(100)]
    assert np.mean(seen) > 0.75


@pytest.mark.parametrize("ratio", [1.0, 1.005])
def test_what_helps_no_more_than_the_noise_is_seldom_kept(ratio):
    kept = [turns(seed, ratio).ratio.low > 1.01 for seed in range(200)]
    assert np.mean(kept) < 0.05


class Short:
    """A program that ends, one way or another, after so many steps."""

    def __init__(self, started, kind, holds):
        started.append(self)
        self.kind, self.left = kind, holds
        self.blocks, self.losses, self.start_s = [], [], 0.0

    @property
    def last(self):
        return self.blocks[-1]

    def warm_up(self, patience_s, until):
        return self.turn(4)

    def turn(self, steps, expected_s=0.0):
        self.left -= steps + 1
        if self.left < 0:
            raise Failed(self.kind, "planted")
        self.blocks.append(Block(steps=steps, ns=steps * 10))
        return self.last

    def close(self):
        pass


@pytest.fixture
def short(monkeypatch):
    started = []

    def side(kind, holds):
        monkeypatch.setattr(Program, "running", lambda *args: Short(started, kind, holds))
        return Side(Program(("python", "train.py")))

    return side, started


@pytest.mark.parametrize("kind", ["ended", "crashed"])
def test_a_program_that_ends_by_itself_is_started_anew_for_shorter_turns(short, kind):
    side, started = short[0](kind, 12), short[1]
    side.start()
    assert [side.turn(12) for _ in range(3)] == [10, 10, 10]
    assert [block.steps for each in started for block in each.blocks] == [4, 4, 3, 4, 3, 4, 3]
    assert side.ended.kind == kind


def test_one_that_has_no_step_to_spare_fails_by_name(short):
    side = short[0]("crashed", 5)
    side.start()
    with pytest.raises(Failed) as failure:
        side.turn(2)
    assert failure.value.owner is side


def test_a_side_that_hangs_is_not_started_again(short):
    side, started = short[0]("hung", 5), short[1]
    side.start()
    with pytest.raises(Failed):
        side.turn(2)
    assert len(started) == 1
