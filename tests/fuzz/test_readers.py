"""A few hundred made-up inputs a reader, the same ones each time; ``python -m tests.fuzz.long`` makes more."""

import pytest

from tests.fuzz.inputs import READERS, nth
from tests.fuzz.properties import check

RUNS = {"kineto": 150, "nsys": 120, "snapshot": 300}
SEED = 20260


@pytest.mark.parametrize("reader", READERS)
def test_made_up_inputs_are_analysed_or_refused_in_one_line(reader, tmp_path):
    refused = [
        refusal
        for number in range(RUNS[reader])
        if (refusal := check(nth(reader, SEED, number), tmp_path, thorough=number % 10 == 0)) is not None
    ]
    assert len(refused) <= 0.7 * RUNS[reader], "too few inputs reach the analysis to find anything"
    assert refused, "the inputs are too tame"


@pytest.mark.parametrize("reader", READERS)
def test_an_input_depends_on_its_seed_and_number_alone(reader):
    assert nth(reader, 1, 7).data == nth(reader, 1, 7).data
    assert len({nth(reader, 1, number).data for number in range(20)}) > 15
