"""What each change does to a step that is known to the nanosecond."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from profkit.simulation import CHANGES, changes_named, optimizers
from profkit.simulation.constants import LIKELY
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.fusion import compile_model
from profkit.simulation.precision import misaligned, use_tf32
from profkit.simulation.replay import replay
from profkit.simulation.step_program import LAUNCH
from tests.advice.made_steps import ADD, BF16_GEMM, MULTI_TENSOR, SGEMM
from tests.builders import BACKWARD
from tests.simulation.steps import MS, ROWS, draft_of, step_of, two_adds


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


def test_host_time_of_a_dropped_launch_is_gone_and_fetching_stays():
    edited = draft_of(two_adds)
    before = edited.program()

    edited.drop(np.array([False, True]))
    after = edited.program()

    assert len(after.row) == 1
    assert after.tokens == before.tokens - 1
    assert (after.gap_ns + after.own_ns).sum() < (before.gap_ns + before.own_ns).sum()


def test_host_time_may_stay_where_only_the_kernel_goes():
    edited = draft_of(two_adds)
    before = edited.program()

    edited.drop(np.array([False, True]), host=1.0)
    after = edited.program()

    assert (after.gap_ns + after.own_ns).sum() == (before.gap_ns + before.own_ns).sum()


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

    edited = draft_of(body)
    CHANGES["no-checkpointing"][0](edited)

    assert edited.alive.tolist() == [True] * 4 + [False] * 4 + [True]


def test_an_operation_never_gets_slower_by_a_better_rate():
    edited = draft_of(two_adds)

    edited.retime(np.array([True, True]), np.array([50_000.0, 500_000.0]))

    assert edited.duration_ns.tolist() == [50_000.0, 100_000.0]


def test_tf32_takes_the_time_of_its_rate_or_of_its_bytes():
    def body(step, number):
        step.launch(SGEMM, 6_000, operators=("aten::mm",), shapes=[[8192, 4096], [4096, 4096]])
        step.launch(SGEMM, 6_000, operators=("aten::mm",), shapes=[[1 << 22, 16], [16, 16]])

    edited = draft_of(body)
    use_tf32(edited)
    gpu = edited.facts.gpu
    compute, memory = edited.duration_ns - LIKELY.start_ns

    assert compute == pytest.approx(
        2 * 8192 * 4096 * 4096 / (gpu.peak("tf32", "tensor") * LIKELY.matrix) * 1e9
    )
    assert memory == pytest.approx(edited.bytes[1] / (gpu.bandwidth_bytes_per_s * LIKELY.memory) * 1e9)


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

    edited = draft_of(body)
    compile_model(edited)

    assert edited.alive.sum() == 1
    once = 2 * 8192 * 4096 * 4
    assert once * 0.5 <= edited.bytes[0] <= once * 1.1


def test_chains_over_other_sizes_and_across_products_stay_apart():
    def body(step, number):
        step.launch(ADD, 120, shapes=[[8192, 4096]])
        step.launch(ADD, 60, shapes=[[4096, 4096]])
        step.launch(BF16_GEMM, 300, operators=("aten::mm",), shapes=[[8192, 4096], [4096, 4096]])
        step.launch(ADD, 120, shapes=[[8192, 4096]])

    edited = draft_of(body)
    compile_model(edited)

    assert edited.alive.all()


def test_nothing_is_fused_across_a_wait_for_a_value():
    def body(step, number):
        for _ in range(3):
            step.launch(ADD, 120, shapes=[[8192, 4096]])
            step.wait()

    edited = draft_of(body)
    compile_model(edited)

    assert edited.alive.all()


def test_the_loss_outside_of_the_model_is_not_fused():
    def body(step, number):
        step.launch(BF16_GEMM, 300, operators=("aten::mm",), shapes=[[8192, 4096], [4096, 4096]])
        for _ in range(3):
            step.launch(
                ADD, 120, operators=("aten::_log_softmax", "aten::cross_entropy_loss"), shapes=[[8192, 4096]]
            )

    edited = draft_of(body)
    compile_model(edited)

    assert edited.alive.all()


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

    # Each takes as long as the step's own process did.
    assert two.after_ns == pytest.approx(4 * MS, rel=0.03)
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

    assert found.likely == pytest.approx(1 / optimizers._FUSED_TRAFFIC, rel=0.1)


def test_waits_that_are_lifted_leave_the_launches_of_the_host():
    def body(step, number):
        for _ in range(10):
            step.launch(ADD, 5, host=100)
            step.wait()

    step = step_of(body)
    edited = EditedStep(step.facts, step.program, LIKELY)
    before = edited.program()
    CHANGES["no-sync"].change(edited)
    after = edited.program()

    assert (before.kind != LAUNCH).sum() == 10
    assert (after.kind != LAUNCH).sum() == 0
    assert (after.gap_ns + after.own_ns).sum() >= before.gap_ns.sum()


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
    monkeypatch.setattr("profkit.simulation.step_program._MOST_OPERATIONS", 1)

    assert step_of(two_adds) is None


def test_fused_attention_still_takes_the_host_what_its_call_takes():
    scores = [[256, 64, 64], [256, 64, 64]]
    softmax = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*)"

    def body(step, number, between=3):
        step.launch(BF16_GEMM, 5, host=50, operators=("aten::bmm",), shapes=scores)
        for _ in range(between):
            step.launch(ADD, 5, host=50, shapes=scores[:1])
        step.launch(softmax, 5, host=50, operators=("aten::_softmax",), shapes=scores[:1])
        step.launch(BF16_GEMM, 5, host=50, operators=("aten::bmm",), shapes=scores)
        for _ in range(20):
            step.launch(ADD, 5, host=50, operators=("aten::sum",))

    change = changes_named(["fused-attention"])
    few, many = step_of(body), step_of(partial(body, between=15))

    # Six launches give way to a call that takes as long as four; eighteen to the same call.
    assert few.predict(change).likely == pytest.approx(26 / 24, abs=0.02)
    assert many.predict(change).likely == pytest.approx(38 / 24, rel=0.1)
    assert many.plain_ns / many.changed(change)[0].step_ns == pytest.approx(38 / 24, rel=0.05)


@pytest.mark.parametrize("grids", [(512, 512), (512, 64)])
def test_pointwise_kernels_are_a_chain_though_no_sizes_are_recorded(grids):
    def body(step, number):
        for index in range(10):
            grid = {"grid_x": grids[index % 2], "grid_y": 1, "grid_z": 1, "block_x": 128}
            step.launch(ADD, 100, operators=(), **grid)

    edited = draft_of(body)
    compile_model(edited)

    # Ten times two passes over the data become two.
    assert edited.alive.sum() == 1
    assert edited.duration_ns[0] == 100_000
