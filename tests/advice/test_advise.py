"""The advice as a whole: what is left out, what is said of rows that save the same time, what a row holds."""

from functools import partial

import pytest

from profkit.advice import advise
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.roofline.precision_map import precision_rows
from profkit.simulation import changes_named, find_step
from profkit.simulation.answer import what_if
from profkit.units import percent_text
from tests.advice import steps_of_arithmetic as arithmetic
from tests.advice.made_steps import ADD, BF16_GEMM, FUSED_ADAM, GEMM_SHAPES, SGEMM, advice_on, loop
from tests.advice.steps_of_models import CONV, NHWC

WINOGRAD_DATA = "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)"


def small_steps(step, number):
    for _ in range(60):
        step.launch(ADD, 4, host=60, shapes=[[64, 64]])


def small_steps_that_fetch(step, number):
    with step.within("data"):
        step.idle(4_000)
    small_steps(step, number)


def test_what_the_host_spends_on_fetching_is_not_told_as_launching():
    why = advice_on(loop(small_steps_that_fetch))["cuda-graphs"].why

    launching, fetching = why.split(", besides ")
    assert fetching.startswith("4.00 ms of fetching data, to launch 60 operations")
    assert 1.5 < float(launching.removeprefix("The host needs ").removesuffix(" ms")) < 3.8
    assert "besides" not in advice_on(loop(small_steps))["cuda-graphs"].why


def test_advice_that_takes_the_same_time_away_as_the_best_says_so():
    found = advice_on(loop(small_steps))

    # One line that saves nearly as much comes before another structure.
    assert next(iter(found)) == "torch-compile"
    assert " It overlaps with “Compile the model”: " in found["cuda-graphs"].why
    assert "overlaps with" not in found["torch-compile"].why


def test_advice_that_takes_other_time_away_than_the_best_does_not_say_so():
    found = advice_on(loop(small_steps_that_fetch))

    assert next(iter(found)) == "loader-workers"
    assert "overlaps with" not in found["cuda-graphs"].why


def test_a_saving_within_the_noise_of_the_host_is_not_advised():
    def near(step, number, host=50):
        for _ in range(100):
            step.launch(BF16_GEMM, 37, host=host, operators=("aten::mm",), shapes=[[4096], [512, 512]])

    def price(body):
        views, _ = timelines([loop(body)], Options(plain_step_ns=round(3.8e6)))
        return find_step(views[0], 0).predict(changes_named(["cuda-graphs"]))

    assert price(near).low < 0.9
    assert price(near).likely < 1.03
    assert "cuda-graphs" not in advice_on(loop(near), plain_step_ns=round(3.8e6))
    # Half as much work for the device is clear.
    assert "cuda-graphs" in advice_on(loop(small_steps))


def test_what_may_bring_nothing_is_not_said_with_high_confidence():
    def transposing(step, number, host):
        for _ in range(20):
            for kernel in (NHWC, CONV):
                step.launch(kernel, 30, host=host, operators=("aten::cudnn_convolution",))

    sure = advice_on(loop(partial(transposing, host=5)))["channels-last"]
    unsure = advice_on(loop(partial(transposing, host=40)))["channels-last"]

    assert sure.speedup.low > 1.0
    assert sure.confidence == "high"
    assert unsure.speedup.low < 1.0
    assert unsure.confidence in ("medium", "low")


def test_a_row_without_a_price_has_no_times():
    def products(step, number):
        step.launch(BF16_GEMM, 4_000, operators=("aten::addmm",), shapes=GEMM_SHAPES)
        with step.within("Optimizer.step#Adam.step"):
            step.launch(FUSED_ADAM, 100, operators=("aten::_fused_adamw_",))

    unpriced, priced = advice_on(loop(products))["fp8"], advice_on(loop(small_steps))["cuda-graphs"]

    assert unpriced.before_ns is unpriced.after_ns is unpriced.limit is unpriced.speedup is None
    assert priced.saving_ns == pytest.approx(priced.before_ns - priced.after_ns, abs=1)


def test_advice_on_a_job_has_the_price_that_what_if_gives():
    def most(step, number):
        for _ in range(4):
            step.launch(ADD, 120, shapes=[[8192, 4096], [8192, 4096]])
        for _ in range(4):
            step.launch(BF16_GEMM, 900, operators=("aten::mm",), shapes=GEMM_SHAPES)

    views = [timelines([loop(body)], Options())[0][0] for body in (arithmetic.chain, most)]
    advised = next(row for row in advise(views) if row.change == "compile")
    asked = what_if(views, ["compile"]).changes[0]

    assert advised.speedup == asked.speedup
    assert advised.speedup.likely < 2


def test_the_share_of_products_is_that_of_the_precision_map():
    def convolving(step, number):
        for kernel, us in ((SGEMM, 3_000), (WINOGRAD_DATA, 2_000), (ADD, 5_000 * number)):
            step.launch(kernel, us, operators=("aten::convolution",))

    trace = loop(convolving)
    (view,), _ = timelines([trace], Options())
    rows = precision_rows(view)
    share = sum(row.ns for row in rows if row.matrix) / sum(row.ns for row in rows)
    found = advice_on(trace)
    said = [found[rule].why for rule in ("tf32", "bf16-autocast")]

    assert 0.2 < share < 0.4
    assert all(f" {percent_text(share)} of the kernels' time" in each for each in said)
