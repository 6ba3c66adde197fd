"""When there have been enough turns."""

import math
import time
from dataclasses import dataclass

import numpy as np
import pytest

from profkit.trial.turns import MOST_TURNS, compare


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
