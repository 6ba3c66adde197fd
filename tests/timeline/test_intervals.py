"""Interval arithmetic against sets of nanoseconds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profkit.timeline.distinct import distinct, rows_by_value, sorted_distinct
from profkit.timeline.intervals import Intervals, grouped_union_ns, previous_enclosing

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


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 30), st.integers(0, 9)), max_size=25))
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


def test_columns_too_long_for_one_running_maximum_are_measured_in_parts():
    # Four stretches of 2^61 ns do not fit into 64 bits beside each other.
    far = 1 << 61
    group = np.array([0, 1, 1, 2, 4, 4], np.int64)
    start = np.array([0, 5, 7, far - 3, 1, far - 1], np.int64)
    end = np.array([4, 9, 12, far, 3, far], np.int64)

    assert grouped_union_ns(group, start, end, 5).tolist() == [4, 7, 3, 0, 3]


def test_many_such_columns_do_not_run_into_each_other():
    far = 1 << 61
    group = np.repeat(np.arange(20), 2)
    start = np.tile([0, far - 9_000], 20)
    end = start + 9_000 - group

    assert grouped_union_ns(group, start, end, 20).tolist() == [2 * (9_000 - g) for g in range(20)]


def test_a_stretch_longer_than_half_of_all_times_is_measured_too():
    far = (1 << 61) + 9
    start, end = np.array([-far, far - 4], np.int64), np.array([5 - far, far], np.int64)

    assert grouped_union_ns(np.array([0, 0]), start, end, 1).tolist() == [9]


def test_groups_are_measured_alike_wherever_their_times_lie():
    group = np.array([1, 0, 1], np.int64)
    start = np.array([-50, -20, -48], np.int64)

    assert grouped_union_ns(group, start, start + 5, 3).tolist() == [5, 7, 0]
    assert grouped_union_ns(group[:0], start[:0], start[:0], 2).tolist() == [0, 0]


def test_groups_that_begin_before_the_origin_stay_apart():
    group, start, end = np.array([0, 0, 1]), np.array([-5, 95]), np.array([0, 100, 95])

    assert grouped_union_ns(group, np.append(start, -5), end, 2).tolist() == [10, 100]


def test_an_intersection_is_the_same_from_either_side_and_in_the_fewest_intervals():
    few, many = made([(0, 100)]), made([(10, 20), (30, 40), (99, 120)])

    for met in (few.intersection(many), many.intersection(few)):
        assert (met.start.tolist(), met.end.tolist()) == ([10, 30, 99], [20, 40, 100])
    touching = made([(20, 30), (40, 99)])
    assert len(touching.intersection(many)) == len(many.intersection(touching)) == 0


@given(pairs, pairs)
def test_no_result_has_an_empty_interval(a, b):
    for each in (made(a).union(made(b)), made(a).intersection(made(b)), made(a).difference(made(b))):
        assert (each.end > each.start).all()
        assert (each.start[1:] >= each.end[:-1]).all()
        assert each.total_ns == len(covered(each))


def test_intervals_that_touch_are_one_and_times_that_recur_are_distinct():
    assert made([(5, 9), (0, 5)]).start.tolist() == [0]
    assert made([(6, 9), (0, 5)]).start.tolist() == [0, 6]
    assert sorted_distinct(np.array([4, 2, 4, 2, 7])).tolist() == [2, 4, 7]


def test_the_measure_before_an_instant_grows_with_it():
    some = made([(10, 20), (30, 35)])

    assert some.before([0, 10, 11, 20, 25, 30, 33, 35, 99]).tolist() == [0, 0, 1, 10, 10, 10, 13, 15, 15]
    assert Intervals.none().before([[0, 1], [2, 3]]).tolist() == [[0, 0], [0, 0]]
    assert not Intervals.none().contains([[0, 1]]).any()
    assert (len(some), len(Intervals.none())) == (2, 0)
    assert len(Intervals.of_sorted(some.start[:0], some.end[:0])) == 0


@given(st.lists(st.integers(-3, 9), max_size=30))
def test_rows_by_value_are_the_rows_that_have_it(values):
    column = np.array(values, np.int64)
    found = {value: rows.tolist() for value, rows in rows_by_value(column)}

    assert list(found) == sorted(set(values))
    assert found == {v: [i for i, each in enumerate(values) if each == v] for v in set(values)}
    assert sorted_distinct(column).tolist() == sorted(set(values))


def test_more_values_than_16_bits_hold_have_their_rows_too():
    column = np.arange((1 << 16) + 1)[::-1].copy()
    found = list(rows_by_value(column))

    assert [value for value, _ in found] == sorted(column.tolist())
    assert [rows.tolist() for _, rows in found[:2]] == [[1 << 16], [(1 << 16) - 1]]


def test_sparse_values_cost_no_table_of_their_range():
    values, codes = distinct(np.array([1 << 60, 0, 1 << 60], np.int64))

    assert (values.tolist(), codes.tolist()) == ([0, 1 << 60], [1, 0, 1])
    assert distinct(np.empty(0, np.int64))[0].tolist() == []
