"""Whom waits are attributed to, against a walk along the chain at every instant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.ranks.wait_attribution import attribute

DEVICES = 4


@st.composite
def waits(draw):
    """(who, for whom, start, end) of a few devices, on few instants, so that chains and circles are common."""
    made = []
    for _ in range(draw(st.integers(0, 14))):
        who, whom = draw(st.permutations(range(DEVICES)))[:2]
        start = draw(st.integers(0, 25))
        made.append((who, whom, start, start + draw(st.integers(0, 12))))
    return made


def at_instant(made, device, time):
    """What a device waits for: of waits that overlap, the one that began first (then: ends first)."""
    open_ = [(s, e, at, whom) for at, (who, whom, s, e) in enumerate(made) if who == device and s <= time < e]
    return min(open_)[3] if open_ else None


def walked(made, devices):
    """ns by (who waits, who is attributed)."""
    found = {}
    for time in range(40):
        for device in range(DEVICES):
            attributed = at_instant(made, device, time)
            if attributed is None:
                continue
            for _ in range(devices):
                onward = at_instant(made, attributed, time)
                if onward is None or onward == device:
                    break
                attributed = onward
            found[device, attributed] = found.get((device, attributed), 0) + 1
    return found


def attributed(made, devices=DEVICES):
    columns = np.array(made or np.empty((0, 4)), np.int64).reshape(-1, 4).T
    parts = attribute(*columns, devices=devices)
    found = {}
    for who, to, start, end in zip(parts.device, parts.to, parts.start, parts.end, strict=True):
        found[int(who), int(to)] = found.get((int(who), int(to)), 0) + int(end - start)
    return {pair: ns for pair, ns in found.items() if ns}


@given(waits(), st.integers(DEVICES, DEVICES + 1))
def test_every_instant_is_charged_to_the_end_of_its_chain(made, devices):
    """Of an even and of an odd number of devices: a circle is walked as often as there are devices."""
    assert attributed(made, devices) == walked(made, devices)


def test_a_chain_of_stages_is_attributed_to_the_slow_one():
    made = [(0, 1, 0, 10), (1, 2, 0, 10), (3, 2, 0, 10)]
    assert attributed(made) == {(0, 2): 10, (1, 2): 10, (3, 2): 10}


def test_only_the_part_in_which_the_other_waits_is_passed_on():
    assert attributed([(0, 1, 0, 10), (1, 2, 3, 5)]) == {(0, 1): 8, (0, 2): 2, (1, 2): 2}


@pytest.mark.parametrize("devices", [2, 3, 4])
def test_two_that_wait_for_each_other_are_attributed_to_each_other(devices):
    assert attributed([(0, 1, 0, 10), (1, 0, 0, 10)], devices) == {(0, 1): 10, (1, 0): 10}
