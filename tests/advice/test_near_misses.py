"""Steps that look like a rule's evidence and are something else: each was seen to mislead a rule."""

import json
from dataclasses import replace
from functools import partial

import pytest

from profkit.advice.order import order_of
from profkit.model import CopyKind, RangeKind
from profkit.model.report_verdict import AdviceRow
from tests.advice import steps_of_arithmetic as arithmetic
from tests.advice import steps_of_devices as devices
from tests.advice import steps_of_models as models
from tests.advice import steps_of_waiting as waiting
from tests.advice.made_steps import (
    ADD,
    BF16_GEMM,
    GELU,
    GEMM_SHAPES,
    SGEMM,
    LoopBuilder,
    MadeStep,
    advice_on,
    advice_on_ranks,
    loop,
)

TOP_K = "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, int, float>(float const*, bool const*, float*, int)"
PLANES = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(int)"
CONV = "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, true, false, true>(int)"


def advised(body, **options):
    return advice_on(loop(body, **options))


def slices(step, us=3, kernel=ADD, shapes=((128,),), grid=4, operators=("aten::copy_", "aten::select")):
    known = None if shapes is None else [list(each) for each in shapes]
    step.launch(kernel, us, host=50, operators=operators, shapes=known, grid_x=grid, grid_y=1, grid_z=1)


@pytest.mark.parametrize(
    "unlike",
    [
        lambda at: {"shapes": None},
        lambda at: {"kernel": (ADD, GELU)[at % 2]},
        lambda at: {"grid": 4 + at},
        lambda at: {"operators": ("aten::copy_", "aten::select", "CompiledFunction")},
    ],
    ids=["unknown shapes", "other kernels", "other grids", "compiled"],
)
def test_many_launches_of_one_operator_are_no_loop_over_a_tensor(unlike):
    def body(step, number):
        for at in range(64):
            slices(step, **unlike(at))

    assert "python-loop" not in advised(body)
    assert "python-loop" in advised(lambda step, number: [slices(step) for _ in range(64)])


def test_a_call_that_is_timed_again_and_again_is_no_chain_to_compile():
    def body(step, number):
        for _ in range(10):
            step.launch(ADD, 4000, host=30, operators=("aten::add",), shapes=[[32768, 16384]] * 2)

    assert "torch-compile" not in advised(body, steps=1, marked=False)
    assert "torch-compile" in advised(body, steps=1)


@pytest.mark.parametrize(
    ("inside", "told"), [(False, False), (True, True)], ids=["after the last kernel", "inside"]
)
def test_results_that_are_read_at_the_end_are_no_wait_inside_the_step(inside, told):
    def body(step, number):
        step.upload(1 << 20, 40, pageable=1)
        step.wait()
        step.idle(4000)
        for _ in range(4):
            step.launch(BF16_GEMM, 900, host=20, operators=("aten::mm",), shapes=GEMM_SHAPES)
        step.wait()
        step.idle(900 if inside else 1)
        for _ in range(10 if inside else 0):
            step.launch(ADD, 90, host=20)

    assert ("hidden-sync" in advised(body)) is told


def test_the_advice_on_waits_names_their_cost_in_the_table():
    made = loop(waiting.waiting)

    found = advice_on(made)["hidden-sync"]

    # The fourth ends the step.
    assert "waits for the device 3 times per step. After that, the device is idle for" in found.why
    assert "the cost in the table of waits" in found.why


def test_a_router_and_its_experts_are_no_attention():
    def experts(step, number, softmax=TOP_K, following="aten::add"):
        step.launch(BF16_GEMM, 50, operators=())
        step.launch(softmax, 150, operators=())
        step.launch(ADD, 150, operators=())
        step.launch(BF16_GEMM, 50, operators=())

    assert "fused-attention" not in advised(experts)
    assert "fused-attention" in advised(lambda step, number: experts(step, number, models.SOFTMAX))


def test_a_softmax_without_a_name_beside_fused_attention_is_no_attention():
    def body(step, number, attention):
        step.launch(attention, 200, operators=())
        step.launch(BF16_GEMM, 50, operators=())
        step.launch(models.SOFTMAX, 150, operators=())
        step.launch(BF16_GEMM, 50, operators=())

    flash = "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>(flash::Flash_fwd_params)"
    assert "fused-attention" in advised(partial(body, attention=ADD))
    assert "fused-attention" not in advised(partial(body, attention=flash))


def test_a_softmax_of_another_size_than_the_scores_is_no_attention():
    def body(step, number):
        step.launch(BF16_GEMM, 50, operators=("aten::bmm",), shapes=[[8, 64, 32], [8, 32, 64]])
        step.launch(models.SOFTMAX, 900, operators=("aten::_softmax",), shapes=[[4096, 50_000]])
        step.launch(BF16_GEMM, 50, operators=("aten::bmm",), shapes=[[8, 64, 64], [8, 64, 32]])

    assert "fused-attention" not in advised(body)


@pytest.mark.parametrize(("taken", "told"), [("float", True), ("c10::Half", False)])
def test_products_that_take_16_bits_have_no_tf32_whatever_their_kernel_is_called(taken, told):
    def body(step, number):
        step.launch(SGEMM, 6000, operators=("aten::addmm",), shapes=GEMM_SHAPES)
        step.builder._ranges[-1]["dtypes"] = step.builder.text(json.dumps([taken] * 3))

    assert ("tf32" in advised(body)) is told


def test_convolutions_have_a_switch_of_their_own_for_tf32():
    convolving = advised(
        lambda step, number: step.launch(
            CONV, 6000, operators=("aten::cudnn_convolution",), shapes=[[64, 64, 56, 56], [64, 64, 3, 3]]
        )
    )

    assert convolving["tf32"].code == "torch.backends.cudnn.allow_tf32 = True"
    assert "cuDNN" in convolving["tf32"].action
    assert "matmul" in advised(arithmetic.products)["tf32"].code


@pytest.mark.parametrize(
    ("mark", "word"),
    [("FSDP::pre_forward", "MixedPrecisionPolicy"), ("FullyShardedDataParallel.forward", "MixedPrecision("),
     ("DistributedDataParallel.forward", "register_comm_hook"), ("my_model", "async_op=True")],
)  # fmt: skip
def test_exposed_collectives_are_shrunk_by_what_wraps_the_model(mark, word):
    def body(step, number):
        with step.within(mark):
            devices.reducing(step, number)

    code = advised(body)["exposed-communication"].code

    assert word in code
    assert ("register_comm_hook" in code) == (word == "register_comm_hook")


@pytest.mark.parametrize(("us", "word"), [(4000, "all_to_all_single"), (400, "register_comm_hook")])
def test_exposed_all_to_alls_are_not_cured_by_a_hook_for_gradients(us, word):
    def body(step, number):
        with step.within("DistributedDataParallel.forward"):
            devices.reducing(step, number)
            step.launch(devices.SEND_RECV, us, operators=("nccl:all_to_all",))

    assert word in advised(body)["exposed-communication"].code


def test_buckets_are_of_ddp_and_of_the_backward_pass():
    def sharded(step, number):
        with step.within("FSDP::pre_forward"):
            devices.reducing_in_crumbs(step, number)

    def tensor_parallel(step, number):
        devices.reducing_in_crumbs(step, number)
        step.backward(BF16_GEMM, 400, shapes=GEMM_SHAPES)

    assert "ddp-buckets" not in advised(sharded)
    assert "ddp-buckets" not in advised(tensor_parallel)
    assert "ddp-buckets" in advised(devices.reducing_in_crumbs)


@pytest.mark.parametrize(
    ("body", "rule"),
    [(devices.reducing, "exposed-communication"), (devices.reducing_in_crumbs, "ddp-buckets"), (devices.sharded, "fsdp-prefetch")],
)  # fmt: skip
def test_one_rank_alone_gives_collectives_no_price(body, rule):
    assert advised(body)[rule].speedup is None
    assert advice_on_ranks(body, body)[rule].speedup is not None


def test_sends_and_receives_of_all_ranks_to_all_are_no_pipeline():
    def body(step, number):
        with step.within("moe_all_to_all"):
            devices.passing_on(step, number)

    assert "pipeline-bubble" not in advised(body)


def test_two_models_in_one_step_are_no_micro_steps():
    def body(step, number):
        for _ in range(2):
            with step.within("DistributedDataParallel.forward"):
                arithmetic.bf16_products(step, number)
        for _ in range(2):
            step.backward(BF16_GEMM, 400, shapes=GEMM_SHAPES)
            step.backward(devices.NCCL, 500, operators=("nccl:all_reduce",))

    assert "ddp-no-sync" not in advised(body)


def test_batch_norm_over_planes_wants_another_layout_not_more_blocks():
    def body(step, number):
        step.launch(models.CONV, 400, operators=("aten::cudnn_convolution",))
        step.launch(
            PLANES, 400, operators=("aten::cudnn_batch_norm",), shapes=[[32, 64, 56, 56]], grid_x=64, grid_y=1, grid_z=1
        )  # fmt: skip

    found = advised(body)

    assert "small-grids" not in found
    assert "one block per channel" in found["channels-last"].why


def inputs(step, copies=1, download=False, size=64 << 20):
    for _ in range(copies):
        step.upload(size, 8000, pageable=1)
    if download:
        at = max(step.device, step.host)
        step.builder.copy(
            at * 1000, (at + 8000) * 1000, launch=(at * 1000 - 9000, at * 1000 - 4000), bytes=size,
            kind=CopyKind.DTOH, pageable=1,
        )  # fmt: skip
        step.device = step.host = at + 8000
    arithmetic.bf16_products(step, 0)


@pytest.mark.parametrize(
    ("options", "told"), [({}, True), ({"copies": 20}, False), ({"download": True}, False)]
)
def test_weights_that_come_and_go_are_no_batches(options, told):
    assert ("pinned-copies" in advised(lambda step, number: inputs(step, **options))) is told


def test_weights_that_are_moved_once_are_no_batches():
    builder = LoopBuilder()
    step = MadeStep(builder, 0, 0)
    inputs(step)

    assert "pinned-copies" not in advice_on(builder.trace())


@pytest.mark.parametrize(("launches", "told"), [(4, False), (40, True)])
def test_a_graph_of_a_few_launches_is_not_advised(launches, told):
    def body(step, number):
        for _ in range(launches):
            step.launch(ADD, 4, host=60, shapes=[[64, 64], [64, 64]])

    assert ("cuda-graphs" in advised(body)) is told


@pytest.mark.parametrize(
    ("steps", "compiling_us", "told"), [(1, 3_000, False), (1, 3, True), (4, 3_000, True)]
)
def test_code_that_ran_once_and_cold_is_not_compiled(steps, compiling_us, told):
    def body(step, number):
        if number == 0:
            with step.within("Lazy Function Loading (dynamo_timed)"):
                step.idle(compiling_us)
        for _ in range(20):
            arithmetic.chain(step, number)

    assert ("torch-compile" in advised(body, steps=steps)) is told


def test_a_model_with_compiled_parts_is_not_to_be_compiled():
    def body(step, number):
        arithmetic.compiled_chain(step, number)
        arithmetic.chain(step, number)

    assert "torch-compile" not in advised(body)
    assert "torch-compile" in advised(arithmetic.chain)


def test_a_gradient_of_indices_that_takes_next_to_nothing_is_not_told():
    def body(step, number):
        arithmetic.products(step, number, us=60_000)
        models.indexing(step, number)

    assert "index-gradients" not in advised(body)


def test_the_sizes_that_misalign_are_named():
    why = advised(arithmetic.misaligned)["alignment"].why

    assert "8191 (of 4096 x 8191 x 1024)" in why


def starved(step, number, host=400):
    for _ in range(20):
        step.launch(ADD, 5, host=host, shapes=[[64, 64]])


def loading_a_starved_step(step, number):
    with step.within("data"):
        step.idle(20_000)
    starved(step, number, host=60)


@pytest.mark.parametrize(
    ("body", "told"),
    [(starved, True), (lambda step, number: starved(step, number, host=20), False), (loading_a_starved_step, False)],
)  # fmt: skip
def test_a_device_that_is_busy_for_a_tenth_of_the_step_has_room_for_a_larger_batch(body, told):
    assert ("larger-batch" in advised(body)) is told


def row(id, saving, confidence, unmet=None):
    return AdviceRow(
        id=id, title="", why="", evidence=[], action="", code="", verify="", caveats=[], saving_ns=saving, speedup=None,
        before_ns=None, after_ns=None, limit=None, confidence=confidence, link="", precondition_unmet=unmet,
    )  # fmt: skip


def test_advice_is_in_the_order_in_which_a_person_would_take_it():
    rows = [
        row("warm-up", None, "low"),
        row("cuda-graphs", 1_000, "low", unmet="waits inside"),
        row("tf32", 400, "high"),
        row("cuda-graphs", 3_000, "medium"),
        row("larger-batch", None, "medium"),
    ]

    ordered = sorted(rows, key=order_of)

    assert [(each.id, each.saving_ns) for each in ordered] == [
        ("cuda-graphs", 3_000), ("tf32", 400), ("cuda-graphs", 1_000), ("larger-batch", None), ("warm-up", None),
    ]  # fmt: skip


def test_a_loss_that_is_compiled_already_has_nothing_to_fuse():
    compiled = partial(models.language_loss, compiled=("CompiledFunction",))

    assert "fused-loss" not in advised(compiled)
    assert "50,257 classes" in advised(models.language_loss)["fused-loss"].why


def test_an_accident_of_autocast_names_the_operator_and_takes_a_share_of_the_step():
    row = advised(arithmetic.under_autocast)["fp32-by-accident"]

    assert row.evidence[0].startswith("aten::add takes bf16 [8, 12, 1024, 1024], fp32 [8, 1, 1024, 1024]")
    assert "fp32-by-accident" not in advised(partial(arithmetic.under_autocast, us=2))


@pytest.mark.parametrize(("gpu", "word", "other"), [("NVIDIA GeForce RTX 2080 Ti", "float16", "bfloat16"), ("NVIDIA H100 80GB HBM3", "bfloat16", "GradScaler")])  # fmt: skip
def test_a_gpu_without_bf16_is_not_told_to_use_it(gpu, word, other):
    def training(step, number):
        arithmetic.products(step, number, us=60_000)
        arithmetic.fused_adam(step, number)

    trace = loop(training)
    row = advice_on(replace(trace, devices=[replace(d, name=gpu) for d in trace.devices]))["bf16-autocast"]

    assert word in row.code
    assert other not in row.code


@pytest.mark.parametrize(
    ("frames", "times", "off"),
    [(["train.py(3): main"], 12, True), (["train.py(3): main"], 2, False), ([], 12, False),
     (["torch/cuda/memory.py(180): empty_cache"], 12, False)],
)  # fmt: skip
def test_a_cache_that_nobody_empties_and_holds_nothing_is_off(frames, times, off):
    def body(step, number):
        for _ in range(times):
            waiting.allocating(step, number, "cudaMalloc")
        for frame in frames:
            step.builder.range(step.host * 1000, step.host * 1000 + 10, frame, kind=RangeKind.PYTHON)

    assert ("PYTORCH_NO_CUDA_MEMORY_CACHING" in advised(body)["allocator-churn"].code) is off


@pytest.mark.parametrize(("late", "told"), [(4, True), (0, False)])
def test_a_loader_that_keeps_some_steps_waiting_is_told_without_a_price(late, told):
    def body(step, number):
        waiting.loading(step, number, 9_000 if number % 10 < late else 3)

    found = advised(body, steps=20)

    assert ("loader-workers" in found) is told
    assert not told or found["loader-workers"].speedup is None


@pytest.mark.parametrize(("us", "told"), [(400_000, True), (100, False)])
def test_first_uses_without_steps_are_to_be_recorded_later(us, told):
    builder = LoopBuilder().kernel(0, 100_000, launch=(0, 5_000))
    builder.kernel(us * 1000 + 200_000, us * 1000 + 900_000, launch=(120_000, us * 1000 + 150_000))

    assert ("warm-up" in advice_on(builder.trace())) is told


@pytest.mark.parametrize(
    ("frame", "us", "told"),
    [
        ("/home/me/model.py(1{}): attend", 2, ["model.py:10 attend: ", "model.py:11 attend: "]),
        ("/home/me/model.py(1{}): attend", 200, None),
        ("/home/me/train.py(1{}): <module>", 2, None),
        ("/usr/lib/torch/nn/functional.py(1{}): attend", 2, None),
    ],
)
def test_functions_are_named_where_they_hold_the_host(frame, us, told):
    def body(step, number):
        for index in range(2):
            with step.within(frame.format(index), kind=RangeKind.PYTHON):
                for _ in range(40):
                    step.launch(ADD, us, host=60)

    row = advised(body).get("host-lines")

    if told is None:
        assert row is None
    else:
        assert sorted(line[: len(told[0])] for line in row.evidence) == told
        assert row.evidence[0].endswith(" for 40 launches")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, True),
        ({"call": "cudaEventRecord"}, True),
        ({"call": "cudaEventSynchronize"}, False),
        ({"call": "cuStreamWaitEvent"}, False),
        ({"stream": 7}, False),
    ],
)
def test_copies_of_another_stream_are_unordered_where_nothing_waits_for_anything(options, told):
    body = partial(devices.uploading_beside, **options)

    assert ("unordered-copies" in advised(body)) == told
