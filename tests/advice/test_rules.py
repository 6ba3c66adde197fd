"""Each rule: a step in which it fires, and one nearly like it in which it must not."""

import pytest

from profkit.advice import RULES, WORTH_SAYING
from tests.advice import steps_of_arithmetic as arithmetic
from tests.advice import steps_of_devices as devices
from tests.advice import steps_of_models as models
from tests.advice import steps_of_waiting as waiting
from tests.advice.made_steps import (
    ADD,
    BF16_GEMM,
    FILL,
    advice_on,
    advice_on_ranks,
    host_bound,
    loop,
)
from tests.memory.sections import allocator, failed, memory

HAS_ROOM = memory(8 * arithmetic.GIB)
FULL = memory(78 * arithmetic.GIB)
_FREE, _RESERVED = 15 * arithmetic.GIB, 40 * arithmetic.GIB
CACHED = memory(_RESERVED, allocator=allocator(_FREE, regrowths=0))
"""Free at the end, as after any step: the allocator's cache."""
TORN = memory(_RESERVED, allocator=allocator(_FREE, regrowths=3))

CASES = {  # rule: (step in which it fires, options), (near miss, options)
    "tf32": ((arithmetic.products, {}), (arithmetic.tf32_products, {})),
    "bf16-autocast": ((arithmetic.products, {}), (arithmetic.bf16_products, {})),
    "bf16-without-scaler": ((arithmetic.scaled, {}), (arithmetic.bf16_products, {})),
    "fp32-by-accident": ((arithmetic.under_autocast, {}), (arithmetic.under_autocast_with_a_mask_of_16_bits, {})),
    "fused-loss": ((models.language_loss, {}), (models.loss_of_few_classes, {})),
    "fp8": ((arithmetic.bf16_products, {}), (arithmetic.tf32_products, {})),
    "fp64": ((arithmetic.fp64, {}), (arithmetic.products, {})),
    "alignment": ((arithmetic.misaligned, {}), (arithmetic.aligned, {})),
    "torch-compile": ((arithmetic.chain, {}), (arithmetic.compiled_chain, {})),
    "graph-breaks": ((arithmetic.broken, {}), (arithmetic.whole_graph, {})),
    "recompilation": ((arithmetic.recompiling, {}), (arithmetic.compiled_before, {})),
    "cuda-graphs": ((arithmetic.many_small, {}), (arithmetic.many_small_of_changing_number, {})),
    "python-loop": ((arithmetic.python_loop, {}), (arithmetic.short_loop, {})),
    "fused-optimizer": ((arithmetic.adam, {}), (arithmetic.fused_adam, {})),
    "set-to-none": ((arithmetic.zeroed, {}), (arithmetic.zeros_elsewhere, {})),
    "loader-workers": ((waiting.loading, {}), (waiting.loading_hidden, {})),
    "host-work": ((waiting.drawing, {}), (waiting.drawing_little, {})),
    "host-lines": ((waiting.launching, {}), (waiting.launching_in_one_function, {})),
    "hidden-sync": ((waiting.waiting, {}), (waiting.waiting_of_a_slow_host, {})),
    "stacked-reads": ((waiting.reading, {}), (waiting.reading_what_decides, {})),
    "pinned-copies": ((waiting.uploading, {}), (waiting.uploading_pinned, {})),
    "allocator-churn": ((waiting.allocating, {}), (waiting.asking, {})),
    "launch-blocking": ((waiting.blocking, {}), (waiting.not_blocking, {})),
    "anomaly-mode": ((waiting.anomalous, {}), (waiting.checked_once, {})),
    "garbage-collection": ((waiting.collecting, {}), (waiting.logging, {})),
    "small-copies": ((waiting.crumbs, {}), (waiting.two_crumbs, {})),
    "channels-last": ((models.transposing, {}), (models.laid_out, {})),
    "fused-attention": ((models.attention, {}), (models.classifying, {})),
    "keep-activations": ((models.recomputing, {}), (models.keeping, {})),
    "cudnn-benchmark": ((models.general_convolution, {}), (models.tuned_convolution, {})),
    "index-gradients": ((models.indexing, {}), (models.embedding, {})),
    "small-grids": ((models.narrow, {}), (models.wide, {})),
    "exposed-communication": ((devices.reducing, {}), (devices.reducing_little, {})),
    "pipeline-bubble": ((devices.passing_on, {}), (devices.reducing, {})),
    "ddp-buckets": ((devices.reducing_in_crumbs, {}), (devices.reducing, {})),
    "ddp-no-sync": ((devices.accumulating, {}), (devices.reducing_once, {})),
    "data-parallel": ((devices.copying_models, {"devices": 2}), (devices.two_devices, {"devices": 2})),
    "fsdp-prefetch": ((devices.sharded, {}), (devices.sharded_and_prefetched, {})),
    "ddp-unused-parameters": ((devices.searching, {}), (devices.with_unused_parameters, {})),
    "copies-beside-kernels": ((devices.downloading, {}), (devices.downloading_beside, {})),
    "collectives-beside-kernels": ((devices.reducing_layer_by_layer, {}), (devices.reducing_after_the_backward_pass, {})),
    "streams-take-turns": ((devices.taking_turns, {}), (devices.taking_turns_on_a_full_card, {})),
    "unordered-copies": ((devices.uploading_beside, {}), (devices.uploading_in_order, {})),
    "profiler-stacks": ((devices.framed, {}), (devices.framed_before_a_long_kernel, {})),
    "larger-batch": ((devices.host_bound, {"memory": HAS_ROOM}), (devices.host_bound, {"memory": FULL})),
    "checkpoint-activations": ((arithmetic.bf16_products, {"memory": FULL}), (arithmetic.bf16_products, {"memory": HAS_ROOM})),
    "fragmentation": ((arithmetic.bf16_products, {"memory": TORN}), (arithmetic.bf16_products, {"memory": CACHED})),
    "warm-up": ((arithmetic.bf16_products, {"steps": 1}), (arithmetic.bf16_products, {"steps": 4})),
}  # fmt: skip


def advised(body, memory=None, **options):
    return advice_on(loop(body, **options), memory)


def test_every_rule_has_a_case():
    assert set(CASES) == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", CASES)
def test_the_rule_fires_where_its_evidence_is(rule):
    body, options = CASES[rule][0]

    row = advised(body, **options)[rule]

    assert row.evidence
    if row.speedup:
        assert row.speedup.low <= row.speedup.likely <= row.speedup.high
        assert row.speedup.likely > 1 + WORTH_SAYING
        assert row.saving_ns > 0


@pytest.mark.parametrize("rule", CASES)
def test_the_rule_is_silent_on_its_near_miss(rule):
    body, options = CASES[rule][1]

    assert rule not in advised(body, **options)


@pytest.mark.parametrize(
    "rule",
    ["tf32", "bf16-autocast", "fp64", "alignment", "channels-last", "fused-attention", "cudnn-benchmark", "fused-loss",
     "exposed-communication", "fsdp-prefetch", "copies-beside-kernels", "collectives-beside-kernels"],
)  # fmt: skip
def test_faster_kernels_are_no_advice_where_the_step_waits_for_its_host(rule):
    body, options = CASES[rule][0]

    assert rule in advised(body, **options)
    assert rule not in advised(host_bound(body), **options)


def test_a_graph_of_a_step_with_waits_says_what_to_remove_first():
    row = advised(arithmetic.many_small_with_waits)["cuda-graphs"]

    assert ".item()" in row.precondition_unmet
    assert row.change == "cuda-graphs"
    assert row.confidence == "low"
    assert advised(arithmetic.many_small)["cuda-graphs"].precondition_unmet is None


def test_a_graph_that_adds_little_to_removing_the_waits_is_not_told():
    assert "cuda-graphs" not in advised(waiting.waiting)


def test_messages_are_no_collectives():
    rules = advised(devices.passing_on)

    assert rules.keys().isdisjoint({"exposed-communication", "ddp-buckets"})


def test_small_collectives_that_are_merged_still_send_what_they_sent():
    def reducing(step, number, us=40):
        # One is all latency; what the others take beyond it is what they send.
        for index in range(24):
            step.launch(devices.NCCL, us if index else 10, operators=("nccl:all_reduce",), stream=13)

    row = advice_on_ranks(reducing, reducing)["ddp-buckets"]

    sent, latency = 23 * 30_000, 10_000
    assert row.saving_ns == pytest.approx(23 * 40_000 + latency - sent - 3 * latency, rel=0.1)


def test_a_loop_over_a_tensor_still_works_on_all_of_it():
    def looping(step, number):
        for _ in range(64):
            step.launch(ADD, 50, host=20, operators=("aten::copy_", "aten::select"), shapes=[[1 << 24]])

    # Only the start of each kernel goes, 0.93 us.
    assert advised(looping)["python-loop"].speedup.likely == pytest.approx(1.019, abs=0.003)


def test_attention_is_recognised_without_the_names_of_operators():
    def written_out(step, number, softmax=models.SOFTMAX):
        step.launch(BF16_GEMM, 50, operators=())
        step.launch(ADD, 150, operators=())
        step.launch(softmax, 150, operators=())
        step.launch(BF16_GEMM, 50, operators=())

    def classifying(step, number):
        written_out(step, number, models.SOFTMAX.replace("9, false, false", "9, true, false"))

    assert "fused-attention" in advised(written_out)
    assert "fused-attention" not in advised(classifying)


def test_fills_in_the_phase_of_the_optimizer_zero_gradients():
    def zeroing(step, number, phase="optimizer"):
        with step.within("forward"):
            step.launch(BF16_GEMM, 400, operators=())
        with step.within(phase):
            for _ in range(4):
                step.launch(FILL, 60, operators=())

    assert "set-to-none" in advised(zeroing)
    assert "set-to-none" not in advised(lambda step, number: zeroing(step, number, "prepare"))


@pytest.mark.parametrize(
    ("rule", "body"),
    [("tf32", arithmetic.small_products), ("bf16-autocast", arithmetic.small_products), ("torch-compile", arithmetic.few_pointwise), ("cuda-graphs", arithmetic.replayed),
     ("cuda-graphs", arithmetic.many_small_of_changing_number), ("torch-compile", waiting.waiting_of_a_slow_host)],
)  # fmt: skip
def test_evidence_without_worth_is_not_said(rule, body):
    assert rule not in advised(body)


@pytest.mark.parametrize("rule", list(RULES), ids=lambda r: r.id)
def test_a_rule_says_what_to_do_how_to_check_it_and_where_to_read_on(rule):
    assert rule.action
    assert rule.code
    assert rule.verify
    assert rule.link.startswith("https://")


@pytest.mark.parametrize("expandable", [True, False])
def test_segments_that_grow_already_are_not_advised(expandable):
    torn = memory(_RESERVED, allocator=allocator(_FREE, regrowths=3, expandable=expandable))

    assert ("fragmentation" in advised(arithmetic.bf16_products, torn)) is not expandable


@pytest.mark.parametrize(
    ("kind", "cured"),
    [("full", True), ("limit", True), ("outside", False), ("fragmented", False), ("streams", False)],
)
def test_checkpointing_is_advised_where_smaller_activations_cure_the_shortage(kind, cured):
    short = memory(8 * arithmetic.GIB, oom=[failed(kind, 4 * arithmetic.GIB)])

    assert ("checkpoint-activations" in advised(arithmetic.bf16_products, short)) is cured


@pytest.mark.parametrize(("idle_us", "told"), [(100, True), (20_000, False)])
def test_small_grids_are_told_where_they_take_a_share_of_the_step(idle_us, told):
    def body(step, number):
        models.narrow(step, number)
        step.wait()
        step.idle(idle_us)

    assert ("small-grids" in advised(body)) is told
