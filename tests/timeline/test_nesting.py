"""The innermost range, also where ranges overlap without nesting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profkit.model import Ranges
from profkit.timeline.nesting import Nesting

rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 12)), max_size=20)


@given(rows, st.integers(0, 2), st.integers(0, 35))
def test_innermost_is_the_open_range_that_started_last(each, thread, time):
    start = np.array([s for _, s, _ in each], np.int64)
    end = start + np.array([d for _, _, d in each], np.int64)
    threads = np.array([t for t, _, _ in each], np.int64)
    ranges = Ranges.of(len(each), start_ns=start, end_ns=end, thread=threads)
    found = int(
        Nesting.of(ranges, np.ones(len(each), bool)).innermost(np.array([thread]), np.array([time]))[0]
    )

    is_open = (threads == thread) & (start <= time) & (time < end)
    assert (found >= 0) == bool(is_open.any())
    if found >= 0:
        assert is_open[found]
        assert start[found] == start[is_open].max()


def test_a_parent_is_the_tightest_range_around_on_the_same_thread():
    ranges = Ranges.of(4, start_ns=[0, 1, 2, 1], end_ns=[10, 9, 3, 9], thread=[0, 0, 0, 1])

    assert Nesting.of(ranges, np.ones(4, bool)).parent.tolist() == [-1, 0, 1, -1]
    assert Nesting.of(ranges, np.array([0, 2])).parent.tolist() == [-1, -1, 0, -1]


def brute_parent(each, at):
    """The row that encloses a row on its thread: the last before it, by start and longest first, that ends no earlier."""
    order = sorted(range(len(each)), key=lambda i: (each[i][1], -each[i][1] - each[i][2], i))
    place = order.index(at)
    thread, start, length = each[at]
    around = [i for i in order[:place] if each[i][0] == thread and each[i][1] + each[i][2] >= start + length]
    return around[-1] if around else -1


@given(rows)
def test_parents_and_depths_are_those_of_a_loop_over_all_rows(each):
    ranges = Ranges.of(
        len(each),
        start_ns=[s for _, s, _ in each],
        end_ns=[s + d for _, s, d in each],
        thread=[t for t, _, _ in each],
    )
    every = np.ones(len(each), bool)
    nesting = Nesting.of(ranges, every)
    parents = [brute_parent(each, at) for at in range(len(each))]

    assert nesting.parent.tolist() == parents
    assert sorted(nesting.threads) == sorted({t for t, _, _ in each})

    def depth(row):
        return 0 if parents[row] < 0 else 1 + depth(parents[row])

    for levels in (1, 2, 3):
        assert nesting.down_to(every, levels).tolist() == [depth(i) < levels for i in range(len(each))]


def test_instants_of_several_threads_are_looked_up_at_once():
    ranges = Ranges.of(3, start_ns=[0, 5, 20], end_ns=[10, 8, 30], thread=[2, 2, 5])
    nesting = Nesting.of(ranges, np.array([True, True, True]))
    thread, time = np.array([5, 2, 7, 2, 2, 5]), np.array([20, 8, 0, 7, 10, 30])

    assert nesting.innermost(thread, time).tolist() == [2, 0, -1, 1, -1, -1]
    assert nesting.open_on(2, np.array([-1, 0, 6, 9])).tolist() == [-1, 0, 1, 0]
    assert nesting.open_on(7, np.array([0, 6])).tolist() == [-1, -1]
    assert nesting.innermost(thread[:0], time[:0]).tolist() == []


def test_only_chosen_rows_nest_and_get_shallower():
    ranges = Ranges.of(4, start_ns=[0, 1, 2, 3], end_ns=[10, 9, 8, 7], thread=[0] * 4)
    chosen = np.array([True, False, True, True])
    nesting = Nesting.of(ranges, chosen)

    assert nesting.parent.tolist() == [-1, -1, 0, 2]
    assert nesting.down_to(chosen, 2).tolist() == [True, False, True, False]
    assert nesting.down_to(chosen, 3).tolist() == chosen.tolist()
