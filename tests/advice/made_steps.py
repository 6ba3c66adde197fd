"""Steps made by hand: a host that runs operators one after the other, and a device that runs what they launch."""

import json
from contextlib import contextmanager
from dataclasses import replace

from profkit.advice import advise
from profkit.model import Collectives, CopyKind, RangeKind
from profkit.report.assembly import timelines
from profkit.report.views import Options
from tests.builders import BACKWARD, MAIN, TraceBuilder, _table

SGEMM = "ampere_sgemm_128x64_tn"
BF16_GEMM = "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
GELU = "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(float)::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"
MULTI_TENSOR = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<4>, at::native::(anonymous namespace)::PointwiseOpListFunctor<float, 4, 4, 0> >(int)"
FUSED_ADAM = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false> >(int)"
GEMM_SHAPES = [[4096], [8192, 4096], [4096, 4096]]
US = 1_000


class MadeStep:
    """One step of a loop; times are in microseconds. The device's clock is the host's."""

    def __init__(self, builder, host, device):
        self.builder, self.host, self.device = builder, host, device
        self.ranges = []

    def launch(
        self, name, us, *, host=20, operators=("aten::add",), shapes=None, thread=MAIN, stream=7, **columns
    ):
        """An operator (innermost first) that launches a kernel; the call itself takes 5 us."""
        start = self.host
        call = start + host - 6
        self.host += host
        begin = max(call + 6, self.device)
        self.device = begin + us
        self.builder.kernel(
            begin * US, self.device * US, launch=(call * US, (call + 5) * US), thread=thread, name=name, stream=stream,
            **columns,
        )  # fmt: skip
        for depth, operator in enumerate(operators):
            # Outer operators start earlier.
            at = start * US + (len(operators) - depth) * 100
            self.builder.operator(
                at, self.host * US - (len(operators) - depth) * 100, operator, shapes, thread=thread
            )
        return self

    def backward(self, name, us, node="AddmmBackward0", operators=("aten::mm",), **options):
        nodes = (*operators, node, f"autograd::engine::evaluate_function: {node}")
        return self.launch(name, us, operators=nodes, thread=BACKWARD, **options)

    def upload(self, size, us, *, pageable=1, host=20, blocks=True, stream=7):
        """A copy to the device; a blocking one holds the host."""
        call = self.host + host - 6
        begin = max(call + 6, self.device)
        self.device = begin + us
        end = self.device if blocks else call + 5
        name = "Memcpy HtoD (Pageable -> Device)" if pageable else "Memcpy HtoD (Pinned -> Device)"
        self.builder.kernel(
            begin * US, self.device * US, launch=(call * US, end * US), name=name, api="cudaMemcpyAsync", kind=1,
            copy_kind=CopyKind.HTOD, bytes=size, pageable=pageable, stream=stream,
        )  # fmt: skip
        self.host = end + 1
        return self

    def wait(self, name="cudaStreamSynchronize", thread=MAIN):
        done = max(self.device, self.host + 2) + 2
        self.builder.call(self.host * US, done * US, name, thread=thread)
        self.host = done + 2
        return self

    def call(self, name, us):
        self.builder.call(self.host * US, (self.host + us) * US, name)
        self.host += us + 1
        return self

    def idle(self, us):
        self.host += us
        return self

    @contextmanager
    def within(self, name, thread=MAIN, kind=RangeKind.ANNOTATION):
        start = self.host
        yield self
        self.builder.range(start * US, self.host * US, name, thread=thread, kind=kind)


class HostBoundStep(MadeStep):
    """The same step where each launch takes the host three times as long as the device needs, and more."""

    def launch(self, name, us, *, host=20, **options):
        return super().launch(name, us, host=max(host, int(3 * us) + 100), **options)


def host_bound(body):
    """The body of a step that waits for its host."""

    def bound(step, number):
        slow = HostBoundStep(step.builder, step.host, step.device)
        body(slow, number)
        step.host, step.device = slow.host, slow.device

    return bound


class LoopBuilder(TraceBuilder):
    """A trace of a loop; operators may have shapes, collectives a size."""

    def __init__(self, **options):
        super().__init__(**options)
        self._collectives = []

    def collective(self, operation, name, dtype, elements):
        """What the file says of a collective kernel, by its row."""
        self._collectives.append(
            dict(operation=operation, name=self.text(name), dtype=self.text(dtype), in_elements=elements)
        )

    def trace(self):
        return replace(super().trace(), collectives=_table(Collectives, self._collectives))

    def operator(self, start, end, name, shapes=None, thread=MAIN):
        self.range(start, end, name, thread=thread, kind=RangeKind.OPERATOR)
        if shapes is not None:
            self._ranges[-1]["shapes"] = self.text(json.dumps(shapes))
        return self


def loop(body, *, steps=4, marked=True, **options):
    """A trace of ``steps`` steps, each made by ``body(step, number)``; ``marked`` by ranges or not."""
    builder = LoopBuilder(**options)
    at = device = 0
    for number in range(steps):
        step = MadeStep(builder, at, device)
        body(step, number)
        if marked:
            builder.range(at * US, (step.host + 1) * US, "step")
        # The host runs ahead, as it does.
        at, device = step.host + 2, step.device
    return builder.trace()


def advice_on_ranks(*bodies):
    """Advice by its id, on a job of which each rank runs one of these steps."""
    views = [timelines([loop(body)], Options())[0][0] for body in bodies]
    return {row.id: row for row in advise(views)}


def advice_on(trace, memory=None, plain_step_ns=None):
    """Advice by its id."""
    views, _ = timelines([trace], Options(plain_step_ns=plain_step_ns))
    return {row.id: row for row in advise(views, memory)}
