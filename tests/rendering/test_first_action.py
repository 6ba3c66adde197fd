"""Each kind of report says what to do first, in every format."""

from types import SimpleNamespace

import pytest

import profkit
from profkit.model.findings import Fact
from profkit.rendering.html import render_html
from profkit.rendering.sentences.first_action import first_action
from profkit.rendering.text import render_text
from tests.rendering.sample_reports import SAMPLES, compute_bound
from tests.rendering.samples import edited
from tests.shared import DATA

REDUCE = (
    "Reduce memory use: net.py:3 forward holds the most, 5.00 GiB. "
    "Recompute activations (torch.utils.checkpoint), or make the batch smaller."
)


def with_failure(**values):
    def change(report):
        holders = [{"category": "activation", "where": "net.py:3 forward", "bytes": 5 << 30, "count": 2}]
        report["memory"]["oom"] = [{"kind": "full", "holders": holders, **values}]

    return edited(compute_bound(), change)


@pytest.mark.parametrize(
    ("values", "action"),
    [
        ({}, REDUCE),
        ({"holders": []}, None),
        ({"kind": "outside"}, "Stop what else uses the GPU: nvidia-smi lists it."),
        ({"kind": "fragmented"}, "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."),
        ({"kind": "fragmented", "expandable_segments": True}, REDUCE),
    ],
)  # fmt: skip
def test_where_memory_ran_out_that_comes_first(values, action):
    assert first_action(with_failure(**values)) == action


def test_a_late_rank_comes_before_advice_on_the_step():
    late = {"rank": 1, "bound": "launch", "share": 0.3}
    page = render_html(edited(compute_bound(), lambda values: values["verdict"].update(straggler=late)))
    assert "<span>Do first</span> <bdi>Analyse the file of rank 1 and that of another rank" in page
    assert page.count("<span>Do first</span>") == 1
    turns = edited(compute_bound(), lambda values: values["verdict"].update(straggler={**late, "rank": None}))
    assert first_action(turns) is None


def test_a_snapshot_with_a_leak_says_what_grows():
    report = profkit.analyze(DATA / "snapshot" / "leak.pickle.gz")
    action = "Find what keeps the tensors of memory_cases.py:29 leak alive: they grow by 8.00 MiB per step."
    assert action in " ".join(str(report).split())
    assert action in report.render("html").replace("\u00a0", " ")


def test_the_headline_is_the_first_sentence_and_the_others_follow():
    sentence = "The step is memory-bound: 38.3 ms. Its pace is balanced."
    page = render_html(edited(compute_bound(), lambda values: values["verdict"].update(sentence=sentence)))
    assert "<bdi>38.3\u00a0ms.</bdi></h1>" in page
    assert '<p class="lead"><bdi>Its pace is balanced.</bdi></p>' in page


def test_where_advice_has_a_price_it_is_what_to_do():
    assert first_action(compute_bound()) is None
    assert "No advice" not in render_text(SAMPLES["compute_bound"]())


@pytest.mark.parametrize(("times", "word"), [([400, 3], "Look at aten::sum"), ([40, 3], "Mark the parts")])
def test_an_operator_that_does_not_explain_a_part_of_the_step_is_not_to_be_looked_at(times, word):
    params = {
        "part": "backward",
        "part_ns": 1000,
        "part_share": 0.5,
        "steps": 1,
        "operators": ["aten::sum", "aten::mm"],
    }
    fact = Fact("host-part", {**params, "operator_times": times})
    report = SimpleNamespace(memory=None, verdict=SimpleNamespace(doubts=[fact], straggler=None))
    assert word in first_action(report)
