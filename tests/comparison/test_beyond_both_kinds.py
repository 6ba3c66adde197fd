"""A change beyond both kinds of steps of a side is judged, whichever kind its median is of; within them it is not."""

import numpy as np
import pytest

from profkit.comparison import compare_reports
from profkit.comparison.noise import measured_noise, median_of
from tests.comparison.recordings import of_steps, recorded

TIMES = {"plain": [100.0, 100.2, 99.9, 100.1, 99.8, 100.0, 100.1, 99.9]}
TIMES["longer by chance"] = [110.0, 100.1, 99.9, 110.2, 110.1, 99.8, 110.0, 109.9]


def noise_of(before, after):
    return measured_noise([before], [after], expected=0.3, drift=0.3).half_width


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.3, 2.0])
@pytest.mark.parametrize("order", [list(TIMES), list(TIMES)[::-1]])
def test_a_jump_within_a_side_hides_no_change_beyond_it(order, factor):
    before, after = TIMES[order[0]], [time * factor for time in TIMES[order[1]]]
    change = median_of([after]) - median_of([before])
    # All steps of one side lie beyond all of the other, and the noise tells so.
    assert min(np.sign(change) * np.array(after)) > max(np.sign(change) * np.array(before))
    assert noise_of(before, after) < abs(change)


@pytest.mark.parametrize("order", [list(TIMES), list(TIMES)[::-1]])
def test_a_jump_towards_the_other_side_hides_the_change(order):
    before, after = (TIMES[name] for name in order)
    assert noise_of(before, after) > abs(median_of([after]) - median_of([before])) > 9


@pytest.mark.parametrize(("factor", "verdict"), [(0.7, "faster"), (1.5, "slower"), (1.0, "no change")])
def test_a_comparison_of_such_recordings_says_so(factor, verdict):
    sides = [
        of_steps(recorded("gpt_fp32"), [[round(part * time * 4e5) for part in (0.9, 0.1)] for time in times])
        for times in (TIMES["plain"], [time * factor for time in TIMES["longer by chance"]])
    ]
    assert compare_reports([sides[0]], [sides[1]]).verdict == verdict
