"""Steps in which rules about several devices, streams and the recording fire, and near misses."""

from profkit.model import RangeKind
from tests.advice.made_steps import (
    ADD,
    BF16_GEMM,
    FUSED_ADAM,
    GEMM_SHAPES,
)
from tests.advice.steps_of_arithmetic import bf16_products, many_small

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def reducing(step, number, us=2000, times=1):
    bf16_products(step, number)
    for _ in range(times):
        step.launch(NCCL, us, operators=("nccl:all_reduce",))


def reducing_little(step, number):
    reducing(step, number, us=20)


def reducing_in_crumbs(step, number):
    reducing(step, number, us=40, times=24)


def passing_on(step, number):
    """A stage of a pipeline: long receives, and many short ones."""
    bf16_products(step, number)
    for us in (2000, *[40] * 24):
        step.launch(SEND_RECV, us, operators=("nccl:recv 1<-0",))


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


def uploading_beside(step, number, call=None, stream=22):
    """A batch that another stream brings, and what waits for it."""
    step.upload(32 << 20, 600, pageable=0, blocks=False, stream=stream)
    if call:
        step.call(call, 2)
    for _ in range(4):
        step.launch(BF16_GEMM, 400, operators=("aten::mm",))


def uploading_in_order(step, number):
    uploading_beside(step, number, "cudaStreamWaitEvent")
