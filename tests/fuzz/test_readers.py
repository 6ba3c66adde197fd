"""A few hundred made-up inputs a reader, the same ones each time; `tests.fuzz.long` and `.guided` make more."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.inputs import READERS, make, nth
from tests.fuzz.properties import check
from tests.fuzz.tape import Tape

RUNS = {"kineto": 100, "nsys": 80, "snapshot": 200}
SEED = 20260
CHOICES = st.binary(min_size=300, max_size=300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("reader", READERS)
def test_made_up_inputs_are_analysed_or_refused_in_one_line(reader, folder):
    refused = [
        refusal
        for number in range(RUNS[reader])
        if (refusal := check(nth(reader, SEED, number), folder, thorough=number % 10 == 0)) is not None
    ]
    assert len(refused) <= 0.7 * RUNS[reader], "too few inputs reach the analysis to find anything"
    assert refused, "the inputs are too tame"


@pytest.mark.parametrize("reader", READERS)
def test_inputs_of_any_choices_are_analysed_or_refused_and_shrink_where_not(reader, folder):
    @settings(
        max_examples=RUNS[reader],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(choices=CHOICES)
    def holds(choices):
        check(make(reader, Tape(choices)), folder, thorough=choices[0] % 10 == 0)

    holds()


@pytest.mark.parametrize("reader", READERS)
def test_an_input_depends_on_its_seed_and_number_alone(reader):
    assert nth(reader, 1, 7).data == nth(reader, 1, 7).data
    assert len({nth(reader, 1, number).data for number in range(20)}) > 15


def test_choices_are_read_from_the_bytes_and_then_always_the_same():
    drawn = [Tape(b"\x80\x00\x05").random(), *(Tape(b"\x00\x00\x05").choice("abcdefgh") for _ in range(2))]
    assert drawn[0] == 0.5
    assert drawn[1] == drawn[2] == "a"
    assert [Tape(b"").random() for _ in range(2)] == [Tape(b"\xff").random()] * 2
