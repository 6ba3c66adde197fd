"""Sentences: values are printed by the unit in their name, and a code without a sentence is an error."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import profkit
from profkit.model.findings import Fact, Finding, Severity
from profkit.model.states import State
from profkit.model.work import Basis
from profkit.rendering.sentences import FINDINGS, finding_message, verdict_remedy, verdict_sentence
from profkit.rendering.sentences.wording import say
from profkit.report.verdict import Grounds, verdict_on


@pytest.mark.parametrize(
    ("template", "params", "text"),
    [
        ("{gap_ns}", {"gap_ns": 1_500}, "1.50 µs"),
        ("{peak_bytes}", {"peak_bytes": 3 << 20}, "3.00 MiB"),
        ("{share}", {"share": 0.43}, "43 %"),
        ("{count:step}", {"count": 1}, "1 step"),
        ("{count:step}", {"count": 2}, "2 steps"),
        ("{count:launch}", {"count": 2}, "2 launches"),
        ("{count:history entry}", {"count": 2}, "2 history entries"),
        ("{count:copy or memset|copies and memsets}", {"count": 2}, "2 copies and memsets"),
        ("{ranks}", {"ranks": [1, 5]}, "1, 5"),
        ("{where}", {"where": "a{b}.py:3"}, "a{b}.py:3"),
    ],
)
def test_a_value_is_printed_by_the_unit_of_its_name(template, params, text):
    assert say(template, params) == text


def test_a_sentence_without_its_value_is_an_error():
    with pytest.raises(KeyError):
        say("{gap_ns}", {})


PRODUCERS = ("readers", "timeline", "roofline", "memory", "ranks", "report")


def emitted_codes():
    """The codes that producers write into findings, as they stand in the source."""
    for room in PRODUCERS:
        for path in (Path(profkit.__file__).parent / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and node.args:
                    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                    says_itself = len(node.args) > 2 and name == "Finding"
                    if (
                        name in ("Finding", "note")
                        and isinstance(node.args[0], ast.Constant)
                        and not says_itself
                    ):
                        yield str(node.args[0].value)


def test_every_finding_of_a_producer_has_a_sentence():
    codes = set(emitted_codes())
    assert "truncated" in codes
    assert codes - set(FINDINGS) == set()


@pytest.mark.parametrize("code", sorted(FINDINGS))
def test_a_sentence_is_short_and_ends(code):
    template = FINDINGS[code]
    if isinstance(template, str):
        assert all(len(sentence.split()) <= 30 for sentence in template.split(". ")), template


def judged(times, *, fact=None, **options):
    """The sentences on a verdict over times by state in ms."""
    states = np.zeros(len(State), np.int64)
    for state, ms in times.items():
        states[state] = ms * 1_000_000
    grounds = Grounds(
        states, np.zeros(len(Basis), np.int64), **{"steps": None, "devices": 1, "slow_host": False, **options}
    )
    verdict = verdict_on(grounds, plain_step_ns=None, undecided=fact)
    return SimpleNamespace(
        verdict=verdict,
        window=SimpleNamespace(device_ns=int(states.sum())),
        step=None,
        memory=None,
        devices=[1],
    )


def test_the_verdict_says_share_time_and_runner_up():
    assert verdict_sentence(judged({State.COMPUTE: 50, State.MEMORY: 40, State.TAIL: 10})) == (
        "The recording is compute-bound: the GPU spends 50 % of 100 ms in compute-bound kernels; "
        "memory is close behind with 40 %."
    )


def test_the_time_of_the_sentence_is_that_of_a_step_on_a_device():
    assert "of its 100 ms " in verdict_sentence(judged({State.COMPUTE: 600}, steps=3, devices=2))


@pytest.mark.parametrize("state", [s for s in State if s is not State.PROFILER])
def test_every_state_has_a_sentence(state):
    said = verdict_sentence(judged({state: 100}))
    assert "100 %" in said
    assert said.endswith(".")


def test_an_undecided_verdict_says_why_and_what_to_record():
    report = judged({State.COMPUTE: 60}, fact=Fact("kernels-lost", {"lost": 9, "kernels": 1}))
    assert "9 launches have no kernel record" in verdict_sentence(report)
    assert verdict_remedy(report) == "Record fewer steps at once."


def test_a_verdict_without_time_says_so():
    assert verdict_sentence(judged({})).endswith("no time was recorded.")


def test_a_code_without_a_sentence_is_an_error():
    with pytest.raises(KeyError):
        finding_message(Finding("no-such-code", Severity.INFO))
