"""What each change needs of a step, and what is said where that is missing."""

import pytest

from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation import CHANGES, find_step
from profkit.simulation.exchanged import Exchanged
from profkit.simulation.preconditions import eager_kernels
from profkit.simulation.registry import LOADER_WORKERS, refusal
from tests.advice import steps_of_arithmetic as arithmetic
from tests.advice import steps_of_devices as devices
from tests.advice import steps_of_models as models
from tests.advice import steps_of_waiting as waiting
from tests.advice.made_steps import ADD, GELU, GEMM_SHAPES, SGEMM, loop
from tests.builders import TraceBuilder
from tests.simulation.steps import step_of

NEEDS = {  # change: (a step that can have it, one that cannot, a word of the reason)
    "fp32": (arithmetic.fp64, arithmetic.products, "fp64"),
    "no-checkpointing": (models.recomputing, models.keeping, "recomputed"),
    "fused-attention": (models.attention, models.classifying, "attention"),
    "channels-last": (models.transposing, arithmetic.products, "no convolutions"),
    "aligned": (arithmetic.misaligned, arithmetic.aligned, "misaligned"),
    "tf32": (arithmetic.products, arithmetic.tf32_products, "already TF32"),
    "bf16": (arithmetic.products, arithmetic.bf16_products, "already bf16"),
    "fused-optimizer": (arithmetic.adam, arithmetic.fused_adam, "already fused"),
    "set-to-none": (arithmetic.zeroed, arithmetic.zeros_elsewhere, "zeroed"),
    "no-sync": (waiting.waiting, arithmetic.products, "waits"),
    "compile": (arithmetic.chain, arithmetic.compiled_chain, "already compiled"),
    "pinned": (waiting.uploading, waiting.uploading_pinned, "pageable"),
    "no-allocation": (waiting.allocating, waiting.asking, "driver"),
    "cuda-graphs": (arithmetic.many_small, arithmetic.replayed, "already a CUDA graph"),
    "no-scaler": (arithmetic.scaled, arithmetic.bf16_products, "no GradScaler"),
    "vectorised-loops": (arithmetic.python_loop, arithmetic.short_loop, "no Python loop"),
    "no-anomaly-mode": (waiting.anomalous, waiting.checked_once, "off"),
    "stacked-reads": (waiting.reading, waiting.checked_once, "one by one"),
    "no-graph-breaks": (arithmetic.broken, arithmetic.whole_graph, "no breaks"),
    "no-recompilation": (arithmetic.recompiling, arithmetic.compiled_before, "compiled again"),
    "packed-copies": (waiting.crumbs, waiting.two_crumbs, "few small"),
    "no-launch-blocking": (waiting.blocking, waiting.not_blocking, "do not wait"),
    "garbage-collection": (waiting.collecting, waiting.logging, "no collection"),
    "no-unused-search": (devices.searching, devices.with_unused_parameters, "needless search"),
    "last-reduction": (devices.accumulating, devices.reducing_once, "several micro-steps"),
    "overlapped-copies": (devices.downloading, devices.downloading_beside, "compute stream"),
    "overlapped-collectives": (devices.reducing_layer_by_layer, arithmetic.products, "compute stream"),
    LOADER_WORKERS: (waiting.loading, arithmetic.products, "fetches no data"),
}

OF_RANKS = {
    "bf16-collectives": (devices.reducing, arithmetic.products, "no collectives"),
    "larger-buckets": (devices.reducing_in_crumbs, devices.sharded, "no small collectives"),
    "prefetched-parameters": (devices.sharded, devices.reducing, "no sharded parameters"),
}


@pytest.mark.parametrize("name", ["compile", "cuda-graphs"])
def test_a_step_that_is_a_graph_is_neither_compiled_nor_captured(name):
    assert refusal(step_of(arithmetic.replayed), name) == "already a CUDA graph"


@pytest.mark.parametrize(("fp32_us", "word"), [(9_000, None), (90, "already bf16")])
def test_a_step_that_mostly_multiplies_in_16_bits_is_in_bf16_already(fp32_us, word):
    def body(step, number):
        arithmetic.bf16_products(step, number)
        step.launch(SGEMM, fp32_us, operators=("aten::addmm",), shapes=GEMM_SHAPES)

    assert refusal(step_of(body), "bf16") == word


def test_every_change_has_a_case():
    assert {*NEEDS, *OF_RANKS, "foreach-optimizer"} == {*CHANGES, LOADER_WORKERS}


@pytest.mark.parametrize("name", OF_RANKS)
def test_collectives_have_a_price_where_several_ranks_tell_waiting_from_transfer(name):
    body, cannot, word = OF_RANKS[name]
    ranks = [timelines([loop(body)], Options())[0][0] for _ in range(2)]

    assert refusal(find_step(ranks[0], 0, Exchanged.of(ranks)), name) is None
    assert "one rank" in refusal(step_of(body), name)
    assert word in refusal(step_of(cannot), name)


@pytest.mark.parametrize("name", NEEDS)
def test_a_change_is_refused_where_its_need_is_not_met(name):
    can, cannot, word = NEEDS[name]

    assert refusal(step_of(can), name) is None
    assert word in refusal(step_of(cannot), name)


@pytest.mark.parametrize(
    ("body", "word"),
    [(devices.reducing, "collectives"), (arithmetic.many_small_of_changing_number, "different numbers"), (waiting.allocating, "memory")],
)  # fmt: skip
def test_a_graph_needs_more_than_launches(body, word):
    assert word in refusal(step_of(body), "cuda-graphs")


def test_a_graph_waits_for_nothing_unless_the_waits_are_removed_with_it():
    step = step_of(arithmetic.many_small_with_waits)
    reason = refusal(step, "cuda-graphs")

    assert reason.startswith("waits inside: remove the waits first, then ")
    assert float(reason.split()[-1][:-1]) > 2
    assert refusal(step, "cuda-graphs", ["no-sync"]) is None


def test_tf32_after_fp64_needs_the_products_of_the_change_before():
    assert refusal(step_of(arithmetic.fp64), "tf32") is not None
    assert refusal(step_of(arithmetic.fp64), "tf32", ["fp32"]) is None


def test_what_ran_outside_the_steps_is_in_none_of_them():
    made = TraceBuilder()
    for number in range(40):
        made.kernel(
            number * 20_000,
            number * 20_000 + 9_000,
            launch=(number * 20_000 - 9_000, number * 20_000 - 5_000),
        )
    made.range(190_000, 389_000, "step").range(390_000, 589_000, "step").range(590_000, 789_000, "step")
    (view,), _ = timelines([made.trace()], Options())
    step = find_step(view, 0)

    assert sum(view.step_of_operation < 0) == 10
    assert refusal(step, "cuda-graphs", []) is None


@pytest.mark.parametrize(("names", "fuses"), [([ADD] * 10, False), ([ADD] * 9 + [GELU], True)])
def test_a_kernel_that_repeats_without_steps_is_a_measurement_and_no_chain(names, fuses):
    builder = TraceBuilder()
    for at, name in enumerate(names):
        builder.kernel(1000 * at + 900, 1000 * at + 1900, launch=(100 * at, 100 * at + 50), name=name)
    (view,), _ = timelines([builder.trace()], Options())
    assert not view.steps.count
    assert (eager_kernels(find_step(view, 0), ()) is None) == fuses
