"""Each rule: a step in which it fires, and one nearly like it in which it must not."""

import pytest

from profkit.analysis.advice import RULES, WORTH_SAYING
from profkit.model import RangeKind
from tests.analysis.advice.made_steps import (
    ADD,
    BF16_GEMM,
    FILL,
    FUSED_ADAM,
    GELU,
    MULTI_TENSOR,
    SGEMM,
    advice_on,
    loop,
)

GEMM_SHAPES = [[4096], [8192, 4096], [4096, 4096]]
ROWS = [[8192, 4096]]
GIB = 1 << 30


def products(step, number, name=SGEMM, us=6000, operators=("aten::addmm",)):
    step.launch(name, us, operators=operators, shapes=GEMM_SHAPES)
    step.launch(name, us, operators=operators, shapes=GEMM_SHAPES)


def tf32_products(step, number):
    products(step, number, "cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4", 1000)


def bf16_products(step, number):
    products(step, number, BF16_GEMM, 400)


def small_products(step, number):
    # In fp32, but the host is the limit.
    for _ in range(20):
        step.launch(SGEMM, 3, host=200, operators=("aten::addmm",), shapes=[[64], [32, 64], [64, 64]])


def scaled(step, number):
    bf16_products(step, number)
    step.launch(MULTI_TENSOR, 100, operators=("aten::_amp_foreach_non_finite_check_and_unscale_",))


def fp64(step, number):
    step.launch("ampere_dgemm_64x64_nn", 3000, operators=("aten::mm",), shapes=[[2048, 2048], [2048, 2048]])


def misaligned(step, number, align="align1"):
    step.launch(
        f"cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_{align}",
        3000,
        operators=("aten::mm",),
        shapes=[[4096, 1024], [1024, 8191]],
    )


def aligned(step, number):
    misaligned(step, number, "align16")


def chain(step, number):
    for _ in range(12):
        step.launch(ADD, 120, shapes=[[8192, 4096], [8192, 4096]])


def few_pointwise(step, number):
    products(step, number)
    step.launch(GELU, 20, operators=("aten::gelu",), shapes=ROWS)


def compiled_chain(step, number):
    for _ in range(12):
        step.launch(
            "triton_poi_fused_add_gelu_0", 120, operators=("triton_poi_fused_add_gelu_0", "CompiledFunction")
        )


def many_small(step, number, waits=False, extra=0):
    for index in range(60 + extra):
        step.launch(ADD, 4, host=60, shapes=[[64, 64], [64, 64]])
        if waits and index % 10 == 5:
            step.wait()


def many_small_with_waits(step, number):
    many_small(step, number, waits=True)


def many_small_of_changing_number(step, number):
    many_small(step, number, extra=8 * (number % 3))


def replayed(step, number):
    for node in range(30):
        step.launch(ADD, 2, host=60, shapes=[[64, 64]], graph_node=node + 1)


def broken(step, number, regions=4):
    for region in range(regions):
        with step.within(f"Torch-Compiled Region: {region}/0"):
            step.launch(
                "triton_poi_fused_add_0",
                20,
                host=80,
                operators=("triton_poi_fused_add_0", "CompiledFunction"),
            )
        for _ in range(4):
            step.launch(ADD, 30, host=80, shapes=[[2048, 4096], [2048, 4096]])


def whole_graph(step, number):
    broken(step, number, regions=1)


def recompiling(step, number, version=None):
    version = number if version is None else version
    with step.within(f"Torch-Compiled Region: 0/{version}"):
        if version:
            with step.within("compile_fx (dynamo_timed)"):
                step.idle(4000)
        step.launch("triton_poi_fused_add_0", 200, host=80, operators=("CompiledFunction",))


def compiled_before(step, number):
    with step.within("Torch-Compiled Region: 0/0"):
        step.launch("triton_poi_fused_add_0", 200, host=80, operators=("CompiledFunction",))


def python_loop(step, number, turns=64):
    for _ in range(turns):
        step.launch(ADD, 3, host=50, operators=("aten::copy_", "aten::select"), shapes=[[128]])


def short_loop(step, number):
    python_loop(step, number, turns=8)
    bf16_products(step, number)


def adam(step, number, kernel=MULTI_TENSOR, kernels=12):
    bf16_products(step, number)
    with step.within("Optimizer.step#Adam.step"):
        for index in range(kernels):
            operator = "aten::_foreach_addcdiv_" if index == 0 else f"aten::_foreach_op{index}_"
            step.launch(kernel, 150, operators=(operator,), shapes=[[[8192, 4096]]])


def fused_adam(step, number):
    adam(step, number, FUSED_ADAM, 1)


def zeroed(step, number):
    bf16_products(step, number)
    step.backward(BF16_GEMM, 400, shapes=GEMM_SHAPES)
    step.backward(
        ADD,
        60,
        "torch::autograd::AccumulateGrad",
        ("aten::add_", "torch::autograd::AccumulateGrad"),
        shapes=ROWS,
    )
    with step.within("Optimizer.zero_grad#Adam.zero_grad"):
        step.launch(FILL, 80, operators=("aten::fill_", "aten::zero_"), shapes=ROWS)


def zeros_elsewhere(step, number):
    bf16_products(step, number)
    step.launch(FILL, 80, operators=("aten::fill_", "aten::zeros"), shapes=ROWS)


def loading(step, number, us=5000):
    with step.within("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        step.idle(us)
    bf16_products(step, number)


def loading_hidden(step, number):
    with step.within("data"):
        step.idle(3)
    bf16_products(step, number)


def waiting(step, number, us=900):
    for _ in range(4):
        step.launch(BF16_GEMM, us, host=40, operators=("aten::mm",), shapes=GEMM_SHAPES)
        step.wait()
        step.idle(150)


def waiting_of_a_slow_host(step, number):
    for _ in range(20):
        step.launch(ADD, 3, host=60, operators=("aten::mean",), shapes=[[64, 64]])
        step.wait()


def uploading(step, number, pageable=1):
    step.upload(64 << 20, 8000, pageable=pageable)
    if pageable:
        step.wait()
    bf16_products(step, number)


def uploading_pinned(step, number):
    step.upload(64 << 20, 1300, pageable=0, blocks=False)
    bf16_products(step, number)


def allocating(step, number, api="cudaFree"):
    for _ in range(4):
        step.call(api, 400)
        step.launch(ADD, 100, shapes=ROWS)


def asking(step, number):
    allocating(step, number, "cudaGetDevice")


def blocking(step, number, late=True):
    for _ in range(12):
        call = step.host + 10
        begin, end = call + 6, call + 56
        step.builder.kernel(
            begin * 1000, end * 1000, launch=(call * 1000, (end + 2 if late else call + 5) * 1000), name=ADD
        )
        step.host, step.device = (end + 4 if late else call + 20), end


def not_blocking(step, number):
    for _ in range(12):
        step.launch(ADD, 50, host=20)


def anomalous(step, number, checks=10):
    for _ in range(10):
        step.backward(BF16_GEMM, 30, shapes=GEMM_SHAPES)
    for _ in range(checks):
        step.backward(ADD, 5, operators=("aten::isnan",), host=60)
        step.backward(ADD, 3, operators=("aten::_local_scalar_dense", "aten::item"), host=60)
        step.wait(thread=1)


def checked_once(step, number):
    anomalous(step, number, checks=1)


def collecting(step, number, name="gc.collect"):
    bf16_products(step, number)
    with step.within(name):
        step.idle(4000)
    bf16_products(step, number)


def logging(step, number):
    collecting(step, number, "gcd of collected sizes")


def crumbs(step, number, copies=12):
    for _ in range(copies):
        step.upload(64, 2, host=60, blocks=False)
    step.launch(ADD, 30, shapes=ROWS)


def two_crumbs(step, number):
    crumbs(step, number, 2)


NHWC = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, true, true>(cudnn::ops::nchw2nhwc_params_t<float>)"
CONV = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"


def transposing(step, number):
    for _ in range(4):
        step.launch(NHWC, 60, operators=("aten::cudnn_convolution",))
        step.launch(CONV, 200, operators=("aten::cudnn_convolution",))


def laid_out(step, number):
    step.launch(NHWC, 4, operators=("aten::cudnn_convolution",))
    for _ in range(4):
        step.launch(CONV, 200, operators=("aten::cudnn_convolution",))


SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*, int)"
SCORES = [[256, 512, 512], [256, 512, 64]]


def attention(step, number, product="aten::bmm", softmax="aten::_softmax"):
    step.launch(BF16_GEMM, 50, operators=(product,), shapes=SCORES)
    step.launch(ADD, 150, operators=("aten::masked_fill_",), shapes=[[256, 512, 512]])
    step.launch(SOFTMAX, 150, operators=(softmax,), shapes=[[256, 512, 512]])
    step.launch(BF16_GEMM, 50, operators=(product,), shapes=SCORES)


def classifying(step, number):
    attention(step, number, "aten::mm", "aten::_log_softmax")


def recomputing(step, number, again=True):
    for _ in range(2):
        step.launch(BF16_GEMM, 400, operators=("aten::addmm",), shapes=GEMM_SHAPES)
        step.launch(GELU, 80, operators=("aten::gelu",), shapes=ROWS)
    for _ in range(2):
        if again:
            step.backward(BF16_GEMM, 400, operators=("aten::addmm",), shapes=GEMM_SHAPES)
            step.backward(GELU, 80, operators=("aten::gelu",), shapes=ROWS)
        step.backward(BF16_GEMM, 800, operators=("aten::mm",), shapes=GEMM_SHAPES)


def keeping(step, number):
    recomputing(step, number, again=False)
    # Gradients of batched products are batched products.
    step.launch(BF16_GEMM, 100, operators=("aten::bmm",), shapes=SCORES)
    step.launch(BF16_GEMM, 100, operators=("aten::bmm",), shapes=SCORES)
    step.backward(BF16_GEMM, 100, "BmmBackward0", ("aten::bmm",), shapes=SCORES)
    step.backward(BF16_GEMM, 100, "BmmBackward0", ("aten::bmm",), shapes=SCORES)


def general_convolution(
    step,
    number,
    kernel="void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, true, false, true>(int)",
):
    step.launch(kernel, 900, operators=("aten::cudnn_convolution",))


def tuned_convolution(step, number):
    general_convolution(step, number, CONV)


SORT = "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, long, unsigned int>::Policy900, false, long>(int)"


def indexing(step, number, node="IndexBackward0", inner="aten::_index_put_impl_"):
    bf16_products(step, number)
    step.backward(SORT, 200, node, (inner,))


def embedding(step, number):
    indexing(step, number, "EmbeddingBackward0", "aten::embedding_dense_backward")


def narrow(step, number, grid=8):
    step.launch(ADD, 300, grid_x=grid, grid_y=1, grid_z=1)


def wide(step, number):
    narrow(step, number, 4096)


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def reducing(step, number, us=2000, times=1):
    bf16_products(step, number)
    for _ in range(times):
        step.launch(NCCL, us, operators=("nccl:all_reduce",))


def reducing_little(step, number):
    reducing(step, number, us=20)


def reducing_in_crumbs(step, number):
    reducing(step, number, us=40, times=24)


def accumulating(step, number, passes=3):
    for _ in range(passes):
        with step.within("DistributedDataParallel.forward"):
            bf16_products(step, number)
        step.backward(BF16_GEMM, 400, shapes=GEMM_SHAPES)
        step.backward(NCCL, 500, operators=("nccl:all_reduce",))


def reducing_once(step, number):
    accumulating(step, number, passes=1)


def copying_models(step, number, name="DataParallel.forward"):
    with step.within(name):
        step.launch("ncclDevKernel_Broadcast_RING_LL(int)", 300, operators=("Broadcast",))
        bf16_products(step, number)
        step.launch(BF16_GEMM, 300, device=1, stream=9, operators=("aten::mm",))


def two_devices(step, number):
    bf16_products(step, number)
    step.launch(BF16_GEMM, 300, device=1, stream=9, operators=("aten::mm",))


def host_bound(step, number):
    many_small(step, number)


GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FLAGS = "ncclDevKernel_AllReduce_Sum_u32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def beside(step, number, name, us, start_us):
    """A collective on NCCL's own stream, from a time on."""
    step.builder.kernel(
        start_us * 1000,
        (start_us + us) * 1000,
        launch=((start_us - 8) * 1000, (start_us - 3) * 1000),
        name=name,
        stream=13,
    )


def sharded(step, number, layers=6, hidden=False):
    for _ in range(layers):
        at = step.device
        if hidden:
            step.launch(BF16_GEMM, 900, operators=("aten::mm",), shapes=GEMM_SHAPES)
            beside(step, number, GATHER, 500, max(at, step.host) + 100)
        else:
            step.launch(GATHER, 500, operators=("nccl:_all_gather_base",), stream=13)
            step.launch(BF16_GEMM, 900, operators=("aten::mm",), shapes=GEMM_SHAPES)
    step.launch(SCATTER, 300, operators=("nccl:_reduce_scatter_base",), stream=13)


def sharded_and_prefetched(step, number):
    sharded(step, number, hidden=True)


def searching(step, number, search="torch.distributed.ddp.reducer::search_unused_parameters", gradients=4):
    with step.within("DistributedDataParallel.forward"):
        bf16_products(step, number)
        with step.within(search):
            step.idle(3_000)
    for _ in range(gradients):
        node = "torch::autograd::AccumulateGrad"
        step.backward(BF16_GEMM, 100, node, shapes=GEMM_SHAPES)
    flags = len(step.builder._operations)
    step.launch(FLAGS, 30, operators=("nccl:all_reduce",), stream=13)
    step.builder.collective(flags, "allreduce", "Int", 4)


def not_searching(step, number):
    searching(step, number, search="torch.distributed.ddp.reducer::mul_out")


def with_unused_parameters(step, number):
    searching(step, number, gradients=3)


def downloading(step, number, stream=7):
    for _ in range(4):
        step.launch(BF16_GEMM, 900, operators=("aten::mm",), shapes=GEMM_SHAPES)
        step.upload(32 << 20, 600, pageable=0, blocks=False, stream=stream)


def downloading_beside(step, number):
    for _ in range(4):
        at = max(step.device, step.host)
        step.launch(BF16_GEMM, 900, operators=("aten::mm",), shapes=GEMM_SHAPES)
        step.builder.copy(
            (at + 50) * 1000,
            (at + 650) * 1000,
            launch=((at + 20) * 1000, (at + 25) * 1000),
            stream=9,
            bytes=32 << 20,
            pageable=0,
        )


def reducing_layer_by_layer(step, number, stream=7):
    for _ in range(6):
        step.backward(BF16_GEMM, 900, shapes=GEMM_SHAPES)
        step.launch(NCCL, 500, operators=("nccl:all_reduce",), stream=stream)
    with step.within("Optimizer.step#Adam.step"):
        step.launch(FUSED_ADAM, 100, operators=("aten::_fused_adamw_",))


def reducing_after_the_backward_pass(step, number):
    for _ in range(6):
        step.backward(BF16_GEMM, 900, shapes=GEMM_SHAPES)
    for _ in range(6):
        step.launch(NCCL, 500, operators=("nccl:all_reduce",))
    with step.within("Optimizer.step#Adam.step"):
        step.launch(FUSED_ADAM, 100, operators=("aten::_fused_adamw_",))


def taking_turns(step, number, grid=16):
    for _ in range(6):
        for stream in (7, 20):
            step.launch(
                BF16_GEMM, 400, operators=("aten::mm",), stream=stream, grid_x=grid, grid_y=1, grid_z=1
            )


def taking_turns_on_a_full_card(step, number):
    taking_turns(step, number, grid=1024)


def framed(step, number, frames=80):
    for index in range(frames):
        with step.within(f"model.py({index}): forward", kind=RangeKind.PYTHON):
            step.launch(ADD, 2, host=40, shapes=[[64]])


def framed_before_a_long_kernel(step, number):
    framed(step, number)
    step.launch(BF16_GEMM, 9_000, operators=("aten::mm",), shapes=GEMM_SHAPES)


HAS_ROOM = {"peak_reserved_bytes": 8 * GIB}
FULL = {"peak_reserved_bytes": 78 * GIB}
TORN = {"peak_reserved_bytes": 40 * GIB, "devices": [{"fragmentation_bytes": 15 * GIB}]}

CASES = {  # rule: (step in which it fires, options), (near miss, options)
    "tf32": ((products, {}), (tf32_products, {})),
    "bf16-autocast": ((products, {}), (bf16_products, {})),
    "bf16-without-scaler": ((scaled, {}), (bf16_products, {})),
    "fp8": ((bf16_products, {}), (tf32_products, {})),
    "fp64": ((fp64, {}), (products, {})),
    "alignment": ((misaligned, {}), (aligned, {})),
    "torch-compile": ((chain, {}), (compiled_chain, {})),
    "graph-breaks": ((broken, {}), (whole_graph, {})),
    "recompilation": ((recompiling, {}), (compiled_before, {})),
    "cuda-graphs": ((many_small, {}), (many_small_with_waits, {})),
    "python-loop": ((python_loop, {}), (short_loop, {})),
    "fused-optimizer": ((adam, {}), (fused_adam, {})),
    "set-to-none": ((zeroed, {}), (zeros_elsewhere, {})),
    "loader-workers": ((loading, {}), (loading_hidden, {})),
    "hidden-sync": ((waiting, {}), (waiting_of_a_slow_host, {})),
    "pinned-copies": ((uploading, {}), (uploading_pinned, {})),
    "allocator-churn": ((allocating, {}), (asking, {})),
    "launch-blocking": ((blocking, {}), (not_blocking, {})),
    "anomaly-mode": ((anomalous, {}), (checked_once, {})),
    "garbage-collection": ((collecting, {}), (logging, {})),
    "small-copies": ((crumbs, {}), (two_crumbs, {})),
    "channels-last": ((transposing, {}), (laid_out, {})),
    "fused-attention": ((attention, {}), (classifying, {})),
    "keep-activations": ((recomputing, {}), (keeping, {})),
    "cudnn-benchmark": ((general_convolution, {}), (tuned_convolution, {})),
    "index-gradients": ((indexing, {}), (embedding, {})),
    "small-grids": ((narrow, {}), (wide, {})),
    "exposed-communication": ((reducing, {}), (reducing_little, {})),
    "ddp-buckets": ((reducing_in_crumbs, {}), (reducing, {})),
    "ddp-no-sync": ((accumulating, {}), (reducing_once, {})),
    "data-parallel": ((copying_models, {"devices": 2}), (two_devices, {"devices": 2})),
    "fsdp-prefetch": ((sharded, {}), (sharded_and_prefetched, {})),
    "ddp-unused-parameters": ((searching, {}), (with_unused_parameters, {})),
    "copies-beside-kernels": ((downloading, {}), (downloading_beside, {})),
    "collectives-beside-kernels": ((reducing_layer_by_layer, {}), (reducing_after_the_backward_pass, {})),
    "streams-take-turns": ((taking_turns, {}), (taking_turns_on_a_full_card, {})),
    "profiler-stacks": ((framed, {}), (framed_before_a_long_kernel, {})),
    "larger-batch": ((host_bound, {"memory": HAS_ROOM}), (host_bound, {"memory": FULL})),
    "checkpoint-activations": ((bf16_products, {"memory": FULL}), (bf16_products, {"memory": HAS_ROOM})),
    "fragmentation": ((bf16_products, {"memory": TORN}), (bf16_products, {"memory": FULL})),
    "warm-up": ((bf16_products, {"steps": 1}), (bf16_products, {"steps": 4})),
}  # fmt: skip


def advised(body, memory=None, **options):
    return advice_on(loop(body, **options), memory)


def test_every_rule_has_a_case():
    assert set(CASES) == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", CASES)
def test_the_rule_fires_where_its_evidence_is(rule):
    body, options = CASES[rule][0]

    row = advised(body, **options)[rule]

    assert row["evidence"]
    if row["speedup"]:
        assert row["speedup"]["low"] <= row["speedup"]["likely"] <= row["speedup"]["high"]
        assert row["speedup"]["likely"] > 1 + WORTH_SAYING
        assert row["saving_ns"] > 0


@pytest.mark.parametrize("rule", CASES)
def test_the_rule_is_silent_on_its_near_miss(rule):
    body, options = CASES[rule][1]

    assert rule not in advised(body, **options)


def test_attention_is_recognised_without_the_names_of_operators():
    def written_out(step, number, softmax=SOFTMAX):
        step.launch(BF16_GEMM, 50, operators=())
        step.launch(ADD, 150, operators=())
        step.launch(softmax, 150, operators=())
        step.launch(BF16_GEMM, 50, operators=())

    def classifying(step, number):
        written_out(step, number, SOFTMAX.replace("9, false, false", "9, true, false"))

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
    [("tf32", small_products), ("bf16-autocast", small_products), ("torch-compile", few_pointwise), ("cuda-graphs", replayed),
     ("cuda-graphs", many_small_of_changing_number), ("torch-compile", waiting_of_a_slow_host)],
)  # fmt: skip
def test_evidence_without_worth_is_not_said(rule, body):
    assert rule not in advised(body)


@pytest.mark.parametrize("rule", list(RULES), ids=lambda r: r.id)
def test_a_rule_says_what_to_do_how_to_check_it_and_where_to_read_on(rule):
    assert rule.action
    assert rule.code
    assert rule.verify
    assert rule.link.startswith("https://")
