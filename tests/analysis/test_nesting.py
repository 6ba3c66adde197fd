"""The innermost range, also where ranges overlap without nesting."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profkit.analysis.nesting import Nesting
from profkit.model import Ranges

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
