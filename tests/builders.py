"""Small traces spelled out in code: times are ns, and everything runs on one process, device and stream by default."""

import numpy as np

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

MAIN, BACKWARD, LOADER = 0, 1, 2
GEMM = "ampere_sgemm_128x64_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


class TraceBuilder:
    """Collects rows and makes a `Trace` of them; methods return the builder."""

    def __init__(
        self, *, devices=1, processes=1, threads=((0, ()), (0, ("pt_autograd_0",)), (0, ())), format="nsys"
    ):
        self._strings = {}
        self._operations, self._calls, self._ranges = [], [], []
        self._devices = [Device(i, "NVIDIA H100 80GB HBM3") for i in range(devices)]
        self._processes = [Process(100 + i) for i in range(processes)]
        self._threads = [Thread(process, 1 + i, names) for i, (process, names) in enumerate(threads)]
        self._format = format
        self._correlation = 0

    def text(self, value):
        return self._strings.setdefault(value, len(self._strings))

    def kernel(
        self,
        start,
        end,
        *,
        launch=None,
        thread=MAIN,
        name=GEMM,
        device=0,
        stream=7,
        api="cudaLaunchKernel",
        **columns,
    ):
        """A kernel; ``launch`` is the (start, end) of its launch call, None leaves it without one."""
        correlation = 0
        if launch is not None:
            self._correlation += 1
            correlation = self._correlation
            self.call(*launch, api, thread=thread, correlation=correlation)
        row = {"kind": OperationKind.KERNEL, "process": self._threads[thread].process, **columns}
        row.update(
            start_ns=start,
            end_ns=end,
            name=self.text(name),
            device=device,
            stream=stream,
            correlation=correlation,
        )
        self._operations.append(row)
        return self

    def copy(self, start, end, *, launch=None, kind=CopyKind.HTOD, **columns):
        return self.kernel(
            start,
            end,
            launch=launch,
            name="Memcpy",
            api="cudaMemcpyAsync",
            kind=OperationKind.COPY,
            copy_kind=kind,
            **columns,
        )

    def call(self, start, end, name, *, thread=MAIN, correlation=0, driver=0):
        self._calls.append(
            dict(
                start_ns=start,
                end_ns=end,
                name=self.text(name),
                thread=thread,
                correlation=correlation,
                driver=driver,
            )
        )
        return self

    def range(self, start, end, name, *, thread=MAIN, kind=RangeKind.ANNOTATION, domain=None, **columns):
        domain = -1 if domain is None else self.text(domain)
        row = dict(start_ns=start, end_ns=end, name=self.text(name), thread=thread, kind=kind, domain=domain)
        self._ranges.append(row | columns)
        return self

    def trace(self):
        return Trace(
            source=Source("made.sqlite", self._format, "made by hand"),
            strings=list(self._strings),
            processes=self._processes,
            threads=self._threads,
            devices=self._devices,
            operations=_table(Operations, self._operations),
            calls=_table(Calls, self._calls),
            ranges=_table(Ranges, self._ranges),
        )


def _table(kind, rows):
    names = sorted({name for row in rows for name in row})
    filled = {f: kind.of(1).__dict__[f][0] for f in names}
    return kind.of(len(rows), **{n: np.array([row.get(n, filled[n]) for row in rows]) for n in names})
