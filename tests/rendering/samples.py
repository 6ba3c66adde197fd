"""Reports as the contract describes them, one for each kind that a renderer must tell well."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec.inspect import (
    NODEFAULT,
    DictType,
    Field,
    ListType,
    Metadata,
    StructType,
    TupleType,
    Type,
    type_info,
)

from profkit.model.names import IDLE_CAUSES, SHARES
from profkit.rendering.document import Document

Row = dict[str, Any]
T = TypeVar("T")

MS = 1_000_000
PEAKS = {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp16": 989.4, "fp8": 1978.9, "fp64": 33.5}


def shares_of(**milliseconds: float) -> dict[str, int]:
    return {name: round(milliseconds.get(name, 0) * MS) for name in SHARES}


def device(device_id: int, shares: dict[str, int], rank: int | None = None) -> Row:
    idle = sum(shares[name] for name in ("launch", "input", "sync", "other"))
    window = sum(shares.values())
    return {
        "id": device_id, "rank": rank, "name": "NVIDIA H200", "peaks": PEAKS, "bandwidth_gbs": 4800.0,
        "peaks_source": "gpus.csv: H200 SXM", "window_ns": window, "shares": shares, "busy_ns": window - idle,
    }  # fmt: skip


def kernel(name: str, family: str, bound: str, count: int, mean_us: float, **more: Any) -> Row:
    total = round(count * mean_us * 1000)
    row: Row = {
        "name": name, "short_name": name.split("<")[0].removeprefix("void ").split("::")[-1], "family": family,
        "dtype": "bf16", "tensor_core": family in ("gemm", "attention"), "count": count, "total_ns": total,
        "mean_ns": round(mean_us * 1000), "median_ns": round(mean_us * 990), "min_ns": round(mean_us * 900),
        "max_ns": round(mean_us * 1200), "share": 0.0, "bound": bound, "basis": "modelled", "efficiency": 0.6,
        "unsaturated": False, "flop": None, "dram_bytes": None, "tflops": None, "gbs": None,
        "phases": {"backward": {"ns": total, "count": count}}, "operators": {"aten::mm": count}, "grid": [132, 1, 1],
        "block": [384, 1, 1], "devices": {"0": total},
    }  # fmt: skip
    if bound in ("overhead", "communication", "unknown"):
        row |= {"efficiency": None, "unsaturated": None, "basis": "inferred"}
    return row | more


def gpt_kernels() -> list[Row]:
    """The kernels of a GPT step in bfloat16: products, attention, normalisation, casts, optimizer."""
    elementwise = "void at::native::vectorized_elementwise_kernel<(int)8, at::native::{}, std::array<char *, 2>>(int, T2, T3)"
    rows = [
        kernel("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm", "compute", 147, 83.3, efficiency=0.71,
               flop=41_200_000_000_000, dram_bytes=14_100_000_000, tflops=3364.0 / 4.8, gbs=1151.0,
               operators={"aten::mm": 147}, grid=[2, 66, 1], source_lines={"model.py:41": 75, "model.py:63": 72}),
        kernel("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT", "gemm", "compute", 108, 81.7, efficiency=0.68,
               flop=29_000_000_000_000, dram_bytes=9_700_000_000, tflops=672.0, gbs=1100.0,
               phases={"forward/attention": {"ns": 4_411_000, "count": 72}, "forward/mlp": {"ns": 4_412_600, "count": 36}}, operators={"aten::addmm": 108}),
        kernel("nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_splitK_NTN", "gemm", "compute", 72, 96.7, efficiency=0.64,
               flop=21_800_000_000_000, dram_bytes=8_100_000_000, tflops=628.0, gbs=1160.0),
        kernel("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 32u, 32u, 256u, "
               "false, true, false>(long, long, float const*)", "norm", "memory", 75, 77.1, efficiency=0.21,
               unsaturated=True, dtype="fp32", dram_bytes=5_060_000_000, flop=12_000_000_000, tflops=2.1, gbs=875.0,
               operators={"aten::native_layer_norm_backward": 75}, grid=[24, 1, 1], block=[32, 32, 1]),
        kernel("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_cga1x1x1_kernel0_0",
               "attention", "compute", 36, 147.8, efficiency=0.33, unsaturated=True, flop=1_740_000_000_000,
               dram_bytes=2_100_000_000, tflops=327.0, gbs=394.0,
               operators={"aten::_scaled_dot_product_cudnn_attention_backward": 36}),
        kernel(elementwise.format("GeluBackwardCUDAKernelImpl(at::TensorIteratorBase &, at::native::GeluType)"),
               "elementwise", "memory", 36, 90.3, efficiency=0.83, dram_bytes=13_000_000_000, flop=9_000_000_000,
               tflops=2.8, gbs=4000.0, operators={"aten::gelu_backward": 36}),
        kernel(elementwise.format("bfloat16_copy_kernel_cuda(at::TensorIteratorBase &)"), "cast", "memory", 147, 18.8,
               efficiency=0.58, phases={"forward": {"ns": 1_300_000, "count": 27}, "backward": {"ns": 1_463_600, "count": 120}}, dram_bytes=7_600_000_000,
               flop=0, tflops=0.0, gbs=2750.0, operators={"aten::copy_": 147}),
        kernel("void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>>", "optimizer",
               "memory", 12, 210.0, efficiency=0.88, dtype="fp32", phases={"optimizer": {"ns": 2_520_000, "count": 12}},
               dram_bytes=10_600_000_000, flop=21_000_000_000, tflops=8.3, gbs=4200.0,
               operators={"aten::_fused_adamw_": 12}),
        kernel("void cub::DeviceReduceSingleTileKernel<cub::Policy600, float *>", "reduce", "overhead", 90, 2.1,
               dtype="fp32", phases={"forward/loss": {"ns": 189_000, "count": 90}}, operators={"aten::sum": 60, "aten::mean": 30}),
        kernel("my_custom_kernel", "other", "unknown", 6, 41.0, dtype=None, tensor_core=None, basis="unknown",
               phases={}, operators={}, grid=None, block=None, devices={}),
    ]  # fmt: skip
    # The same kernel at another launch shape is a row of its own.
    rows.append(
        rows[0]
        | {
            "grid": [4, 33, 1],
            "count": 9,
            "total_ns": 410_000,
            "mean_ns": 45_556,
            "efficiency": 0.52,
            "phases": {"backward": {"ns": 410_000, "count": 9}},
            "devices": {"0": 410_000},
            "operators": {"aten::mm": 9},
        }
    )
    busy = sum(row["total_ns"] for row in rows)
    return [row | {"share": row["total_ns"] / busy} for row in sorted(rows, key=lambda row: -row["total_ns"])]


def steps(count: int, shares: dict[str, int], warm: bool = True) -> list[Row]:
    """Equal kept steps that divide ``shares``, after a slow one that is left out."""
    each = {name: ns // count for name, ns in shares.items()}
    length = sum(each.values())
    idle = each["launch"] + each["input"] + each["sync"] + each["other"]
    rows = []
    for index in range(count + warm):
        kept = index >= warm
        scale = 1 if kept else 2
        rows.append({
            "name": f"step {index}", "kept": kept, "wall_ns": length * scale, "device_ns": length * scale,
            "gpu_busy_ns": (length - idle) * scale, "shares": {name: ns * scale for name, ns in each.items()},
            "start_ns": index * length, "end_ns": (index + 1) * length,
            "bound": max(each, key=lambda name: each[name]), "note": None if kept else "left out: 2.0 times the median of the later steps",
        })  # fmt: skip
    return rows


def phase(path: str, inclusive_ms: float, exclusive_ms: float, bound: str, **shares: float) -> Row:
    return {
        "name": path.split("/")[-1], "path": path, "count": 3, "host_wall_ns": round(inclusive_ms * 0.8 * MS),
        "gpu_inclusive_ns": round(inclusive_ms * MS), "gpu_exclusive_ns": round(exclusive_ms * MS),
        "kernel_count": 120, "bound": bound, "shares": shares_of(**shares), "peak_allocated_bytes": 18 << 30,
    }  # fmt: skip


def idle(shares: dict[str, int], **by_cause_ms: float) -> Row:
    causes = {cause: round(by_cause_ms.get(cause, 0) * MS) for cause in IDLE_CAUSES}
    gaps = [
        {"device": 0, "start_ns": 3 * MS * (index + 1), "dur_ns": round(ms * MS * 0.3), "cause": cause,
         "before": "nvjet_sm90_tst_256x128", "after": "vectorized_elementwise_kernel", "phase": "forward",
         "where": "train.py:88" if cause == "input" else None}
        for index, (cause, ms) in enumerate(by_cause_ms.items())
    ]  # fmt: skip
    return {
        "total_ns": sum(causes.values()),
        "by_cause": causes,
        "gaps": sorted(gaps, key=lambda g: -g["dur_ns"]),
    }


def advice(saving_ms: float = 12.4) -> list[Row]:
    return [
        {"id": "fuse-pointwise", "title": "Compile the model with torch.compile",
         "why": "Casts, GELU and layer norm move the same tensors again and again; fused, they move them once.",
         "evidence": ["342 pointwise kernels in a step take 12.4 ms", "147 of them only change the dtype"],
         "action": "Compile the model before the first step.", "code": "model = torch.compile(model)", "saving_ns": round(saving_ms * MS),
         "speedup": {"low": 1.1, "likely": 1.29, "high": 1.5}, "confidence": "high", "link": "#kernels"},
        {"id": "layer-norm", "title": "Replace the layer-norm backward", "why": "It fills 24 of 132 multiprocessors.",
         "evidence": ["GammaBetaBackward runs at 21 % of the bandwidth"], "action": "Use a fused layer norm.",
         "saving_ns": round(saving_ms / 4 * MS), "speedup": {"low": 1.0, "likely": 1.05, "high": 1.08},
         "confidence": "medium", "link": ""},
    ]  # fmt: skip


def timeline() -> Row:
    bars = [
        [index * 40_000, 31_000, f"kernel {index % 7}", ("compute", "memory")[index % 2], None]
        for index in range(300)
    ]
    return {
        "step": "step 2", "device": 0, "start_ns": 0, "end_ns": 12_200_000, "left_out": 41,
        "lanes": [
            {"kind": "phase", "label": "phases", "bars": [[0, 4 * MS, "forward", "compute", "forward"], [4 * MS, 8 * MS, "backward", "memory", "backward"]]},
            {"kind": "thread", "label": "python 4711", "bars": [[0, 5 * MS, "forward", "host", None], [5 * MS, MS, "aten::item", "sync", None]]},
            {"kind": "stream", "label": "GPU 0 stream 7", "bars": bars},
            {"kind": "idle", "label": "GPU 0 idle", "bars": [[31_000, 9_000, "host", "host", None], [12_000_000, 200_000, "tail", "tail", None]]},
        ],
    }  # fmt: skip


def memory() -> Row:
    gib = 1 << 30
    times = [index * MS for index in range(200)]
    return {
        "devices": [{"id": 0, "peak_allocated_bytes": 41 * gib, "peak_reserved_bytes": 48 * gib,
                     "peak_time_ns": 90 * MS, "fragmentation_bytes": 5 * gib}],
        "peak_allocated_bytes": 41 * gib, "peak_reserved_bytes": 48 * gib, "complete": True,
        "at_peak": [{"category": "activation", "where": "model.py:41 in forward", "bytes": 22 * gib, "count": 480},
                    {"category": "parameter", "where": "train.py:12 in <module>", "bytes": 2 * gib, "count": 150},
                    {"category": None, "where": None, "bytes": gib, "count": 12}],
        "by_phase": [{"path": "forward", "peak_allocated_bytes": 40 * gib, "net_bytes": 22 * gib},
                     {"path": "backward", "peak_allocated_bytes": 41 * gib, "net_bytes": -22 * gib}],
        "never_freed": [{"where": "train.py:70 in log", "bytes": gib // 2, "count": 20}],
        "oom": [{"requested_bytes": 9 * gib, "free_bytes": 3 * gib, "where": "model.py:90 in forward", "kind": "full"}],
        "by_category": [{"category": "activation", "bytes": 22 * gib, "count": 480}],
        "growth": [{"where": "train.py:70 in log", "bytes_per_step": gib // 40, "grown_bytes": gib // 2, "category": "activation", "basis": "steps", "confidence": "high"}],
        "findings": [{"code": "history-truncated", "severity": "warning", "message": "The history begins late.", "count": 1}],
        "allocator": {"fragmentation_at_peak_bytes": 7 * gib, "cuda_allocations": 122, "cuda_frees": 3},
        "stacks": {"name": "all", "bytes": 41 * gib, "count": 600, "children": [
            {"name": "train.py:12 main", "bytes": 30 * gib, "count": 500, "children": [
                {"name": "model.py:41 forward", "bytes": 22 * gib, "count": 480, "children": []}]},
            {"name": "<b>autograd</b>", "bytes": 11 * gib, "count": 100, "children": []}]},
        "steps": [{"step": i, "path": f"step {i}", "peak_allocated_bytes": 41 * gib, "net_bytes": gib, "churn_bytes": 90 * gib} for i in range(20)],
        "largest": {"device": 0, "left_out": {"count": 7, "peak_bytes": 3 * gib}, "rows": [
            {"start_ns": None, "end_ns": None, "start_event": 0, "end_event": 90, "bytes": 2 * gib, "requested_bytes": 2 * gib,
             "category": "parameter", "where": "train.py:12 in <module>", "stack": []},
            {"start_ns": 10 * MS, "end_ns": 60 * MS, "start_event": 3, "end_event": 30, "bytes": 5 * gib, "requested_bytes": 5 * gib,
             "category": "activation", "where": None, "stack": ["train.py:88 main", "model.py:41 forward"]},
            {"start_ns": 60 * MS, "end_ns": 90 * MS, "start_event": 30, "end_event": 40, "bytes": gib, "requested_bytes": gib,
             "category": "gradient", "where": "<b>model.py</b>:70", "stack": []}]},
        "device": 0,
        "curve": [{"id": 0, "device": 0, "time_ns": times, "allocated_bytes": [abs(100 - i % 200) * gib // 3 for i in range(200)],
                  "reserved_bytes": [48 * gib] * 200}],
    }  # fmt: skip


def report(shares: dict[str, int], bound: str, sentence: str, **more: Any) -> Document:
    """A report with one device whose window is the sum of ``shares``; ``more`` replaces fields."""
    total = sum(shares.values())
    verdict: Row = {
        "bound": bound, "share": shares.get(bound, 0) / total if total else 0, "confidence": "inferred",
        "sentence": sentence, "shares": shares, "launch": {"host": shares["launch"], "queue": 0, "small_kernels": 0},
        "basis_shares": {"modelled": 0.2, "inferred": 0.75, "unknown": 0.05}, "runner_up": None, "remedy": None,
        "caveats": [],
    }  # fmt: skip
    values: dict[str, Any] = {
        "inputs": [{"path": "report.sqlite", "format": "nsys", "tool": "Nsight Systems", "tool_version": "2023.4.4", "ranks": []}],
        "devices": [device(0, shares)] if total else [],
        "health": {"ok": True, "findings": [], "kernels_without_launch": 0, "launches_without_kernel": 0,
                   "gpu_ns_without_phase": 0, "events_dropped": {}, "profiler_overhead_ns": None},
        "window": {"start_ns": 0, "end_ns": total, "wall_ns": total, "device_ns": total, "steps": []},
        "verdict": verdict | more.pop("verdict", {}),
        "totals": {"kernel_count": 7, "kernel_sum_ns": total, "kernel_union_ns": total, "gpu_busy_ns": total,
                   "gpu_span_ns": total, "copy_ns": 0, "communication_sum_ns": 0, "communication_exposed_ns": 0, "kernels": []},
        "idle": idle(shares),
        "method": {"thresholds": [
            {"code": "unsaturated", "amount": 0.4, "name": "unsaturated below", "value": "0.4", "source": "design"},
            {"code": "warm-up-step", "amount": 1.1, "name": "warm-up step above", "value": "1.1x the median of the later ones", "source": "docs/numbers.md"}]},
    }  # fmt: skip
    return document_of(values | more)


def document_of(values: Row) -> Document:
    """A report of which only what matters is given: texts and tables are empty otherwise, numbers 0, and all else unknown."""
    return typed(Document, {"schema": "profkit.report/2", **msgspec.to_builtins(values)})


def typed(kind: type[T], values: Row) -> T:
    return msgspec.convert(completed(type_info(kind), values), kind)


def edited(report: Document, change: Callable[[Row], object]) -> Document:
    """A report after a change of its JSON."""
    values = msgspec.to_builtins(report)
    change(values)
    return document_of(values)


def completed(kind: Type, value: Any) -> Any:
    if isinstance(kind, Metadata):
        return completed(kind.type, value)
    if isinstance(kind, StructType) and isinstance(value, dict):
        given = {
            f.encode_name: completed(f.type, value[f.encode_name])
            for f in kind.fields
            if f.encode_name in value
        }
        return {
            **{f.encode_name: empty(f) for f in kind.fields if f.required and f.encode_name not in value},
            **value,
            **given,
        }
    if isinstance(kind, ListType) and isinstance(value, list):
        return [completed(kind.item_type, each) for each in value]
    if isinstance(kind, DictType) and isinstance(value, dict):
        return {name: completed(kind.value_type, each) for name, each in value.items()}
    if isinstance(kind, msgspec.inspect.UnionType) and isinstance(value, dict | list):
        shape = StructType | DictType if isinstance(value, dict) else ListType | TupleType
        return next((completed(k, value) for k in map(bare, kind.types) if isinstance(k, shape)), value)
    return value


def bare(kind: Type) -> Type:
    return bare(kind.type) if isinstance(kind, Metadata) else kind


def empty(field: Field) -> Any:
    assert field.default is NODEFAULT
    kind = bare(field.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return None
    if isinstance(kind, StructType):
        return completed(kind, {})
    if isinstance(kind, msgspec.inspect.LiteralType):
        return kind.values[0]
    blanks = {
        "ListType": [],
        "DictType": {},
        "StrType": "",
        "IntType": 0,
        "FloatType": 0.0,
        "BoolType": False,
    }
    return blanks[type(kind).__name__]
