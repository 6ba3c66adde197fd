import numpy as np
import pytest

from profkit.comparison import find_changes


def test_the_run_where_a_number_changed_is_named():
    random = np.random.default_rng(1)
    values = np.concatenate((np.full(30, 40.0), np.full(20, 42.0))) * (1 + 0.01 * random.standard_normal(50))
    (change,) = find_changes(values)
    assert abs(change.at - 30) <= 1
    assert change.before == pytest.approx(40, rel=0.01)
    assert change.after == pytest.approx(42, rel=0.01)


def test_the_last_run_can_be_the_change():
    assert [c.at for c in find_changes([10.0] * 8 + [12.0])] == [8]


def test_several_changes_are_found_in_order():
    assert [c.at for c in find_changes([10.0] * 6 + [12.0] * 6 + [9.0] * 6)] == [6, 12]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 20, 200])
def test_a_steady_series_has_no_change_in_19_of_20(count):
    random = np.random.default_rng(count)
    found = [find_changes(100 * (1 + 0.02 * random.standard_normal(count))) for _ in range(100)]
    assert sum(map(bool, found)) <= 5


def test_one_outlier_is_no_change():
    assert find_changes([40.0, 41, 40, 39, 60, 40, 41, 39, 40]) == []


@pytest.mark.parametrize("values", [[0.0] * 10, [5.0] * 10, [0.0, 0.0, 0.0, 1.0]])
def test_series_without_spread_do_no_harm(values):
    assert len(find_changes(values)) <= 1
