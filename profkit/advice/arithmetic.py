"""Rules about number formats and sizes: TF32, autocast, fp8, fp64 by accident, alignment."""

from __future__ import annotations

import numpy as np

from profkit.advice.rule import Case, Evidence, Flags, Rule, kernels_seen
from profkit.hardware import TENSOR, VECTOR
from profkit.model.kernel_class import Family
from profkit.model.names import Level
from profkit.roofline.autocast import autocast_rows, autocast_together
from profkit.roofline.precision_map import WindowKernels
from profkit.simulation.debugging import scaler_kernels
from profkit.simulation.precision import misaligned, misaligned_sizes, simt_products, wide_products
from profkit.units import duration_text, percent_text

__all__ = ["RULES"]

_LARGE_PRODUCT_FLOP = 2e10
_ACCIDENT = 0.01
"""Of the step: where it waits for its host, the device's time counts for less."""
_MOST_SIZES = 4
_FIRST_BF16 = 8.0
"""The compute capability from which on GPUs multiply bf16 (CUDA C++ Programming Guide, compute capabilities)."""
_FP16_TRAINING = (
    "Wrap forward and loss, not backward or optimizer; weights stay fp32. Scale the loss: small gradients are zero in fp16.",
    'scaler = torch.amp.GradScaler("cuda")\nwith torch.autocast("cuda", dtype=torch.float16):\n    loss = loss_fn(model(x), y)\n'
    "scaler.scale(loss).backward()\nscaler.step(optimizer)\nscaler.update()",
)
_FP16 = ("Load the weights in float16.", "model = model.half()")
_CONVOLUTIONS_IN_TF32 = "Allow TF32 for convolutions: something turned cuDNN's own switch off."


def _share_of_products(case: Case, chosen: Flags) -> str:
    """The share that the precision section's map shows: of the whole window, without the kernels beside products."""
    kernels, name = WindowKernels.of(case.view), case.view.trace.operations.name
    among = np.isin(name[kernels.row], name[case.facts.program.row[chosen]]) & kernels.matrix
    return percent_text(float(kernels.duration_ns[among].sum() / max(kernels.duration_ns.sum(), 1)))


def _tf32(case: Case) -> Evidence | None:
    facts, gpu = case.facts, case.facts.gpu
    chosen = simt_products(facts)
    fast, slow = (gpu.peak("tf32", TENSOR), gpu.peak("fp32", VECTOR)) if gpu else (None, None)
    if not chosen.any() or not fast or not slow or fast < 1.2 * slow or case.capability < 8:
        return None
    convolutions = facts.share(chosen & facts.of_family(Family.CONVOLUTION)) > 0.5 * facts.share(chosen)
    return Evidence(
        f"Matrix products in fp32 take {_share_of_products(case, chosen)} of the kernels' time, on CUDA cores. "
        f"In TF32, this GPU's Tensor Cores are up to {fast / slow:.1f} times as fast.",
        kernels_seen(facts, chosen),
        ["tf32"],
        "high",
        # cuDNN has a switch of its own, which is on unless the program turned it off.
        action=_CONVOLUTIONS_IN_TF32 if convolutions else "",
        code="torch.backends.cudnn.allow_tf32 = True" if convolutions else "",
    )


def _autocast(case: Case) -> Evidence | None:
    facts, gpu = case.facts, case.facts.gpu
    chosen = wide_products(facts) & ~facts.optimizer
    peak = gpu.peak("bf16", TENSOR) or gpu.peak("fp16", TENSOR) if gpu else None
    if not chosen.any() or peak is None or case.capability < 7:
        return None
    narrow = facts.matrix & np.isin(facts.dtype.astype(str), ("bf16", "fp16"))
    if facts.share(narrow) > facts.share(chosen):
        return None
    told = f"Matrix products with 32-bit inputs take {_share_of_products(case, chosen)} of the kernels' time."
    seen = kernels_seen(facts, chosen)
    confidence: Level = "medium" if facts.compiled.any() else "high"
    if case.capability >= _FIRST_BF16:
        faster = "In 16 bits they run at least twice as fast as in TF32, and the kernels around them move half the bytes."
        return Evidence(f"{told} {faster}", seen, ["bf16"], confidence)
    faster = "This GPU has Tensor Cores for fp16, not for bf16 or TF32, and the kernels around them would move half the bytes."
    action, code = _FP16_TRAINING if facts.optimizer.any() else _FP16
    return Evidence(f"{told} {faster}", seen, ["bf16"], "medium", action, code)


def _scaler(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = facts.once(scaler_kernels)
    if not chosen.any() or case.capability < 8:
        return None
    return Evidence(
        "A GradScaler reads and writes every gradient, and the host waits for its result in each step. bf16 has the range "
        "of fp32 and needs no scaler.",
        kernels_seen(facts, chosen),
        ["no-scaler"],
    )


def _fp8(case: Case) -> Evidence | None:
    facts, gpu = case.facts, case.facts.gpu
    products = (facts.family == Family.GEMM) & np.isin(facts.dtype.astype(str), ("bf16", "fp16"))
    large = products & (np.nan_to_num(facts.flop) > _LARGE_PRODUCT_FLOP)
    if gpu is None or gpu.peak("fp8", TENSOR) is None or facts.share(large) < 0.6:
        return None
    return Evidence(
        f"Large products in 16 bits take {percent_text(facts.share(large))} of the device's time, and this GPU "
        "multiplies fp8 at up to twice that rate. The library's casts and scales take part of the gain.",
        kernels_seen(facts, large),
        None,
        "low",
    )


def _fp64(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = facts.dtype == "fp64"
    if facts.share(chosen) < 0.01:
        return None
    return Evidence(
        f"Kernels in fp64 take {percent_text(facts.share(chosen))} of the device's time. fp64 moves twice the bytes of "
        "fp32, and most GPUs compute it at a small fraction of the rate.",
        kernels_seen(facts, chosen),
        ["fp32"],
    )


def _alignment(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = misaligned(facts)
    if not chosen.any():
        return None
    sizes = misaligned_sizes(facts, chosen)
    named = ", ".join(f"{size} ({dimension})" for size, dimension in sizes[:_MOST_SIZES])
    told = (
        f"Not a multiple of 8: {named}." if named else "A size is not a multiple of 8 (16-bit) or 4 (TF32)."
    )
    return Evidence(
        f"Products that take {percent_text(facts.share(chosen))} of the device's time use kernels for rows not aligned "
        f"to 16 bytes. {told}",
        kernels_seen(facts, chosen),
        ["aligned"],
    )


def _accident(case: Case) -> Evidence | None:
    found = autocast_together(autocast_rows(case.view))
    rows = [row for row in found.operators if not row.by_design] if found else []
    spent = sum(row.ns for row in rows)
    work = case.view.trace.operations
    whole = float((work.end_ns - work.start_ns)[case.view.kept].sum())
    busy = min(case.step.unchanged.device_busy_ns / max(case.step.plain_ns, 1.0), 1.0)
    if not rows or spent * busy < _ACCIDENT * whole:
        return None
    seen = [
        f"{row.name}{' at ' + row.where if row.where else ''}{' takes ' + row.takes if row.takes else ''}: {row.count}x, "
        f"{duration_text(row.ns)} in all"
        for row in rows[:4]
    ]
    said = (
        "Under autocast, operators run in fp32 or cast their inputs without need"
        if found and found.types
        else "In a 16-bit model, small operands of a wider type widen others"
    )
    return Evidence(
        f"{said}: {percent_text(spent / whole)} of the device's time.",
        seen,
        None,
        "high",
    )


_NUMERICS = (
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices"
)
_AMP = "https://docs.pytorch.org/docs/stable/amp.html"

RULES = (
    Rule(
        "tf32", "Let fp32 matrix products use TF32", _tf32,
        "Allow TF32 for matrix products, before the model is built.",
        'torch.set_float32_matmul_precision("high")',
        "The sgemm kernels become TF32 ones (tensorop, s1688, tf32). Compare the loss over a few hundred steps.",
        ("Inputs keep 10 bits of mantissa: not for ill-conditioned problems or fp32 references.",
         "No gain if the step is host-bound."), _NUMERICS,
        change="tf32",
    ),
    Rule(
        "bf16-autocast", "Run forward and loss in 16 bits with autocast", _autocast,
        "Wrap forward and loss, not backward or optimizer; weights stay fp32.",
        'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = loss_fn(model(x), y)\nloss.backward()',
        "Matrix kernels work in 16 bits, and the loss curve stays the same.",
        ("Casts are kernels too: a host-bound step gets slower.",
         "Sums over many small terms need fp32: autocast keeps norms, softmax and losses there."), _AMP,
        change="bf16",
    ),
    Rule(
        "bf16-without-scaler", "Use bf16 instead of fp16 with a GradScaler", _scaler,
        "On Ampere and later, cast to bfloat16 and remove the scaler.",
        'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = loss_fn(model(x), y)\nloss.backward()\noptimizer.step()',
        "The _amp_ kernels and the wait before optimizer.step are gone.",
        ("bf16 has 8 bits of mantissa to fp16's 11.",), _AMP,
        change="no-scaler",
    ),
    Rule(
        "fp32-by-accident", "Keep 16 bits where nothing asks for more", _accident,
        "Cast masks, buffers and parameters to the 16-bit type once. Run losses, norms and products inside the region, and backward outside.",
        "mask = mask.to(torch.bfloat16)   # once: fp32 beside bf16 gives fp32",
        "The operators above take and give 16 bits; the report's precision table lists no accident.",
        ("What autocast's lists keep in fp32 is not counted here.",), _AMP,
    ),
    Rule(
        "fp8", "Consider fp8 for the large products", _fp8,
        "Replace the large linear layers by fp8 ones (torchao, TransformerEngine); sizes must be multiples of 16.",
        "from torchao.float8 import convert_to_float8_training\nconvert_to_float8_training(model)",
        "Products become e4m3 kernels. Check the loss over a whole run.",
        ("Watch the accuracy.", "It needs torch.compile to fuse the casts, and small layers get slower."),
        "https://docs.pytorch.org/ao/stable/workflows/training.html",
    ),
    Rule(
        "fp64", "Compute in fp32 instead of fp64", _fp64,
        "Find where float64 enters (often a NumPy array) and convert it once.",
        "x = torch.as_tensor(array, dtype=torch.float32)",
        "No kernel computes in fp64 any more.",
        ("Keep fp64 where the problem needs it.",),
        "https://docs.pytorch.org/docs/stable/generated/torch.set_default_dtype.html",
        change="fp32",
    ),
    Rule(
        "alignment", "Pad matrix sizes to multiples of 8", _alignment,
        "Round the vocabulary and other sizes up to a multiple of 64 (at least 8), and mask the padding.",
        "vocabulary = (vocabulary + 63) // 64 * 64   # 50257 -> 50304",
        "None of the kernels above has align1 or align2 in its name any more.",
        ("Padding adds arithmetic to very small sizes.", "Losses and samplers must ignore the padding."),
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
        change="aligned",
    ),
)  # fmt: skip
