"""Recorded pairs, from the traces themselves: what was changed, in every form that a comparison has."""

import json
import re
from functools import cache

import jsonschema
import pytest

import profkit
from profkit.api.comparing import save_run
from profkit.rendering.comparisons import comparison_schema
from tests.shared import DATA

PAIRS = DATA / "pairs"
EXPECTED = {
    "gpt_planted": ("other", "kernels", "slower"),
    "gpt_item": ("sync", "idle", "slower"),
}


@cache
def report(name):
    return profkit.analyze(PAIRS / f"{name}.json.gz")


@cache
def compared(after):
    return profkit.compare(report("gpt_none"), report(after))


@pytest.mark.parametrize("after", EXPECTED)
def test_what_was_changed_leads_the_explanation(after):
    name, kind, verdict = EXPECTED[after]
    found = compared(after)
    assert found.verdict == verdict
    assert (found.parts[0].name, found.parts[0].kind) == (name, kind)
    assert found.parts[0].delta_ns > 0.6 * found.step.delta_ns


def test_the_planted_kernel_is_new_and_a_twentieth_of_the_step():
    new = [k for k in compared("gpt_planted").comparison.kernels if k.name is None]
    assert [(k.count_before, k.count_after) for k in new] == [(0, 1)]
    assert new[0].after_ns == pytest.approx(0.05 * compared("gpt_planted").step.before_ns, rel=0.01)


def test_the_waits_are_told_by_their_call():
    syncs = compared("gpt_item").comparison.syncs
    assert syncs[0].api == "cudaStreamSynchronize"
    assert syncs[0].operator == "aten::item"
    assert (syncs[0].count.before, syncs[0].count.after) == (0, 8)  # a call after each layer


@pytest.mark.parametrize("after", ["gpt_none", *EXPECTED])
def test_parts_and_phases_add_up_to_the_step(after):
    found = compared(after)
    for rows in (found.parts, found.comparison.phases):
        for key in ("before_ns", "after_ns", "delta_ns"):
            assert sum(getattr(row, key) for row in rows) == getattr(found.step, key)


@pytest.mark.parametrize("after", EXPECTED)
def test_traces_reports_and_saved_runs_compare_alike(after, tmp_path):
    sides = {"trace": [], "report": [], "run": []}
    for name in ("gpt_none", after):
        sides["trace"].append(PAIRS / f"{name}.json.gz")
        sides["report"].append(report(name).save(tmp_path / f"{name}.json"))
        sides["run"].append(save_run(report(name), database=tmp_path / "runs.db"))
    documents = [profkit.compare(*side).as_dict() for side in sides.values()]
    assert documents[0] == documents[1] == documents[2]


@pytest.mark.parametrize("after", EXPECTED)
def test_every_form_says_the_same(after):
    found = compared(after)
    document = json.loads(found.render("json"))
    jsonschema.Draft202012Validator(comparison_schema()).validate(document)
    words = re.findall(r"[\w.]+", document["sentence"].lower())
    for format_ in ("md", "html", "text"):
        text = re.sub(r"<[^>]+>", " ", found.render(format_).replace("\\", "")).lower()
        assert " ".join(words) in " ".join(re.findall(r"[\w.]+", text))
