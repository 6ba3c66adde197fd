"""The reports that the renderers are tried on, by the verdict or the trait that each stands for."""

from collections.abc import Callable

from profkit.rendering.document import Document
from tests.rendering.samples import (
    MS,
    advice,
    device,
    gpt_kernels,
    idle,
    kernel,
    memory,
    phase,
    report,
    shares_of,
    steps,
    timeline,
)

HOSTILE = (
    "</script><script>window.__pwned=1</script>",
    "<img src=x onerror=window.__pwned=1>",
    "\"'`${window.__pwned=1}{{7*7}}",
    '=HYPERLINK("http://x")',
    "line\u2028separator\u202eright to left\x1b[31m red \x07bell\x00nul",
    "lone \ud800 surrogate",
    "x" * 10_240,
    "javascript:window.__pwned=1",
    "[red]markup[/red] | pipe *star* `tick`",
)
"""Names that try to be something else than text."""


def compute_bound() -> Document:
    shares = shares_of(compute=58.2, memory=39.6, launch=1.5, unclassified=0.7, other=2.0)
    return report(
        shares, "compute", "Compute-bound: 57 % of the step is spent in kernels that the tensor cores limit.",
        verdict={"runner_up": {"bound": "memory", "share": 0.388}, "confidence": "modelled",
                 "launch": {"host": 800_000, "queue": 400_000, "small_kernels": 300_000}},
        window={"start_ns": 0, "end_ns": 102 * MS, "wall_ns": 105 * MS, "device_ns": 102 * MS, "steps": steps(3, shares)},
        phases=[phase("forward", 33, 9, "memory", compute=12, memory=20, launch=1),
                phase("forward/attention", 14, 14, "compute", compute=9, memory=5),
                phase("forward/mlp", 10, 10, "compute", compute=8, memory=2),
                phase("backward", 61, 61, "compute", compute=41, memory=20),
                phase("optimizer", 5, 5, "memory", memory=5)],
        kernels=gpt_kernels(), advice=advice(), timeline=timeline(), memory=memory(),
        idle=idle(shares, host=0.8, queue=0.4, tail=2.0),
        operators=[{"name": "aten::mm", "phase": "backward", "count": 219, "host_ns": 3 * MS, "host_self_ns": MS, "gpu_ns": 20 * MS}],
        utilisation=[{"device": 0, "metric": "SMs Active [%]", "time_ns": [i * MS for i in range(100)],
                      "value": [None if i == 50 else 60.0 + i % 30 for i in range(100)]}],
    )  # fmt: skip


def memory_bound() -> Document:
    shares = shares_of(memory=11.6, launch=0.2, other=0.05)
    rows = [kernel("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise",
                   "memory", 90, 128.0, efficiency=0.87, dtype="fp32", phases={"chain": {"ns": 11_520_000, "count": 90}})]  # fmt: skip
    return report(
        shares, "memory", "Memory-bound: 98 % of the step moves bytes at 87 % of the card's bandwidth.",
        window={"start_ns": 0, "end_ns": 11_850_000, "wall_ns": 12 * MS, "device_ns": 11_850_000, "steps": steps(3, shares, False)},
        kernels=[row | {"share": 1.0} for row in rows], phases=[phase("chain", 11.6, 11.6, "memory", memory=11.6)],
        idle=idle(shares, host=0.2, tail=0.05), advice=advice(6.0)[:1],
    )  # fmt: skip


def launch_bound() -> Document:
    shares = shares_of(compute=0.4, memory=2.6, launch=47.1, sync=3.2, other=0.5)
    rows = [kernel(f"void at::native::vectorized_elementwise_kernel<4, functor_{i}>", "elementwise", "overhead", 240 - i, 1.6,
                   dtype="fp32", share=0.02, phases={"optimizer": {"ns": round((240 - i) * 1600), "count": 240 - i}}) for i in range(60)]  # fmt: skip
    return report(
        shares, "launch", "Launch-bound: for 88 % of the step the device waits for the host to launch its next kernel.",
        window={"start_ns": 0, "end_ns": 53_800_000, "wall_ns": 55 * MS, "device_ns": 53_800_000, "steps": steps(3, shares)},
        verdict={"launch": {"host": 41 * MS, "queue": 1_100_000, "small_kernels": 5 * MS}, "share": 0.875},
        kernels=rows, phases=[phase("forward", 10, 10, "launch", launch=9, memory=1), phase("optimizer", 30, 30, "launch", launch=30)],
        idle=idle(shares, host=41, queue=1.1, sync=3.2, allocation=0.4, tail=0.1),
        syncs=[{"api": "cudaStreamSynchronize", "operator": "aten::item", "where": "train.py:61", "phase": "forward",
                "count": 120, "blocked_ns": 5 * MS, "cost_ns": 3 * MS}],
        advice=advice(30.0), health= {"findings": [
            {"code": "profiler-cost", "severity": "warning", "message": "The profiler may cost 30 % of this step.", "count": 1}]},
    )  # fmt: skip


def input_bound() -> Document:
    shares = shares_of(compute=12.0, memory=18.0, launch=60.0, input=112.0, transfer=1.0, other=5.0)
    return report(
        shares, "input", "Input-bound: for 54 % of the step the device waits for the next batch.",
        window={"start_ns": 0, "end_ns": 208 * MS, "wall_ns": 209 * MS, "device_ns": 208 * MS, "steps": steps(3, shares)},
        verdict={"launch": {"host": 55 * MS, "queue": MS, "small_kernels": 4 * MS}},
        kernels=gpt_kernels()[:4], phases=[phase("data", 1, 1, "input", transfer=1, input=112)],
        idle=idle(shares, input=112, host=55, queue=1, tail=5), advice=advice(100.0),
    )  # fmt: skip


def unknown() -> Document:
    """A CPU-only trace: host times, no device."""
    return report(
        shares_of(), "unknown", "Unknown: the file has no device events.",
        verdict={"confidence": "unknown", "remedy": "Record with ProfilerActivity.CUDA on a machine with a GPU.", "basis_shares": {}},
        inputs=[{"path": "cpu.json.gz", "format": "kineto", "tool": "torch.profiler", "tool_version": None, "ranks": [0]}],
        health={"ok": False, "findings": [{"code": "no-device-events", "severity": "error",
                               "message": "No kernel, copy or memset is in the file.", "count": 1}]},
        operators=[{"name": "aten::linear", "phase": None, "count": 12, "host_ns": 4 * MS, "host_self_ns": MS, "gpu_ns": 0}],
        phases=[{"name": "forward", "path": "forward", "count": 2, "host_wall_ns": 5 * MS, "gpu_inclusive_ns": 0,
                 "gpu_exclusive_ns": 0, "kernel_count": 0, "bound": "unknown", "shares": shares_of(), "peak_allocated_bytes": None}],
    )  # fmt: skip


def snapshot_only() -> Document:
    return report(
        shares_of(), "unknown", "Unknown: a memory snapshot has no timeline. The allocated peak is 41.0 GiB.",
        inputs=[{"path": "snapshot.pickle", "format": "snapshot", "tool": "torch.cuda.memory", "tool_version": None, "ranks": []}],
        verdict={"confidence": "unknown", "remedy": "Add an nsys export to see time."}, memory=memory(),
    )  # fmt: skip


def multi_rank() -> Document:
    shares = shares_of(compute=20.0, memory=11.0, launch=13.0, communication=16.0)
    both = {name: 2 * ns for name, ns in shares.items()}
    rows = [row | {"devices": {str(index % 2): row["total_ns"]}} for index, row in enumerate(gpt_kernels())]
    rows.append(kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "collective",
                       "communication", 24, 1200.0, share=0.2, devices={"1": 28_800_000}))  # fmt: skip
    return report(
        both, "compute", "Compute-bound: 33 % of the step; communication is close, with 27 % exposed.",
        devices=[device(0, shares, 0), device(1, shares, 1)],
        window={"start_ns": 0, "end_ns": 60 * MS, "wall_ns": 61 * MS, "device_ns": 120 * MS, "steps": steps(3, both)},
        kernels=rows, idle=idle(both, host=26),
        communication=[{"collective": "allreduce", "group": "default", "dtype": "bf16", "count": 24, "bytes": 1 << 28,
                        "total_ns": 28_800_000, "exposed_ns": 16 * MS, "bus_gbs": 184.2}],
        ranks=[{"rank": 0, "step_ns": 20 * MS, "shares": shares, "late_ns": 0, "straggler": False},
               {"rank": 1, "step_ns": 21 * MS, "shares": shares, "late_ns": 900_000, "straggler": True}],
    )  # fmt: skip


def hostile() -> Document:
    """Every name that can come from a file is one that tries to be more than text."""
    shares = shares_of(compute=10.0, memory=5.0)
    rows = [kernel(name, HOSTILE[0] if i == 1 else "gemm", "compute", 10, 100.0 - i, short_name=name, share=0.1,
                   phases={f"{name}/{name}": {"ns": 1_000_000, "count": 10}}, operators={name: 10}, dtype=name[:40]) for i, name in enumerate(HOSTILE)]  # fmt: skip
    full = compute_bound()
    return report(
        shares, "compute", f"Compute-bound {HOSTILE[0]} {HOSTILE[4]}",
        inputs=[{"path": HOSTILE[0], "format": "nsys", "tool": HOSTILE[1], "tool_version": HOSTILE[4], "ranks": []}],
        kernels=rows, phases=[phase(name, 4, 3, "compute", compute=4) | {"name": name} for name in HOSTILE],
        operators=[{"name": n, "phase": n, "count": 1, "host_ns": 1, "host_self_ns": 1, "gpu_ns": 1} for n in HOSTILE],
        syncs=[{"api": n, "operator": n, "where": n, "phase": n, "count": 1, "blocked_ns": 1, "cost_ns": 1} for n in HOSTILE],
        advice=[row | {"title": HOSTILE[1], "why": HOSTILE[2], "action": HOSTILE[0], "code": "\n".join(HOSTILE), "verify": HOSTILE[3], "caveats": list(HOSTILE), "link": HOSTILE[7], "evidence": list(HOSTILE)}
                for row in advice()],
        health={"findings": [{"code": n, "severity": "warning", "message": n, "count": 1} for n in HOSTILE]},
        idle={"total_ns": 0, "by_cause": full.idle.by_cause, "gaps": [
            {"device": 0, "start_ns": 0, "dur_ns": 5, "cause": "host", "before": n, "after": n, "phase": n, "where": n} for n in HOSTILE]},
        memory=memory() | {"never_freed": [{"where": n, "bytes": 5, "count": 1} for n in HOSTILE],
                           "at_peak": [{"category": "activation", "where": n, "bytes": 5, "count": 1} for n in HOSTILE]},
        timeline={"step": HOSTILE[0], "device": 0, "start_ns": 0, "end_ns": 1000, "left_out": 0, "lanes": [
            {"kind": "stream", "label": n[:200], "bars": [[0, 100, n, "compute", n]]} for n in HOSTILE]},
        communication=[{"collective": n, "group": n, "dtype": n, "count": 1, "bytes": 1, "total_ns": 1, "exposed_ns": 1, "bus_gbs": 1.0}
                       for n in HOSTILE],
        utilisation=[{"device": 0, "metric": HOSTILE[0], "time_ns": [0, 1], "value": [1.0, 2.0]}],
        method={"options": {"step": HOSTILE[2]}},
    )  # fmt: skip


SAMPLES: dict[str, Callable[[], Document]] = {
    function.__name__: function
    for function in (
        compute_bound,
        memory_bound,
        launch_bound,
        input_bound,
        unknown,
        snapshot_only,
        multi_rank,
        hostile,
    )
}
