"""What sets the pace of a step: the resource that would save most were it twice as fast, if it stays first."""

import pytest

from profkit.advice import advise
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation.answer import what_if
from profkit.simulation.pace import Pace, pace_of, savings_of
from profkit.simulation.unprofiled import UnprofiledStep, unprofiled_step
from tests.advice.made_steps import ADD, SGEMM, loop

SQUARE = [[4096, 4096], [4096, 4096]]
MS = 1_000_000


def savings(body):
    (view,), _ = timelines([loop(body)], Options())
    step = unprofiled_step(view, 0)
    return savings_of(view, step), step.likely_ns


def products(step, number):
    for _ in range(4):
        step.launch(SGEMM, 3_000, operators=("aten::mm",), shapes=SQUARE)


def launches(step, number):
    for _ in range(40):
        step.launch(ADD, 5, host=100)


def fetching(step, number):
    with step.within("data"):
        step.idle(8_000)
    step.launch(ADD, 500)


@pytest.mark.parametrize(("body", "pace"), [(products, "compute"), (launches, "host"), (fetching, "input")])
def test_the_resource_that_the_step_waits_for_sets_its_pace(body, pace):
    saved, step_ns = savings(body)
    found = pace_of(saved, step_ns)

    assert (found.pace, found.between) == (pace, ())
    first = found.limits[0]
    assert first.resource == pace
    # Twice as fast, what takes nearly all of the step saves nearly half of it.
    assert first.saving_if_twice_as_fast_ns.likely == pytest.approx(step_ns / 2, rel=0.15)
    assert {row.resource for row in found.limits} == set(saved)


def test_a_known_step_has_one_host_and_so_no_interval():
    (view,), _ = timelines([loop(launches)], Options(plain_step_ns=2 * MS))
    saved = savings_of(view, unprofiled_step(view, 0))

    assert len(set(saved["host"])) == 1


def test_one_that_saves_less_than_a_tenth_or_falls_behind_leaves_the_pace_balanced():
    step_ns = 100.0

    assert pace_of({"compute": [30, 30, 30], "host": [0, 20, 29]}, step_ns).pace == "compute"
    little = pace_of({"compute": [9, 9, 9], "host": [0, 2, 4], "memory": [5, 5, 5]}, step_ns)
    assert (little.pace, little.between) == ("balanced", ["compute", "memory"])
    # With a slow host, the host is first.
    behind = pace_of({"memory": [40, 40, 40], "compute": [30, 30, 30], "host": [0, 20, 60]}, step_ns)
    assert (behind.pace, behind.between) == ("balanced", ["memory", "host"])


def test_what_cannot_be_told_is_null_and_last_and_never_sets_the_pace():
    found = pace_of({"communication": None, "host": [20, 20, 20], "compute": [0, 0, 0]}, 100.0)

    assert [row.resource for row in found.limits] == ["host", "compute", "communication"]
    assert found.limits[-1].saving_if_twice_as_fast_ns is None
    assert found.pace == "host"
    assert pace_of(None, 100.0) == Pace()


def test_a_replay_that_is_off_by_more_than_a_tenth_says_nothing(monkeypatch):
    (view,), _ = timelines([loop(products)], Options())
    step = unprofiled_step(view, 0)
    step.__dict__["replayed_over_recorded"] = 1.11

    assert savings_of(view, step) is None


def test_nothing_has_a_price_where_the_replay_is_not_of_the_recorded_step(monkeypatch):
    (view,), _ = timelines([loop(launches)], Options())
    assert any(row.saving_ns for row in advise([view]))
    monkeypatch.setattr(UnprofiledStep, "replayed_over_recorded", 1.2)
    (view,), _ = timelines([loop(launches)], Options())

    assert savings_of(view, unprofiled_step(view, 0)) is None
    assert not any(row.saving_ns for row in advise([view]))
    asked = what_if([view], ["cuda-graphs"])
    assert not asked.changes
    assert "more than 10 % off" in asked.refused[0].reason
