"""One name for one thing: every code that a report uses has one label."""

from typing import get_args

import pytest

from profkit.model import names
from profkit.rendering.sentences import labels
from profkit.rendering.sentences.comparison import part_label


@pytest.mark.parametrize(
    ("table", "codes"),
    [
        (labels.SHARES, names.SHARES),
        (labels.CAUSES, names.IDLE_CAUSES),
        (labels.BOUNDS, get_args(names.KernelBound)),
        (labels.LAUNCH_PARTS, names.LAUNCH_PARTS),
        (labels.BASES, get_args(names.Basis)),
    ],
)
def test_every_code_has_a_label(table, codes):
    assert set(codes) <= set(table)


@pytest.mark.parametrize("table", [labels.SHARES, labels.CAUSES, labels.BOUNDS])
def test_no_two_codes_share_a_label(table):
    told = [term.label for term in table.values()]
    assert len(set(told)) == len(told)


@pytest.mark.parametrize("cause", names.IDLE_CAUSES)
def test_a_cause_has_the_same_name_in_a_comparison(cause):
    assert part_label(cause, "idle") == f"idle: {labels.cause_term(cause).label.lower()}"


@pytest.mark.parametrize("part", ["host", "queue"])
def test_a_part_of_launch_overhead_has_the_name_of_its_cause(part):
    assert labels.LAUNCH_PARTS[part] == labels.cause_term(part).label
