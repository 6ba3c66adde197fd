"""What each change does to a step that is known to the nanosecond."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from profkit.analysis.summary import Options, timelines
from profkit.analysis.whatif import CHANGES, changes_named, find_step
from profkit.analysis.whatif.constants import LIKELY
from profkit.analysis.whatif.draft import Draft
from profkit.analysis.whatif.fusion import compile_model
from profkit.analysis.whatif.precision import misaligned, use_tf32
from profkit.analysis.whatif.predict import Step
from profkit.analysis.whatif.program import LAUNCH
from profkit.analysis.whatif.recorder import recorder_cost
from profkit.analysis.whatif.replay import RecorderCost, replay, without_recorder
from tests.analysis.advice.made_steps import ADD, BF16_GEMM, MULTI_TENSOR, SGEMM, loop
from tests.builders import BACKWARD

MS = 1_000_000
ROWS = [[8192, 4096], [8192, 4096]]
NHWC = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, true, true>(cudnn::ops::nchw2nhwc_params_t<float>)"
CONVOLUTION = (
    "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_kernel_cudnn"
)


def step_of(body, **options) -> Step:
    views, _ = timelines([loop(body, **options)], Options())
    return find_step(views[0], 0, None)


def draft_of(body, constants=LIKELY):
    step = step_of(body)
    return Draft(step.facts, step.program, constants)


def two_adds(step, number):
    step.launch(ADD, 100, shapes=ROWS)
    step.launch(ADD, 100, shapes=ROWS)


def test_the_unchanged_step_replays_to_its_own_length():
    def slow_host(step, number):
        for _ in range(20):
            step.launch(ADD, 5, host=100)

    def slow_device(step, number):
        for _ in range(20):
            step.launch(ADD, 500, host=20)

    for body in (slow_host, slow_device):
        step = step_of(body)
        assert replay(step.facts.program).step_ns == pytest.approx(step.facts.program.step_ns, rel=0.02)


def test_the_recorder_is_taken_off_the_host_and_never_put_on():
    program = step_of(two_adds).facts.program

    cheaper = without_recorder(program, RecorderCost(2_000, 2_000))

    assert (cheaper.gap_ns + cheaper.own_ns).sum() == pytest.approx(
        (program.gap_ns + program.own_ns).sum() - 2_000 * (program.ranges + program.calls).sum(), abs=10
    )
    assert without_recorder(program, RecorderCost(0, 0), plain_step_ns=10**12) is program


def recorded_by_a_host_of(us, pause_us=0):
    def body(step, number):
        step.idle(pause_us)
        for _ in range(60):
            step.launch(ADD, 5, host=us)

    step = step_of(body)
    return recorder_cost(step.facts.view.trace, step.facts.program)


def test_a_slower_host_paid_more_for_each_recorded_range():
    quick, slow = recorded_by_a_host_of(10), recorded_by_a_host_of(20)

    assert 0 < quick.range_ns < slow.range_ns
    assert slow.call_ns < slow.range_ns


def test_the_recorder_took_no_more_than_ever_seen_however_slow_the_host():
    assert recorded_by_a_host_of(1_000).range_ns <= 8_000


def test_a_pause_of_the_program_is_not_taken_for_a_slow_host():
    assert recorded_by_a_host_of(20, pause_us=50_000).range_ns == pytest.approx(
        recorded_by_a_host_of(20).range_ns, rel=0.05
    )


@pytest.mark.parametrize(("us", "cost_us"), [(8, 2.0), (400, 4.0)])
def test_without_operators_a_call_costs_a_share_of_its_time_up_to_a_bound(us, cost_us):
    def body(step, number):
        for _ in range(60):
            step.launch(ADD, 5, host=us, operators=())

    step = step_of(body)
    cost = recorder_cost(step.facts.view.trace, step.facts.program)

    assert cost.range_ns == cost.call_ns == pytest.approx(cost_us * 1_000, rel=0.05)


def test_host_time_of_a_dropped_launch_is_gone_and_fetching_stays():
    draft = draft_of(two_adds)
    before = draft.program()

    draft.drop(np.array([False, True]))
    after = draft.program()

    assert len(after.row) == 1
    assert after.tokens == before.tokens - 1
    assert (after.gap_ns + after.own_ns).sum() < (before.gap_ns + before.own_ns).sum()


def test_host_time_may_stay_where_only_the_kernel_goes():
    draft = draft_of(two_adds)
    before = draft.program()

    draft.drop(np.array([False, True]), host=1.0)
    after = draft.program()

    assert (after.gap_ns + after.own_ns).sum() == (before.gap_ns + before.own_ns).sum()


def test_the_way_into_an_operator_stays_when_only_its_first_kernels_go():
    def body(step, number):
        for _ in range(4):
            step.launch(NHWC, 20, host=90, operators=("aten::cudnn_convolution",))
            step.launch(NHWC, 20, host=7, operators=("aten::cudnn_convolution",))
            step.launch(CONVOLUTION, 20, host=7, operators=("aten::cudnn_convolution",))

    step = step_of(body)
    draft = Draft(step.facts, step.program, LIKELY)
    before = draft.program()
    CHANGES["channels-last"][0](draft)
    after = draft.program()

    assert len(after.row) == 4
    saved = int((before.gap_ns + before.own_ns).sum() - (after.gap_ns + after.own_ns).sum())
    # Two launches of each convolution; the way to its first kernel is most of the host's time.
    assert 0 < saved < 0.25 * (before.gap_ns + before.own_ns).sum()
    assert step.predict(changes_named(["channels-last"])).likely < 1.25


def test_all_that_a_checkpointed_block_runs_again_goes():
    names = ["aten::addmm", "aten::gelu"]

    def body(step, number):
        def forward(launch, *around):
            for name in names:
                launch(BF16_GEMM, 300, operators=(name, *around), shapes=ROWS)
                launch(ADD, 40, operators=("aten::copy_", "aten::linear", *around), shapes=ROWS)

        forward(step.launch)
        node = "AddmmBackward0"
        outer = f"autograd::engine::evaluate_function: {node}"
        start = step.host
        around = (node, outer)
        launch = partial(step.launch, thread=BACKWARD)
        for name in names:
            launch(BF16_GEMM, 300, operators=(name,), shapes=ROWS)
            launch(ADD, 40, operators=("aten::copy_", "aten::linear"), shapes=ROWS)
        launch(BF16_GEMM, 600, operators=("aten::mm",), shapes=ROWS)
        for inside, name in enumerate(around):
            step.builder.operator(
                start * 1000 - 20 + 10 * inside * -1, step.host * 1000 + 10, name, thread=BACKWARD
            )

    draft = draft_of(body)
    CHANGES["no-checkpointing"][0](draft)

    assert draft.alive.tolist() == [True] * 4 + [False] * 4 + [True]


@pytest.mark.parametrize(("change", "most"), [("fused-optimizer", 0.65), ("foreach-optimizer", 1.0)])
def test_an_optimizer_over_lists_takes_its_share_of_the_host_after_the_change(change, most):
    def body(step, number):
        for _ in range(40):
            step.launch(BF16_GEMM, 2, host=60, operators=("aten::mm",))
        with step.within("Optimizer.step#Adam.step"):
            for index in range(8):
                step.launch(MULTI_TENSOR, 2, host=200, operators=(f"aten::_foreach_op{index}_",))

    step = step_of(body)
    draft = Draft(step.facts, step.program, LIKELY)
    host = [float((draft.gap_ns + draft.own_ns)[-9:].sum())]
    CHANGES[change][0](draft)
    after = draft.program()
    host.append(float((after.gap_ns + after.own_ns)[40:].sum()))

    assert 0.3 * host[0] < host[1] <= most * host[0]


def test_an_operation_never_gets_slower_by_a_better_rate():
    draft = draft_of(two_adds)

    draft.retime(np.array([True, True]), np.array([50_000.0, 500_000.0]))

    assert draft.duration_ns.tolist() == [50_000.0, 100_000.0]


def test_tf32_takes_the_time_of_its_rate_or_of_its_bytes():
    def body(step, number):
        step.launch(SGEMM, 6_000, operators=("aten::mm",), shapes=[[8192, 4096], [4096, 4096]])
        step.launch(SGEMM, 6_000, operators=("aten::mm",), shapes=[[1 << 22, 16], [16, 16]])

    draft = draft_of(body)
    use_tf32(draft)
    gpu = draft.facts.gpu
    compute, memory = draft.duration_ns - LIKELY.matrix_start_ns

    assert compute == pytest.approx(
        2 * 8192 * 4096 * 4096 / (gpu.peak("tf32", "tensor") * LIKELY.matrix) * 1e9
    )
    assert memory == pytest.approx(draft.bytes[1] / (gpu.bandwidth_bytes_per_s * LIKELY.memory) * 1e9)


def test_what_is_fp32_only_after_another_change_becomes_tf32_too():
    def body(step, number):
        step.launch(
            "ampere_dgemm_64x64_nn", 9_000, operators=("aten::mm",), shapes=[[4096, 4096], [4096, 4096]]
        )

    step = step_of(body)

    single = step.predict(changes_named(["fp32"]))
    both = step.predict(changes_named(["tf32", "fp32"]))

    assert both.after_ns < 0.5 * single.after_ns


def test_a_chain_of_pointwise_kernels_keeps_the_bytes_of_its_ends():
    def body(step, number):
        for _ in range(10):
            step.launch(ADD, 120, shapes=[[8192, 4096]])

    draft = draft_of(body)
    compile_model(draft)

    assert draft.alive.sum() == 1
    once = 2 * 8192 * 4096 * 4
    assert once * 0.5 <= draft.bytes[0] <= once * 1.1


def test_chains_over_other_sizes_and_across_products_stay_apart():
    def body(step, number):
        step.launch(ADD, 120, shapes=[[8192, 4096]])
        step.launch(ADD, 60, shapes=[[4096, 4096]])
        step.launch(BF16_GEMM, 300, operators=("aten::mm",), shapes=[[8192, 4096], [4096, 4096]])
        step.launch(ADD, 120, shapes=[[8192, 4096]])

    draft = draft_of(body)
    compile_model(draft)

    assert draft.alive.all()


def test_nothing_is_fused_across_a_wait_for_a_value():
    def body(step, number):
        for _ in range(3):
            step.launch(ADD, 120, shapes=[[8192, 4096]])
            step.wait()

    draft = draft_of(body)
    compile_model(draft)

    assert draft.alive.all()


def test_the_loss_outside_of_the_model_is_not_fused():
    def body(step, number):
        step.launch(BF16_GEMM, 300, operators=("aten::mm",), shapes=[[8192, 4096], [4096, 4096]])
        for _ in range(3):
            step.launch(
                ADD, 120, operators=("aten::_log_softmax", "aten::cross_entropy_loss"), shapes=[[8192, 4096]]
            )

    draft = draft_of(body)
    compile_model(draft)

    assert draft.alive.all()


def test_a_graph_leaves_the_kernels_and_their_distances():
    def body(step, number):
        for _ in range(50):
            step.launch(ADD, 5, host=100)

    found = step_of(body).predict(changes_named(["cuda-graphs"]))

    assert found.after_ns == pytest.approx(50 * (5_000 + LIKELY.node_ns), rel=0.15)


def test_workers_that_are_too_few_hold_the_step_up():
    def body(step, number):
        with step.within("data"):
            step.idle(8_000)
        step.launch(ADD, 500)

    step = step_of(body)
    two, many = step.predict(changes_named([], 2)), step.predict(changes_named([], 32))

    assert two.after_ns == pytest.approx(4 * MS, rel=0.05)
    assert two.limit == "loader"
    assert many.after_ns < 1 * MS


def test_a_copy_from_pinned_memory_runs_beside_the_kernels():
    def body(step, number):
        step.upload(64 << 20, 8_000)
        step.wait()
        for _ in range(10):
            step.launch(ADD, 500)

    found = step_of(body).predict(changes_named(["pinned"]))

    assert found.before_ns == pytest.approx(13 * MS, rel=0.1)
    assert found.after_ns == pytest.approx(5 * MS, rel=0.1)


def test_only_kernels_for_short_rows_count_as_misaligned():
    def body(step, number):
        for align in ("align1", "align2", "align8", "align16"):
            name = f"cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_{align}"
            step.launch(name, 100, operators=("aten::mm",))

    assert misaligned(step_of(body).facts).tolist() == [True, True, False, False]


def test_attention_that_was_cast_to_fp32_is_fused_in_16_bits():
    scores, cast = (
        [[256, 2048, 2048], [256, 2048, 64]],
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)"
            "::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
        ),
    )
    softmax = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*)"

    def body(step, number, last=cast):
        step.launch(SGEMM, 2_000, operators=("aten::bmm",), shapes=scores)
        step.launch(softmax, 500, operators=("aten::_softmax",), shapes=[[256, 2048, 2048]])
        step.launch(SGEMM, 2_000, operators=("aten::bmm",), shapes=scores)
        step.launch(last, 30, operators=("aten::copy_",), shapes=[[256, 2048, 64]])

    change = changes_named(["fused-attention"])
    half = step_of(body).predict(change)
    full = step_of(lambda step, number: body(step, number, ADD)).predict(change)

    assert half.after_ns < 0.6 * full.after_ns


def test_sizes_of_lists_recorded_in_part_make_no_optimizer_fast():
    def body(step, number):
        with step.within("Optimizer.step#Adam.step"):
            for index in range(12):
                operator = "aten::_foreach_addcdiv_" if index == 0 else f"aten::_foreach_op{index}_"
                step.launch(MULTI_TENSOR, 500, operators=(operator,), shapes=[[[64]]])

    found = step_of(body).predict(changes_named(["fused-optimizer"]))

    assert found.likely == pytest.approx(1 / LIKELY.update, rel=0.1)


def test_waits_that_are_lifted_still_cost_the_host_a_little():
    def body(step, number):
        for _ in range(10):
            step.launch(ADD, 5, host=100)
            step.wait()

    step = step_of(body)
    draft = Draft(step.facts, step.program, LIKELY)
    before = draft.program()
    CHANGES["no-sync"][0](draft)
    after = draft.program()

    assert (before.kind != LAUNCH).sum() == 10
    assert (after.kind != LAUNCH).sum() == 0
    assert (after.gap_ns + after.own_ns).sum() >= before.gap_ns.sum() + 10 * LIKELY.lifted_ns


def test_low_and_high_enclose_the_likely_figure_of_every_change():
    def body(step, number):
        for _ in range(10):
            step.launch(SGEMM, 300, host=50, operators=("aten::mm",), shapes=[[4096, 1024], [1024, 1024]])
            step.launch(ADD, 30, host=50, shapes=ROWS)
            step.wait()

    step = step_of(body)
    for name in CHANGES:
        found = step.predict(changes_named([name]))
        assert found.low <= found.likely <= found.high, name


def test_a_worse_assumption_gives_a_slower_step():
    def body(step, number):
        for _ in range(4):
            step.launch(SGEMM, 3_000, operators=("aten::mm",), shapes=[[4096, 4096], [4096, 4096]])

    step = step_of(body)
    change = changes_named(["tf32"])

    worse, _ = step.changed(change, replace(LIKELY, matrix=0.5))
    better, _ = step.changed(change, LIKELY)

    assert worse.step_ns > better.step_ns


def test_a_step_too_long_to_replay_is_left_alone(monkeypatch):
    monkeypatch.setattr("profkit.analysis.whatif.program._MOST_OPERATIONS", 1)

    assert step_of(two_adds) is None
