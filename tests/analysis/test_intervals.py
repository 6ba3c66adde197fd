"""Interval arithmetic against sets of nanoseconds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profkit.analysis.distinct import distinct
from profkit.analysis.intervals import Intervals, grouped_union_ns, previous_enclosing

pairs = st.lists(
    st.tuples(st.integers(-20, 30), st.integers(-3, 15)).map(lambda p: (p[0], p[0] + p[1])), max_size=12
)


def instants(each):
    return {t for start, end in each for t in range(start, end)}


def made(each):
    return Intervals.of([s for s, _ in each], [e for _, e in each])


def covered(intervals):
    return instants(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True))


@given(pairs)
def test_union_covers_the_same_nanoseconds_in_the_fewest_intervals(each):
    union = made(each)

    assert covered(union) == instants(each)
    assert union.total_ns == len(instants(each))
    assert (union.start[1:] > union.end[:-1]).all()


@given(pairs, pairs)
def test_set_operations_are_those_of_sets(a, b):
    assert covered(made(a).union(made(b))) == instants(a) | instants(b)
    assert covered(made(a).intersection(made(b))) == instants(a) & instants(b)
    assert covered(made(a).difference(made(b))) == instants(a) - instants(b)


@given(pairs, st.integers(-30, 50), st.integers(0, 30))
def test_measures_of_windows_count_nanoseconds(each, start, length):
    expected = len(instants(each) & set(range(start, start + length)))

    assert made(each).within([start], [start + length]).tolist() == [expected]
    assert made(each).contains(np.arange(-30, 60)).tolist() == [t in instants(each) for t in range(-30, 60)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 9)), max_size=25))
def test_grouped_unions_equal_one_union_a_group(rows):
    group = np.array([g for g, _, _ in rows], np.int64)
    start = np.array([s for _, s, _ in rows], np.int64)
    end = start + np.array([d for _, _, d in rows], np.int64)

    expected = [Intervals.of(start[group == g], end[group == g]).total_ns for g in range(4)]

    assert grouped_union_ns(group, start, end, 4).tolist() == expected


@given(st.lists(st.integers(0, 12), max_size=40))
def test_the_enclosing_interval_is_the_nearest_earlier_that_ends_no_earlier(ends):
    expected = [next((j for j in range(i - 1, -1, -1) if ends[j] >= ends[i]), -1) for i in range(len(ends))]

    assert previous_enclosing(np.array(ends, np.int64)).tolist() == expected


@given(st.lists(st.one_of(st.integers(-5, 40), st.integers(-(2**62), 2**62)), max_size=30))
def test_distinct_values_are_those_of_a_sort(values):
    column = np.array(values, np.int64)
    expected, inverse = np.unique(column, return_inverse=True)
    made, codes = distinct(column)

    assert made.tolist() == expected.tolist()
    assert codes.tolist() == np.ravel(inverse).tolist()
