"""How far the clocks of two files may disagree and still be one."""

import numpy as np
import pytest

from profkit.ranks.clocks import _clock, _Shared


def clock_of(count, pace_ns, error_ns, *, trusted=False, ahead_ns=7_000_000):
    """The clock of a file whose collectives end a pace apart, and which is off by an error to both sides."""
    rows = np.arange(count)
    ends = 10**18 + rows * pace_ns
    left = ends - ahead_ns - error_ns * np.where(rows % 2, 1, -1) * (rows > 0)
    return _clock(_Shared(rows, np.zeros(count, np.int64), ends, np.ones(count, bool)), left, trusted)


@pytest.mark.parametrize(
    ("pace_ns", "error_ns", "known"),
    [(10_000, 99_000, True), (10_000, 101_000, False), (1_000_000, 499_000, True), (1_000_000, 501_000, False)],
)  # fmt: skip
def test_an_error_is_believed_up_to_100_us_or_half_of_the_pace(pace_ns, error_ns, known):
    clock = clock_of(9, pace_ns, error_ns)
    assert (clock is not None) == known
    if known:
        assert (clock.offset_ns, clock.error_ns, clock.shared) == (-7_000_000, error_ns, 9)


def test_three_shared_collectives_make_a_clock_and_two_do_where_unix_times_agree():
    assert clock_of(3, 1_000_000, 0).offset_ns == -7_000_000
    assert clock_of(2, 1_000_000, 0) is None
    assert clock_of(2, 1_000_000, 0, trusted=True) is None, "7 ms apart are not one instant"
    assert clock_of(2, 1_000_000, 0, trusted=True, ahead_ns=50_000).offset_ns == 0
