"""A device's time against a loop over its nanoseconds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profkit.model import Operations
from profkit.model.states import BUSY_STATES, State
from profkit.timeline.segments import Segments, find_gaps, occupy, with_idle

events = st.lists(
    st.tuples(st.integers(0, 38), st.integers(0, 9), st.sampled_from(BUSY_STATES)), min_size=1, max_size=10
)
FIRST, LAST = 2, 30


def table(each):
    return Operations.of(len(each), start_ns=[s for s, _, _ in each], end_ns=[s + d for s, d, _ in each])


def occupied(each):
    state = np.array([s for _, _, s in each], np.int8)
    return occupy(table(each), np.arange(len(each)), state, FIRST, LAST)


@given(events)
def test_every_instant_has_the_first_state_that_applies_and_the_operation_that_lasts_longest(each):
    segments = occupied(each)

    assert segments.start_ns[0] == FIRST
    assert segments.end_ns[-1] == LAST
    assert (segments.start_ns[1:] == segments.end_ns[:-1]).all()
    for start, end, state, row in zip(
        segments.start_ns, segments.end_ns, segments.state, segments.operation, strict=True
    ):
        for time in range(start, end):
            running = [i for i, (s, d, _) in enumerate(each) if s <= time < s + d]
            states = [each[i][2] for i in running]
            assert state == next((s for s in BUSY_STATES if s in states), State.UNKNOWN)
            if running:
                assert each[row][2] == state
                assert sum(each[row][:2]) == max(sum(each[i][:2]) for i in running if each[i][2] == state)
            else:
                assert row == -1


@given(events)
def test_a_gap_belongs_to_the_operation_that_starts_at_its_end_the_first_launched(each):
    returned = np.arange(len(each))[::-1].copy()
    gaps = find_gaps(table(each), np.arange(len(each)), occupied(each), returned)

    idle = [t for t in range(FIRST, LAST) if not any(s <= t < s + d for s, d, _ in each)]
    assert sum((gaps.end_ns - gaps.start_ns).tolist()) == len(idle)
    for start, end, ender in zip(gaps.start_ns, gaps.end_ns, gaps.ender, strict=True):
        assert set(range(start, end)) <= set(idle)
        starting = [i for i, (s, d, _) in enumerate(each) if s == end and d]
        assert ender == max(starting, default=-1)


@given(events, st.integers(-2, 32), st.integers(0, 20))
def test_a_window_of_segments_has_the_time_in_it(each, since, length):
    segments = occupied(each)
    clipped = segments.clipped(since, since + length)
    time = segments.within(np.array([since]), np.array([since + length]))[:, 0]

    assert (clipped.end_ns > clipped.start_ns).all()
    for state in State:
        part = clipped.state == state
        assert (clipped.end_ns - clipped.start_ns)[part].sum() == time[state]
        assert (clipped.start_ns[part] >= max(since, FIRST)).all()
    assert time.sum() == max(min(since + length, LAST) - max(since, FIRST), 0)


def test_explained_pieces_take_the_place_of_idle_stretches():
    segments = occupied([(4, 3, BUSY_STATES[0]), (12, 5, BUSY_STATES[1])])
    pieces = Segments(
        np.array([17, 2, 9, 7]),
        np.array([30, 4, 12, 9]),
        np.array([State.TAIL, State.HOST, State.INPUT, State.SYNC], np.int8),
        np.array([-1, 0, 1, 1]),
    )
    found = with_idle(segments, pieces)

    assert found.start_ns.tolist() == [2, 4, 7, 9, 12, 17]
    assert found.end_ns.tolist() == [4, 7, 9, 12, 17, 30]
    assert found.state.tolist() == [
        State.HOST, BUSY_STATES[0], State.SYNC, State.INPUT, BUSY_STATES[1], State.TAIL,
    ]  # fmt: skip
    assert found.operation.tolist() == [0, 0, 1, 1, 1, -1]
