"""Periods of launch sequences: steps and not layers, wherever the recording begins."""

import numpy as np
import pytest

from profkit.timeline.periods import find_repetitions, united_runs

LAYER = [1, 2, 3, 4, 5]


def step(layers=12, batch=0):
    return [100, 101, *LAYER * layers, 102, *[x + 10 for x in LAYER] * layers, 103, 200, 201 + batch]


def found(*parts):
    token = np.array([x for part in parts for x in part], np.int64)
    return find_repetitions(token, token == 201)


@pytest.mark.parametrize("cut", [0, 1, 7, 40, 100])
@pytest.mark.parametrize("count", [3, 4, 12])
def test_steps_are_found_wherever_the_recording_begins(cut, count):
    one = step()
    repeated = found(one[cut:], *[one] * (count - 1), one[:cut])

    assert abs(len(repeated.start) - count) <= 1
    assert set((repeated.end - repeated.start)[1:].tolist()) == {len(one)}
    assert repeated.resumes.tolist() == [True] + [False] * (len(repeated.start) - 1)


def test_a_step_begins_after_the_optimizer():
    repeated = found(*[step()] * 5)
    assert repeated.start.tolist() == [len(step()) * k for k in range(5)]
    assert repeated.explained == pytest.approx(1)


def test_a_start_up_of_other_kernels_is_outside():
    start_up = list(range(1_000, 1_300))
    repeated = found(start_up, *[step()] * 6)
    assert repeated.start.tolist() == [300 + len(step()) * k for k in range(6)]


def test_logging_in_some_steps_breaks_nothing():
    logging = [*step(), 300, 301, 302]
    repeated = found(step(), step(), logging, step(), step(), logging, step())
    assert len(repeated.start) == 7


def test_a_hole_is_no_part_of_a_step():
    evaluation = list(range(2_000, 2_000 + len(step())))
    repeated = found(*[step()] * 4, evaluation, *[step()] * 4)
    assert len(repeated.start) == 8
    assert repeated.resumes.sum() == 2
    assert (repeated.end - repeated.start).max() == len(step())


def test_what_does_not_recur_has_no_period():
    assert found(list(range(500))) is None
    assert find_repetitions(np.empty(0, np.int64), np.empty(0, bool)) is None


def test_one_kernel_again_and_again_is_no_step():
    assert found([1, 1, 1], [2], [1, 1, 1], [3]) is None


def test_runs_of_one_kernel_are_one_token():
    token, place = united_runs(np.array([5, 5, 5, 5, 5, 6, 6, 7]))
    assert token.tolist() == [-7, 6, 6, 7]
    assert place.tolist() == [0, 5, 6, 7]
