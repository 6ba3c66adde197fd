"""Prices of changes: low, likely and high, limits, and the answer that is made of them."""

import math
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
import pytest

from profkit.model import CopyKind
from profkit.model.rows import Interval
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation import CHANGES, changes_named, find_step, unprofiled
from profkit.simulation.answer import AfterPrevious, what_if
from profkit.simulation.constants import LIKELY, SCENARIOS
from profkit.simulation.copies import pageable_copies, pin_memory
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.predict import (
    _DEVICE_ERROR,
    _GUESSED,
    _HOST_ERROR,
    _RESUMED,
    _TIMED,
    Prediction,
    Step,
    _limit,
)
from profkit.simulation.recorder_cost import recorder_cost
from profkit.simulation.registry import refusal
from profkit.simulation.replay import DEVICE_ALONE, RecorderCost, Replay, replay, without_recorder
from tests.advice.made_steps import ADD, SGEMM, loop
from tests.builders import TraceBuilder
from tests.simulation.programs import launch, program
from tests.simulation.steps import draft_of, step_of

SQUARE = [[4096, 4096], [4096, 4096]]


def products(step, number):
    for _ in range(4):
        step.launch(SGEMM, 3_000, operators=("aten::mm",), shapes=SQUARE)


def launches(step, number):
    for _ in range(40):
        step.launch(ADD, 5, host=100)
        step.wait()


@pytest.mark.parametrize(
    ("played", "least", "limit"),
    [
        (Replay(100, 89, 89), 101, "loader"),
        (Replay(100, 90, 99), 100, "device"),
        (Replay(100, 89, 90), 0, "host"),
        (Replay(100, 89, 89), 0, "waiting"),
    ],
)
def test_a_step_is_limited_by_the_loader_the_device_the_host_or_by_their_waiting(played, least, limit):
    assert _limit(played, least) == limit


def test_the_saving_is_what_the_change_takes_off():
    assert Prediction(100, 60, 1.0, 1.5, 2.0, "host").saving_ns == 40


def ratio(step, changes, constants):
    """The speed-up under one assumption, replayed by hand."""
    cost = recorder_cost(step.facts.view.trace, step.facts.program)
    plain = without_recorder(step.facts.program, cost, host=constants.host)
    edited = EditedStep(step.facts, plain, constants)
    for change in changes:
        change(edited)
    return replay(plain).step_ns / max(replay(edited.program()).step_ns, edited.least_ns)


@pytest.mark.parametrize(
    ("body", "name", "unsure"),
    [
        (products, "tf32", _DEVICE_ERROR),
        (launches, "cuda-graphs", _HOST_ERROR),
        (launches, "no-sync", _HOST_ERROR),
    ],
)
def test_low_and_high_are_as_far_off_as_all_assumptions_and_the_replay_together(body, name, unsure):
    step, changes = step_of(body), changes_named([name])
    found = step.predict(changes)
    ratios = [math.log(ratio(step, changes, each)) for each in (LIKELY, *SCENARIOS)]
    likely = ratios[0]
    # Errors that have nothing to do with each other add up as squares; those to the other side do not count.
    worse = sum(max(likely - each, 0) ** 2 for each in ratios) + math.log(unsure) ** 2
    better = sum(max(each - likely, 0) ** 2 for each in ratios) + math.log(unsure) ** 2
    if name == "no-sync":
        better += math.log(_RESUMED) ** 2

    assert found.likely == pytest.approx(math.exp(likely))
    assert found.low == pytest.approx(math.exp(likely - worse**0.5))
    assert found.high == pytest.approx(math.exp(likely + better**0.5))
    assert found.before_ns == step.plain_ns == replay(step.program).step_ns
    assert found.after_ns == pytest.approx(found.before_ns / found.likely)


def test_what_a_compiler_gains_is_less_sure_the_more_it_is():
    def chain(step, number, kernels):
        for _ in range(kernels):
            step.launch(ADD, 900, shapes=SQUARE)

    for kernels in (3, 9):
        found = step_of(partial(chain, kernels=kernels)).predict(changes_named(["compile"]))
        off = _GUESSED * math.log(found.likely)

        assert found.likely > 1.5
        assert math.log(found.likely / found.low) >= off
        assert math.log(found.high / found.likely) >= off


def test_a_busy_host_makes_a_step_that_the_device_limits_less_sure():
    def body(step, number):
        for _ in range(10):
            step.launch(ADD, 95, host=105, shapes=SQUARE)

    step = step_of(body)
    found = step.predict(changes_named(["channels-last"]))

    assert step.unchanged.device_busy_ns >= 0.9 * step.unchanged.step_ns
    assert found.limit == "device"
    assert step.unchanged.host_ns > 0.95 * step.unchanged.step_ns
    assert (found.low, found.high) == pytest.approx((1 / _HOST_ERROR, _HOST_ERROR), rel=0.02)


def test_no_change_is_no_speed_up_but_for_the_noise_of_timing():
    found = step_of(products).predict([])

    assert (found.low, found.likely, found.high) == (1 / _TIMED, 1.0, _TIMED)
    assert found.before_ns == found.after_ns
    assert found.limit == "device"


def test_a_bound_from_outside_is_a_bound_of_the_step():
    def fetching(step, number):
        with step.within("data"):
            step.idle(8_000)
        step.launch(ADD, 500)

    step = step_of(fetching)
    found = step.predict(changes_named([], 2))
    assert (found.limit, found.after_ns) == ("loader", pytest.approx(4_000_000, rel=0.02))
    # How fast other processes load is guessed.
    assert math.log(found.likely / found.low) >= _GUESSED * math.log(found.likely)


def test_a_change_is_priced_only_where_it_is_worth_it():
    step, change = step_of(products), changes_named(["tf32"])
    saved = 1 - 1 / step.predict(change).likely

    assert step.predict_where_worth(change, saved * 1.001) is None
    found = step.predict_where_worth(change, saved * 0.999)
    assert found == step.predict(change)
    assert step.predict_where_worth(changes_named(["no-sync"]), 0.0) is not None


def test_changes_are_made_in_the_order_of_the_table_and_loading_first():
    names = ["cuda-graphs", "tf32", "fp32"]

    assert changes_named(names) == [CHANGES[n][0] for n in ("fp32", "tf32", "cuda-graphs")]
    assert changes_named(names, 4)[1:] == changes_named(names)
    assert len(changes_named([], 0)) == 1
    assert changes_named([]) == []


def views_of(*bodies):
    return timelines([loop(body) for body in bodies], Options())[0]


def test_the_answer_asks_for_each_change_alone_and_for_all_together():
    found = what_if(views_of(launches), ["no-sync", "cuda-graphs"])

    assert [row.name for row in found.changes] == ["no-sync", "cuda-graphs", "no-sync + cuda-graphs"]
    assert len(what_if(views_of(launches), ["no-sync"]).changes) == 1
    step = find_step(views_of(launches)[0], 0)
    price = step.predict(changes_named(["no-sync"]))
    assert msgspec.structs.asdict(found.changes[0]) == {
        "name": "no-sync",
        "after_ns": round(price.after_ns),
        "saving_ns": round(price.saving_ns),
        "speedup": Interval(low=price.low, likely=price.likely, high=price.high),
        "limit": price.limit,
        "after_previous": AfterPrevious(
            saving_ns=round(price.saving_ns), speedup=price.before_ns / round(price.after_ns)
        ),
    }
    alone, both = found.changes[1:]
    assert alone.after_previous.saving_ns == found.changes[0].after_ns - both.after_ns
    assert both.after_previous is None
    assert found.recorded_ns == step.facts.program.step_ns
    assert found.before_ns == round(step.plain_ns)
    assert found.limit == step.predict([]).limit
    assert found.changes[2].after_ns == round(
        step.predict(changes_named(["no-sync", "cuda-graphs"])).after_ns
    )


def test_without_a_name_all_that_saves_one_percent_is_priced_most_saving_first():
    def body(step, number):
        with step.within("data"):
            step.idle(9_000)
        products(step, number)
        step.wait()

    (view,) = views_of(body)
    found = what_if([view], [])
    step = find_step(view, 0)
    savings = [row.saving_ns for row in found.changes]
    worth = {n for n in CHANGES if step.predict(changes_named([n])).saving_ns >= 0.01 * step.plain_ns}

    assert savings == sorted(savings, reverse=True)
    assert {row.name for row in found.changes} == worth | {"loader-workers"}
    assert {"tf32"} <= worth < set(CHANGES)
    workers = next(row for row in found.changes if row.name == "loader-workers")
    assert workers.after_ns == round(step.predict(changes_named([], 8)).after_ns)


def test_a_change_that_finds_nothing_of_its_kind_leaves_the_step_as_it_is():
    (view,) = views_of(products)
    step = find_step(view, 0)
    without = [name for name in CHANGES if refusal(step, name)]
    elsewhere = {"cuda-graphs", "compile", "no-sync"}

    for name in set(without) - elsewhere:
        assert step.predict(changes_named([name])).after_ns == step.predict([]).after_ns, name


def test_workers_are_asked_for_by_their_number():
    def body(step, number):
        with step.within("data"):
            step.idle(8_000)
        step.launch(ADD, 500).wait()
        step.launch(ADD, 500)

    views = views_of(body)
    both = what_if(views, ["no-sync"], loader_workers=2)

    assert [row.name for row in both.changes] == [
        "no-sync",
        "loader-workers",
        "no-sync + loader-workers",
    ]
    assert both.changes[1].limit == both.changes[2].limit == "loader"
    assert both.changes[0].after_ns > both.changes[1].after_ns


def test_the_plain_time_is_the_time_before():
    (view,) = views_of(launches)
    recorded = what_if([view], ["no-sync"]).recorded_ns

    known = what_if([replace(view, plain_step_ns=recorded // 2)], [])
    assert (known.before_ns, known.source) == (recorded // 2, "measured")


def test_the_first_device_with_a_step_answers_and_without_one_nobody():
    empty, _ = timelines([TraceBuilder(devices=2).kernel(0, 5).trace()], Options())

    assert what_if(empty, ["tf32"]) is None
    assert what_if([], []) is None
    assert what_if([*empty, *views_of(products)], ["tf32"]).changes[0].name == "tf32"


def uploads(step, number):
    step.upload(64 << 20, 8_000)
    step.upload(64 * 1024, 30)
    step.upload(64 * 1024 + 1, 30, pageable=0)
    step.upload(64 * 1024 + 1, 30)
    step.wait()
    step.launch(ADD, 500)


def test_large_uploads_from_memory_that_the_driver_stages_become_asynchronous():
    edited = draft_of(uploads)
    own, waits = edited.own_ns.copy(), edited.waits.copy()
    assert pageable_copies(edited.facts).tolist() == [True, False, False, True, False]

    edited.drop(np.array([False, False, False, True, False]))
    pin_memory(edited)
    assert edited.duration_ns[0] == pytest.approx((64 << 20) / 50)
    assert edited.stream.tolist() == [1, 0, 0, 0, 0]
    assert edited.early_ns[0] == 0
    assert edited.early_ns[1] > 0
    # Its call is a launch like others now; the waits of other copies stay.
    assert edited.own_ns[0] == min(own[0], edited.usual_launch_ns)
    assert edited.waits.tolist() == waits.tolist()


@pytest.mark.parametrize(
    ("name", "pageable", "staged"),
    [
        ("Memcpy", 1, True),
        ("Memcpy", 0, False),
        ("Memcpy HtoD (Pageable -> Device)", -1, True),
        ("Memcpy", -1, False),
    ],
)
def test_memory_is_staged_by_its_kind_or_by_the_name_of_the_copy(name, pageable, staged):
    def body(step, number):
        step.launch(name, 50, operators=(), kind=1, copy_kind=CopyKind.HTOD, bytes=1 << 20, pageable=pageable)

    assert pageable_copies(step_of(body).facts).tolist() == [staged]


def test_the_wait_of_a_blocking_copy_goes_with_it():
    edited = draft_of(lambda step, number: step.upload(64 << 20, 8_000).wait().launch(ADD, 500))
    edited.waits[1] = True
    edited.own_ns[:2] = 1e9
    last = edited.waits[2:].copy()
    pin_memory(edited)

    assert not edited.waits[1]
    assert edited.own_ns[:2].tolist() == [edited.usual_launch_ns, 0]
    assert edited.waits[2:].tolist() == last.tolist()


def test_without_such_copies_nothing_changes():
    edited = draft_of(products)
    pin_memory(edited)

    assert edited.stream.tolist() == [0] * 4


def cost_of(*tokens):
    """The cost of a call in a program of these tokens, recorded without operators."""
    trace = step_of(lambda step, number: step.launch(ADD, 5, operators=())).facts.view.trace
    return recorder_cost(trace, program(*tokens, launch()))


def test_fetching_and_allocating_are_not_the_recorders():
    tokens = [launch((1,), gap=107_000, own=1_000, fetch=60_000, allocate=40_000, calls=1) for _ in range(10)]

    assert cost_of(*tokens).call_ns == pytest.approx(2_000)


def test_the_slowest_twentieth_of_the_events_does_not_count():
    quick = [launch((1,), gap=8_000, calls=1) for _ in range(38)]
    slow = [launch((1,), gap=5_000_000, calls=1) for _ in range(2)]

    assert cost_of(*quick, *slow).call_ns == pytest.approx(2_000)
    assert cost_of(*quick, *slow, *slow).call_ns > 2_100


def test_too_few_events_tell_nothing():
    assert cost_of(*[launch((1,), gap=8_000, calls=1) for _ in range(9)]).call_ns == pytest.approx(6_700 / 4)
    assert cost_of(*[launch((1,), gap=8_000, calls=1) for _ in range(10)]).call_ns == pytest.approx(2_000)


def test_without_operators_a_call_costs_a_quarter_of_its_time_up_to_a_bound():
    tokens = [launch((1,), gap=7_000, own=1_000, calls=1) for _ in range(10)]

    assert cost_of(*tokens).call_ns == pytest.approx(2_000)
    slow = cost_of(*[launch((1,), gap=70_000, calls=1) for _ in range(10)])
    assert 2_000 < slow.call_ns == slow.range_ns <= 8_000


def test_a_slower_host_takes_longer_unless_the_plain_time_tells():
    step = step_of(launches)
    cost = recorder_cost(step.facts.view.trace, step.facts.program)
    usual, slow = (without_recorder(step.facts.program, cost, host=each) for each in (1.0, 1.5))

    assert slow.gap_ns.sum() == pytest.approx(1.5 * usual.gap_ns.sum(), rel=0.01)
    plain = round(0.7 * step.plain_ns)
    for each in (0.5, 1.0, 1.5):
        known = replay(without_recorder(step.facts.program, cost, plain, each)).step_ns
        assert DEVICE_ALONE * plain * 0.999 <= known <= plain / DEVICE_ALONE * 1.001


@pytest.mark.parametrize(("fetched_us", "worth"), [(270, True), (220, False)])
def test_what_saves_one_percent_is_worth_saying(fetched_us, worth):
    def body(step, number):
        with step.within("data"):
            step.idle(fetched_us)
        for _ in range(40):
            step.launch(ADD, 5, host=100)

    # Without a recorder's cost; taking a finished batch takes 200 us.
    recorded = 4_000_000 + fetched_us * 1_000
    found = what_if([replace(view, plain_step_ns=recorded) for view in views_of(body)], [])

    assert ("loader-workers" in [row.name for row in found.changes]) is worth


def test_where_the_device_alone_takes_the_plain_time_the_host_takes_no_longer():
    step = step_of(products)
    alone = step.program.duration_ns.sum()
    slow = without_recorder(step.facts.program, RecorderCost(0, 0), round(alone * 1.01))

    assert replay(slow).step_ns <= 1.03 * alone


def test_a_replay_that_is_far_from_the_recording_has_no_price(monkeypatch):
    assert find_step(views_of(products)[0], 0) is not None
    for factor in (2.1, 0.4):
        monkeypatch.setattr(
            unprofiled, "replay", lambda p, f=factor: replace(replay(p), step_ns=p.step_ns * f)
        )
        assert find_step(views_of(products)[0], 0) is None


@pytest.mark.parametrize("longer", [1.3, 1.02])
def test_no_price_is_of_a_longer_step_than_the_recorded_one(longer):
    step = step_of(products)
    facts = step.facts
    length = replay(facts.program).step_ns / longer
    short_program = replace(facts.program, step_ns=round(length))
    short = Step(replace(facts, program=short_program), replace(step.unprofiled, recorded=short_program))
    found, same = (each.predict(changes_named(["tf32"])) for each in (short, step))

    assert found.likely == pytest.approx(same.likely)
    assert found.before_ns == pytest.approx(same.before_ns / longer)
    assert found.after_ns == pytest.approx(same.after_ns / longer)


@pytest.mark.parametrize(("blocked_us", "bounded"), [(1, True), (2_000, False)])
def test_lifted_waits_save_no_more_than_they_blocked_the_host(blocked_us, bounded):
    def pausing(step, number):
        for _ in range(4):
            step.launch(ADD, 300, host=400)
            step.wait()

    step = step_of(pausing)
    view = step.facts.view
    waits = replace(view.waits, end_ns=view.waits.start_ns + blocked_us * 1_000)
    step = replace(step, facts=replace(step.facts, view=replace(view, waits=waits)))
    changes = changes_named(["no-sync"])
    played, _ = step.changed(changes)
    unbounded, _ = step._replayed(changes, LIKELY)

    assert unbounded.host_ns >= 0.9 * unbounded.step_ns
    saved, most = step.unchanged.step_ns - played.step_ns, step.blocked_ns(played.host_ns)
    assert saved <= most + 1
    assert (played.step_ns > unbounded.step_ns) is bounded
    if bounded:
        assert saved == pytest.approx(most)
