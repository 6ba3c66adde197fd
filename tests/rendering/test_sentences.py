"""Sentences: values are printed by the unit in their name, and a code without a sentence is an error."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import profkit
from profkit.model.findings import Fact, Finding, Severity
from profkit.model.report_verdict import LimitRow
from profkit.model.rows import Interval
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


PRODUCERS = ("readers", "timeline", "roofline", "memory", "ranks", "report", "verification")


def calls_of(name, tree):
    """The calls of a function or method, each with the function that it stands in."""
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and node.args:
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in name and isinstance(node.args[0], ast.Constant):
                    yield function, node


def emitted():
    """``(code, parameters or None)`` of each finding that a producer makes, as they stand in the source."""
    for room in PRODUCERS:
        for path in (Path(profkit.__file__).parent / room).rglob("*.py"):
            for function, call in calls_of(("Finding", "note"), ast.parse(path.read_text("utf-8"))):
                yield str(call.args[0].value), _given(call, function)


def _given(call, function):
    words = {word.arg: word.value for word in call.keywords if word.arg not in ("count", "severity")}
    if "params" in words:
        return _values(words["params"], function)
    return None if None in words else {name: _example(name, value) for name, value in words.items()}


def _values(node, function):
    """The parameters that an expression gives, with an example of each; None where the source does not list them."""
    if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
        return {
            key.value: _example(key.value, each) for key, each in zip(node.keys, node.values, strict=True)
        }
    if isinstance(node, ast.BinOp):
        sides = [_values(side, function) for side in (node.left, node.right)]
        return None if None in sides else sides[0] | sides[1]
    if isinstance(node, ast.Name):
        targets = {ast.AnnAssign: lambda n: [n.target], ast.Assign: lambda n: n.targets}
        given = [
            _values(each.value, function)
            for each in ast.walk(function)
            if type(each) in targets and ast.unparse(targets[type(each)](each)[0]) == node.id
        ]
        return None if not given or None in given else {k: v for each in given for k, v in each.items()}
    return None


EXAMPLES = {
    "ranks": [1, 2],
    "kinds": ["decode"],
    "counts": [3],
    "bounds": ["compute"],
    "medians_ns": [5],
    "reason": "one-rank",
    "kind": "full",
    "tensor": "gradient",
}


def _example(name, node):
    return node.value if isinstance(node, ast.Constant) else EXAMPLES.get(name, 1)


def test_every_finding_of_a_producer_has_a_sentence():
    codes = {code for code, _ in emitted()}
    assert {"truncated", "straggler", "leak"} <= codes
    assert codes - set(FINDINGS) == set()


@pytest.mark.parametrize(("code", "params"), [pair for pair in emitted() if pair[1] is not None])
def test_a_producer_gives_what_its_sentence_holds(code, params):
    assert finding_message(Finding(code, Severity.INFO, params=params))


def test_most_producers_can_be_checked():
    given = [params for _, params in emitted()]
    assert sum(params is None for params in given) * 4 < len(given)


@pytest.mark.parametrize("code", sorted(FINDINGS))
def test_a_sentence_is_short_and_ends(code):
    template = FINDINGS[code]
    if isinstance(template, str):
        assert all(len(sentence.split()) <= 30 for sentence in template.split(". ")), template


def judged(times, *, fact=None, formats=(), findings=(), pace=("unknown", (), ()), **options):
    """The sentences on a verdict over times by state in ms."""
    states = np.zeros(len(State), np.int64)
    for state, ms in times.items():
        states[state] = ms * 1_000_000
    grounds = Grounds(
        states, np.zeros(len(Basis), np.int64), **{"steps": None, "devices": 1, "slow_host": False, **options}
    )
    verdict = verdict_on(grounds, undecided=fact)
    return SimpleNamespace(
        verdict=verdict,
        window=SimpleNamespace(device_ns=int(states.sum())),
        step=None,
        memory=None,
        devices=[1],
        pace=pace[0],
        between=pace[1],
        limits=pace[2],
        inputs=[SimpleNamespace(format=each) for each in formats],
        health=SimpleNamespace(findings=[SimpleNamespace(code=code) for code in findings]),
    )


def test_the_verdict_says_share_time_and_runner_up():
    assert verdict_sentence(judged({State.COMPUTE: 50, State.MEMORY: 40, State.TAIL: 10})) == (
        "The recording is compute-bound: the GPU spends 50 % of 100 ms in compute-bound kernels; "
        "memory is close behind with 40 %."
    )


def test_what_sets_the_pace_is_said_where_it_is_not_the_largest_share():
    saving = Interval(low=1e6, likely=3e6, high=4e6)
    host = LimitRow(resource="host", saving_if_twice_as_fast_ns=saving)
    times = {State.COMPUTE: 90, State.HOST: 10}

    assert verdict_sentence(judged(times, pace=("host", (), [host]))).endswith(
        " Yet the host sets the pace: twice as fast, it would save 3.00 ms per step."
    )
    assert verdict_sentence(judged(times, pace=("balanced", ["memory", "host"], [host]))).endswith(
        " Both memory bandwidth and the host set its pace."
    )
    nothing = LimitRow(resource="memory", saving_if_twice_as_fast_ns=Interval(low=0, likely=0, high=0))
    assert verdict_sentence(judged(times, pace=("balanced", ["host", "memory"], [host, nothing]))).endswith(
        " No single resource sets its pace: twice as fast, the host would save most, 3.00 ms per step."
    )
    unlike = LimitRow(resource="host", saving_if_twice_as_fast_ns=nothing.saving_if_twice_as_fast_ns)
    assert verdict_sentence(judged(times, pace=("balanced", ["host", "memory"], [unlike, nothing]))).endswith(
        " No single resource sets its pace."
    )
    for same in (("compute", (), []), ("balanced", ["compute", "host"], []), ("unknown", (), [])):
        assert "pace" not in verdict_sentence(judged(times, pace=same))
    assert "pace" not in verdict_sentence(judged({State.HOST: 90}, pace=("host", (), [host])))
    assert "fixed time" in verdict_sentence(
        judged({State.HOST: 90}, pace=("balanced", ["device_overhead", "memory"], []))
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


@pytest.mark.parametrize(
    ("code", "formats", "findings", "word", "other"),
    [
        ("no-gpu-events", ["nsys"], [], "nsys", "ProfilerActivity"),
        ("no-gpu-events", ["kineto"], [], "ProfilerActivity", "nsys"),
        ("no-gpu-events", ["kineto"], ["other-accelerator"], "host", "CUDA"),
        ("steps-damaged", ["kineto"], [], "fewer steps", "nsys"),
        ("steps-damaged", ["nsys"], [], "an nsys that is as new", "ProfilerActivity"),
        ("kernels-unrecognised", ["nsys"], [], "torch.profiler", "no other"),
        ("kernels-unrecognised", ["nsys"], ["no-torch"], "ncu", "record_shapes"),
        ("kernels-unrecognised", ["kineto"], [], "record_shapes=True", "nsys"),
    ],
)
def test_what_to_record_is_said_for_the_recorder_and_the_program(code, formats, findings, word, other):
    remedy = verdict_remedy(judged({}, fact=Fact(code, {}), formats=formats, findings=findings))

    assert word in remedy
    assert other not in remedy


def test_a_verdict_without_time_says_so():
    assert verdict_sentence(judged({})).endswith("no time was recorded.")


def test_a_code_without_a_sentence_is_an_error():
    with pytest.raises(KeyError):
        finding_message(Finding("no-such-code", Severity.INFO))


def test_a_finding_says_in_how_many_files_it_is():
    said = finding_message(Finding("secrets", Severity.INFO, count=2))
    same = finding_message(Finding("secrets", Severity.INFO, count=2, params={"same_files": 1}))
    alike = finding_message(Finding("secrets", Severity.INFO, count=2, params={"alike_files": 5}))
    of_one = finding_message(Finding("secrets", Severity.INFO, count=2, params={"in_file": "a.json"}))
    assert of_one == f"a.json: {said}"
    assert same == f"{said} (the same in 1 more file)"
    assert alike == f"{said} (5 more files with other numbers)"
