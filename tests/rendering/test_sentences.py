"""Sentences: values are printed by the unit in their name, and a code without a sentence is an error."""

from __future__ import annotations

import pytest

from profkit.model.findings import Finding, Severity
from profkit.rendering.sentences import finding_message
from profkit.rendering.sentences.wording import say


@pytest.mark.parametrize(
    ("template", "params", "text"),
    [
        ("{gap_ns}", {"gap_ns": 1_500}, "1.50 µs"),
        ("{peak_bytes}", {"peak_bytes": 3 << 20}, "3.00 MiB"),
        ("{share}", {"share": 0.43}, "43 %"),
        ("{count:step}", {"count": 1}, "1 step"),
        ("{count:step}", {"count": 2}, "2 steps"),
        ("{ranks}", {"ranks": [1, 5]}, "1, 5"),
        ("{where}", {"where": "a{b}.py:3"}, "a{b}.py:3"),
    ],
)
def test_a_value_is_printed_by_the_unit_of_its_name(template, params, text):
    assert say(template, params) == text


def test_a_sentence_without_its_value_is_an_error():
    with pytest.raises(KeyError):
        say("{gap_ns}", {})


def test_a_code_without_a_sentence_is_an_error():
    with pytest.raises(KeyError):
        finding_message(Finding("no-such-code", Severity.INFO))
