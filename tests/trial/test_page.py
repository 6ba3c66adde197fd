"""The page of a trial."""

import re
from html import unescape

import pytest

from profkit.model.rows import Interval
from profkit.trial.document import ByHand, Kept, LossRow, TrialRow, TryDocument
from profkit.trial.page import try_page
from profkit.trial.sentences import trial_text


def around(likely):
    return Interval(low=likely * 0.95, likely=likely, high=likely * 1.05)


def document(*rows, by_hand=()):
    return TryDocument(
        sentence="20.0 -> 10.0 ms",
        command=["python", "<train>.py"],
        baseline_ms=around(20.0),
        variation=None,
        noise=0.01,
        trials=list(rows),
        final=Kept(
            speedup=None, before_ms=20.0, after_ms=10.0, changes=["bf16"], patch=["a < b"], environment=[]
        ),
        loss=LossRow(unchanged=True, why=""),
        baseline_peak_bytes=1 << 30,
        baseline_warmup_s=2.0,
        duration_s=60.0,
        notes=[],
        by_hand=by_hand,
    )


ROWS = (
    TrialRow(change="bf16", measured=around(2.0), predicted=around(1.8), kept=True),
    TrialRow(change="compile", beside=("bf16",), measured=around(0.9)),
    TrialRow(change="tf32", why="no GPU"),
)


def test_each_measured_change_is_a_dot_on_its_side_of_the_line():
    page = try_page(document(*ROWS))
    dots = [float(x) for x in re.findall(r'class="dot[^"]*" cx="([\d.]+)"', page)]
    one = float(re.search(r'class="same" d="M([\d.]+)', page)[1])
    assert len(dots) == 2
    assert dots[1] < one < dots[0]
    assert page.count('class="ring"') == 1
    assert "2.00x (1.90 to 2.10)" in page
    assert "bf16 + compile" in page
    assert "no GPU" in page


def test_an_interval_reaches_from_its_low_to_its_high_end():
    page = try_page(document(ROWS[0]))
    low, high = map(float, re.search(r'class="measured kept" d="M([\d.]+) [\d.]+H([\d.]+)"', page).groups())
    dot = float(re.search(r'class="dot best" cx="([\d.]+)"', page)[1])
    assert low < dot < high


def test_a_change_says_what_it_costs_beside_time():
    slow = TrialRow(change="compile", measured=around(1.5), peak_bytes=3 << 29, warmup_s=14.0, why="so")
    for text in (try_page(document(slow)), trial_text(document(slow))):
        assert "so; memory 1.00 -> 1.50 GiB; start and warm-up 2.0 -> 14.0 s" in unescape(text)
    fast = TrialRow(change="tf32", measured=around(1.5), warmup_s=2.5, why="so")
    assert "warm-up" not in trial_text(document(fast))


def test_texts_are_escaped():
    page = try_page(document(*ROWS))
    assert "&lt;train&gt;.py" in page
    assert "<train>" not in page
    assert "a &lt; b" in page


def test_what_takes_an_edit_is_there_with_its_code():
    row = ByHand(change="cuda-graphs", what="Capture it.", predicted=around(1.5), code=["graph = 1"])
    page = try_page(document(*ROWS, by_hand=(row,)))
    assert "graph = 1" in page
    assert "1.50x" in page


@pytest.mark.parametrize("rows", [(), (ROWS[2],)])
def test_without_a_measurement_there_is_no_plot(rows):
    assert "<svg" not in try_page(document(*rows))
