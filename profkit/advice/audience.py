"""Whom advice is for: a program of PyTorch or another, one that trains or only runs a model, and on whose GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from profkit.advice.rule import Rule
from profkit.model import RangeKind
from profkit.readers.registry import format_named
from profkit.timeline.view import TraceView

__all__ = ["Audience", "audience_of", "suited"]

Vendor: TypeAlias = Literal["nvidia", "amd", "intel"]

_TORCH: Final = re.compile(
    r"\bat::|aten::|\bc10::|pytorch|torch|ProfilerStep#|Optimizer\.|^triton_(?:poi|red|per|for|tem)_"
)
_TRAINS: Final = re.compile(
    r"[Bb]ackward|autograd::|Optimizer\.(?:step|zero_grad)|dgrad|wgrad|bprop|_bwd|FusedAdam|FusedSgd|FusedAdagrad|[Oo]ptimizer"
)
_INTEL, _AMD = (
    re.compile(r"\bIntel\b|^ur[A-Z]|^ze[A-Z]"),
    re.compile(r"\bAMD\b|Instinct|Radeon|\bgfx\d|^hip[A-Z]"),
)

_TRAINING: Final = frozenset(
    {
        "anomaly-mode", "bf16-without-scaler", "checkpoint-activations", "collectives-beside-kernels", "ddp-buckets", "ddp-no-sync",
        "ddp-unused-parameters", "exposed-communication", "fp8", "fsdp-prefetch", "fused-loss", "fused-optimizer", "index-gradients",
        "keep-activations", "larger-batch", "pipeline-bubble", "set-to-none",
    }
)  # fmt: skip
"""Rules about gradients, optimizers and what is kept for a backward pass."""

_INFERENCE_WORDS: Final[dict[str, dict[str, str]]] = {
    "bf16-autocast": {
        "title": "Run the model in 16 bits",
        "action": "Load the weights in bfloat16.",
        "code": "model = model.to(torch.bfloat16)",
        "verify": "Matrix kernels work in 16 bits, and the answers stay as good.",
    },
    "cuda-graphs": {"action": 'Compile with mode="reduce-overhead", or capture the whole iteration.'},
    "fp32-by-accident": {
        "action": "Cast masks, buffers and parameters to the region's type once. Run norms and products inside the region."
    },
    "hidden-sync": {
        "action": "Keep results on the device, and read them once at the end. Copy with non_blocking=True.",
        "code": 'results.append(result)   # not: result.item()\ntorch.cuda.set_sync_debug_mode("warn")  # names every wait',
    },
    "tf32": {
        "verify": "The sgemm kernels become TF32 ones (tensorop, s1688, tf32), and the answers stay as good."
    },
    "warm-up": {
        "action": "Let a few iterations pass before recording, and record at least three.",
        "code": "torch.profiler.schedule(wait=5, warmup=1, active=3)",
    },
}
"""What is said differently of a model that does not train."""

_UNLIKE: Final[dict[Vendor, frozenset[str]]] = {
    "nvidia": frozenset(),
    "amd": frozenset({"tf32"}),
    "intel": frozenset(
        {"allocator-churn", "cuda-graphs", "cudnn-benchmark", "fragmentation", "launch-blocking", "tf32"}
    ),
}
"""Rules whose cure does not exist on a GPU. On AMD's, ``torch.cuda`` works as it stands."""


@dataclass(frozen=True)
class Audience:
    """The program that a recording shows."""

    torch: bool
    """Whether anything of PyTorch ran: operators, ranges, or its kernels."""
    trains: bool
    """Whether a backward pass or an optimizer ran."""
    vendor: Vendor
    """Whose GPU it ran on."""


def audience_of(view: TraceView) -> Audience:
    """What kind of program a trace is of, by the names of its kernels, ranges, threads, calls and devices."""
    trace = view.trace
    ranges = trace.ranges.name[trace.ranges.kind != RangeKind.PYTHON]
    ids = np.unique(np.concatenate([trace.operations.name, ranges]))
    names = [trace.strings[i] for i in ids.tolist() if i >= 0]
    threads = [name for thread in trace.threads for name in thread.names]
    calls = [trace.strings[i] for i in np.unique(trace.calls.name).tolist() if i >= 0]
    described = [*(d.name or "" for d in trace.devices), *calls]
    vendor: Vendor = "nvidia"
    if any(_INTEL.search(text) for text in described):
        vendor = "intel"
    elif any(_AMD.search(text) for text in described):
        vendor = "amd"
    engine = any(name.startswith("pt_autograd_") for name in threads)
    known = format_named(trace.source.format)
    written_by_torch = known is not None and known.versioned_by == "pytorch"
    return Audience(
        torch=written_by_torch or engine or any(_TORCH.search(name) for name in names),
        trains=engine or any(_TRAINS.search(name) for name in names),
        vendor=vendor,
    )


def suited(rule: Rule, audience: Audience) -> Rule | None:
    """A rule in the words of a program, or None where it is not for such a program."""
    if not audience.torch or rule.id in _UNLIKE[audience.vendor]:
        return None
    if not audience.trains:
        if rule.id in _TRAINING:
            return None
        said = replace(rule, **_INFERENCE_WORDS.get(rule.id, {}))  # type: ignore[arg-type] # fields of text alone
        rule = replace(said, code=said.code.replace("train.py", "main.py"))
    return _on_intel(rule) if audience.vendor == "intel" else rule


def _on_intel(rule: Rule) -> Rule:
    """``torch.xpu`` has the streams of ``torch.cuda``, but neither its graphs nor its debug mode."""
    lines = [line for line in rule.code.split("\n") if "set_sync_debug_mode" not in line]
    code = "\n".join(lines).replace("torch.cuda.", "torch.xpu.").replace('"cuda"', '"xpu"')
    action = rule.action.replace('"reduce-overhead" adds CUDA graphs; ', "").replace(
        "torch.cuda.", "torch.xpu."
    )
    return replace(rule, code=code, action=action)
