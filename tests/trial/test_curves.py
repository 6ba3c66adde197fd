"""Whether losses stayed."""

import numpy as np
import pytest

from profkit.trial.changes import Promise
from profkit.trial.curves import Curves


def curve(seed=0, level=0.0, noise=0.05, count=40):
    steps = np.arange(count)
    own = np.random.default_rng(seed).normal(0, noise, count)
    return (2 * np.exp(-steps / 20) + 0.5 + own + level).tolist()


@pytest.fixture
def curves():
    return Curves(curve(), [curve(1, 0.04), curve(2, -0.03)])


def test_equal_numbers_stay(curves):
    assert curves.judge(curve(), Promise.EQUAL).same


def test_a_program_in_fewer_bits_rounds_more(curves):
    alike = Curves(curve(), [curve()])
    rounded = [loss * (1 + 5e-3) for loss in curve()]
    assert alike.judge(rounded, Promise.EQUAL).same is False
    assert alike.judge(rounded, Promise.EQUAL, in_fewer_bits=True).same
    assert alike.judge([loss * 1.02 for loss in curve()], Promise.EQUAL, in_fewer_bits=True).same is False


def test_rounding_stays_and_more_does_not(curves):
    assert curves.judge([loss * (1 + 1e-4) for loss in curve()], Promise.EQUAL).same
    led_off = curves.judge([loss * 1.05 for loss in curve()], Promise.EQUAL)
    assert led_off.same is False
    assert "5.00% from the baseline" in led_off.why


def test_fewer_bits_may_do_what_another_seed_does(curves):
    off = [loss + 0.02 for loss in curve()]
    assert curves.judge(off, Promise.PRECISION).same
    assert not curves.judge(off, Promise.EQUAL).same


@pytest.mark.parametrize("promise", Promise)
def test_a_loss_that_does_not_fall_is_refused(curves, promise):
    assert curves.judge([2.5] * 40, promise).same is False


@pytest.mark.parametrize("promise", Promise)
def test_a_loss_that_falls_too_well_is_refused(curves, promise):
    assert curves.judge([0.0] * 40, promise).same is False


def test_nan_is_told_with_its_place(curves):
    losses = curve()
    losses[7] = None
    found = curves.judge(losses, Promise.PRECISION)
    assert found.same is False
    assert "loss 8 is NaN" in found.why


def test_where_the_baseline_has_nan_nothing_can_be_said():
    losses = curve()
    losses[3] = None
    found = Curves(losses, []).judge(curve(), Promise.EQUAL)
    assert found.same is None
    assert "own loss 4" in found.why


def test_a_program_without_backward_has_nothing_to_compare(curves):
    assert curves.judge([], Promise.EQUAL).same is None


def test_steps_that_no_other_seed_has_made_are_no_evidence():
    """Rounding leads apart further and further, as seeds do; their distance is known for as long as they ran."""
    own = curve(noise=0.0, count=200)
    rounded = [loss * (1 + 1e-6 * 1.06**at) for at, loss in enumerate(own)]
    seeds = curve(noise=0.0, level=0.004, count=50)
    assert Curves(own, [seeds]).judge(rounded, Promise.EQUAL).same
    assert Curves(own, [seeds]).judge([*rounded[:30], *[9.0] * 170], Promise.EQUAL).same is False
    assert Curves(own, [seeds[:5]]).judge(rounded, Promise.EQUAL).same is False
