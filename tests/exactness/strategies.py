"""Random small recordings: several processes, devices and threads, with steps, phases, waits and overlaps."""

from random import Random

from hypothesis import strategies as st

from profkit.model import (
    Calls,
    CopyKind,
    Device,
    OperationKind,
    Operations,
    Process,
    RangeKind,
    Ranges,
    Source,
    Thread,
    Trace,
)
from tests.exactness.plain_files import COPY_KINDS, Call, Op, Recording, Span

UNIT_NS = 700
"""Times are multiples of it, so that edges meet often, and gaps lie on both sides of the queue latency."""

PHASES = ("forward", "loss", "backward", "optimizer", "data", "input_proj", "get_batch")
WORK = {
    "log_images": "annotation",
    "DataCollate": "annotation",
    "aten::sort": "operator",
    "Optimizer.step#SGD.step": "annotation",
    "eval.py(3): evaluate": "python",
    "torch/nn/modules/module.py(1532): _call_impl": "python",
}
"""What a thread is in for longer than half a millisecond; it launches something now and then."""
KERNELS = (
    "ampere_sgemm_128x64_nn",
    "vectorized_elementwise_kernel",
    "ncclDevKernel_AllReduce_Sum_f32",
    "mystery",
)
OTHER_CALLS = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaMemcpy",
    "cudaMalloc",
    "cuModuleLoadData",
    "cudaEventQuery",
    "cudaStreamBeginCapture",
    "cudaStreamEndCapture",
    "cudaProfilerStart",
    "cudaStreamCreate",
    "cudaGraphInstantiate",
)
RANGE_KINDS = {
    "annotation": RangeKind.ANNOTATION,
    "operator": RangeKind.OPERATOR,
    "python": RangeKind.PYTHON,
    "overhead": RangeKind.OVERHEAD,
}
OP_KINDS = {"kernel": OperationKind.KERNEL, "memset": OperationKind.MEMSET, "graph": OperationKind.GRAPH}
COPY_NUMBERS = {name: number for number, name in COPY_KINDS.items()}


class _Program:
    """A process that runs: its threads take turns, and each has a clock of its own."""

    def __init__(self, found: Recording, random: Random, process: int, devices: list[int]) -> None:
        self.found = found
        self.random = random
        self.process = process
        self.devices = devices
        self.clock = {1: random.randint(0, 9), 2: 0}
        self.correlation = 0
        self.free = dict.fromkeys(devices, 0)
        found.thread_names[process, 2] = ["pt_autograd_0"]

    def run(self, steps: int) -> None:
        self.body(1, 0)
        for number in range(steps):
            self.clock[1] += self.random.randint(0, 3)
            start = self.clock[1]
            self.body(1, 2)
            self.span(f"ProfilerStep#{number}", 1, start)
        if self.random.random() < 0.3:
            self.body(1, 1)

    def span(self, name: str, thread: int, start: int, kind: str = "annotation") -> None:
        self.clock[thread] += 1
        times = start * UNIT_NS, self.clock[thread] * UNIT_NS
        self.found.spans.append(Span(name, *times, (self.process, thread), kind))

    def body(self, thread: int, depth: int) -> None:
        """Some launches, waits and phases, one after the other."""
        for _ in range(self.random.randint(0, 9)):
            self.clock[thread] += self.random.randint(0, 4)
            what = self.random.choice(
                ("launch", "launch", "launch", "other", "phase", "autograd", "overhead", "work")
            )
            start = self.clock[thread]
            if what == "launch":
                self.launch(thread)
            elif what == "other":
                length = self.random.choice((1, 3, 5, 9, 1_500))
                self.call(self.random.choice(OTHER_CALLS), thread, length)
            elif what == "phase" and depth:
                self.body(thread, depth - 1)
                self.span(self.random.choice(PHASES), thread, start)
            elif what == "autograd" and thread == 1:
                self.clock[2] = max(self.clock[2], start)
                self.body(2, 0)
                self.clock[1] = max(self.clock[1], self.random.choice((start, self.clock[2])))
            elif what == "work" and self.random.random() < 0.5:
                self.clock[thread] += self.random.choice((400, 800, 1_600))
                if self.random.random() < 0.2:
                    self.launch(thread)
                name = self.random.choice(list(WORK))
                self.span(name, thread, start, WORK[name])
            elif what == "overhead":
                self.clock[thread] += self.random.randint(1, 3)
                name = self.random.choice(("Buffer Flush", "Lazy Function Loading", "Command Buffer Full"))
                self.span(name, thread, start, "overhead")

    def call(self, name: str, thread: int, length: int, correlation: int = 0) -> None:
        start = self.clock[thread]
        self.clock[thread] += length
        times = start * UNIT_NS, self.clock[thread] * UNIT_NS
        self.found.calls.append(Call(name, *times, (self.process, thread), correlation))

    def launch(self, thread: int) -> None:
        """A launch and its operations: none (lost), one, or several (a graph traced node by node)."""
        random = self.random
        self.correlation += 1
        device = random.choice(self.devices)
        start = max(self.clock[thread] + random.randint(0, 3), random.choice((0, self.free[device])))
        stream = random.choice((7, 7, 7, 20))
        lost = random.random() < 0.05
        for _ in range(random.choice((0, 1, 1, 1, 1, 1, 1, 3))):
            start += random.choice((0, 0, 1, 4, 12))
            end = start + random.choice((1, 2, 3, 5, 9))
            kind = random.choice(
                ("kernel", "kernel", "kernel", "kernel", "memset", "HtoD", "DtoD", "PtoP", "graph")
            )
            name = random.choice(KERNELS) if kind == "kernel" else kind
            correlation = 0 if lost else self.correlation
            shape = (random.randint(1, 2), 1, 1, 128, 1, 1) if kind == "kernel" else ()
            times = start * UNIT_NS, end * UNIT_NS
            op = Op(kind, name, *times, device, self.process, correlation, shape, stream)
            self.found.ops.append(op)
            start = self.free[device] = end
        api = random.choice(("cudaLaunchKernel", "cudaLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync"))
        self.call(api, thread, random.choice((1, 1, 2, 3, 4, 30, 1_500)), self.correlation)


LAYOUTS = ([[0]], [[0, 1]], [[0], [1]])
"""The devices of each process."""


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """A recording whose devices have something to do."""
    # A seed finds larger recordings, drawn choices find smaller ones that can be understood.
    random = draw(st.one_of(st.builds(Random, st.integers(0, 10**9)), st.randoms(use_true_random=False)))
    return random_recording(random, draw(st.integers(0, 4)), draw(st.sampled_from(LAYOUTS)))


def random_recording(random: Random, steps: int, layout: list[list[int]]) -> Recording:
    found = Recording()
    for process, devices in enumerate(layout):
        program = _Program(found, random, process, devices)
        program.run(steps)
        for device in devices:
            program.devices = [device]
            program.launch(1)
            known = max([op.end for op in found.ops if op.device == device], default=0)
            times = known, known + 2 * UNIT_NS
            found.ops.append(
                Op("kernel", KERNELS[0], *times, device, process, program.correlation, (1, 1, 1, 128, 1, 1))
            )
    return found


def trace_of(recording: Recording) -> Trace:
    """The same recording as readers hand it on."""
    texts: dict[str, int] = {}

    def text(name: str) -> int:
        return texts.setdefault(name, len(texts))

    keys = sorted(
        {event.thread for event in [*recording.calls, *recording.spans]} | set(recording.thread_names)
    )
    processes = sorted({key[0] for key in keys} | {op.process for op in recording.ops})
    devices = sorted({op.device for op in recording.ops})
    ops, calls, spans = recording.ops, recording.calls, recording.spans
    shape = [op.shape or (-1,) * 6 for op in ops]
    columns = dict(
        zip(
            ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
            zip(*shape, strict=True),
            strict=True,
        )
    )
    operations = Operations.of(
        len(ops),
        start_ns=[op.start for op in ops],
        end_ns=[op.end for op in ops],
        kind=[OP_KINDS.get(op.kind, OperationKind.COPY) for op in ops],
        copy_kind=[COPY_NUMBERS.get(op.kind, CopyKind.UNKNOWN) for op in ops],
        device=[devices.index(op.device) for op in ops],
        process=[processes.index(op.process) for op in ops],
        stream=[op.stream for op in ops],
        name=[text(op.name) for op in ops],
        correlation=[op.correlation for op in ops],
        **columns,
    )
    return Trace(
        source=Source("random", "nsys", "hypothesis"),
        processes=[Process(process) for process in processes],
        threads=[Thread(processes.index(k[0]), k[1], tuple(recording.thread_names.get(k, ()))) for k in keys],
        devices=[Device(device) for device in devices],
        operations=operations,
        calls=Calls.of(
            len(calls),
            start_ns=[call.start for call in calls],
            end_ns=[call.end for call in calls],
            thread=[keys.index(call.thread) for call in calls],
            name=[text(call.name) for call in calls],
            correlation=[call.correlation for call in calls],
            driver=[int(call.driver) for call in calls],
        ),
        ranges=Ranges.of(
            len(spans),
            start_ns=[span.start for span in spans],
            end_ns=[span.end for span in spans],
            thread=[keys.index(span.thread) for span in spans],
            kind=[RANGE_KINDS[span.kind] for span in spans],
            name=[text(span.name) for span in spans],
        ),
        strings=list(texts),
    )
