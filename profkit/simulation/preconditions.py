"""What each change needs of a step, or the reason why the step cannot have it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import numpy as np

from profkit.hardware import TENSOR
from profkit.model import OperationKind
from profkit.model.kernel_class import Family
from profkit.simulation.compiled_regions import breaks_of, compilation_ns, newest_version
from profkit.simulation.copies import pageable_copies
from profkit.simulation.debugging import anomaly_checks
from profkit.simulation.fusion import fusible
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.launching import capture, lift_waits, scalar_reads
from profkit.simulation.layouts import handmade_attention, laid_out, planar_norms, recomputed, transposes
from profkit.simulation.optimizers import optimizer_style, zeroing
from profkit.simulation.parallel import collectives_of, of_one_rank
from profkit.simulation.precision import misaligned, simt_products, wide_products
from profkit.simulation.predict import Step
from profkit.simulation.step_program import LAUNCH

__all__ = [
    "any_of", "attention_by_hand", "breaks", "doubles", "driver_allocations", "eager_kernels", "fetching", "fp32_products", "graphed", "inner_waits", "known_gpu",
    "launches_without_waits", "misaligned_products", "of_ranks", "optimizer_of_single_tensors", "pageable_batches", "planar_images",
    "recomputation", "recompilation", "same_every_step", "unfused_optimizer", "values_read_one_by_one", "waits", "wide_types", "zeroed_gradients",
]  # fmt: skip

_GRAPHED: Final = 0.2
"""Of the operations: with more in CUDA graphs, the step is one."""
_ALLOCATES: Final = 0.02
"""Of the step."""
_UNLIKE: Final = 0.01
"""Of the operations: steps that differ by more do not repeat themselves."""

Others = Collection[str]
Unmet = Callable[[Step, Others], str | None]


def any_of(find: Callable[[StepFacts], np.ndarray[tuple[int], np.dtype[np.bool_]]], reason: str) -> Unmet:
    """Something of a kind; else the reason."""
    return lambda step, others: None if step.facts.once(find).any() else reason


def of_ranks(find: Callable[[StepFacts], np.ndarray[tuple[int], np.dtype[np.bool_]]], reason: str) -> Unmet:
    """Collectives of a kind, from the files of several ranks: one alone does not tell transfer from waiting."""

    def unmet(step: Step, others: Others) -> str | None:
        if not step.facts.once(collectives_of).any():
            return "there are no collectives"
        if not step.facts.once(find).any():
            return reason
        alone = step.facts.once(of_one_rank)
        return (
            "one rank alone does not tell transfer from waiting: give the files of all ranks"
            if alone
            else None
        )

    return unmet


def doubles(step: Step, others: Others) -> str | None:
    """Kernels in fp64."""
    return None if (step.facts.dtype == "fp64").any() else "nothing computes in fp64"


def recomputation(step: Step, others: Others) -> str | None:
    """Forward kernels that run again in the backward pass."""
    facts = step.facts
    if recomputed(facts).any():
        return None
    if not any(facts.operators):
        return "recomputation cannot be seen in this file, which has no operators"
    return "nothing is recomputed in the backward pass"


def attention_by_hand(step: Step, others: Others) -> str | None:
    """Products around a softmax over scores."""
    facts = step.facts
    if handmade_attention(facts).any():
        return None
    fused = facts.of_family(Family.ATTENTION).any()
    return "attention is fused already" if fused else "no attention written by hand was found"


def planar_images(step: Step, others: Others) -> str | None:
    """Convolutions with transposes around them, or batch norm over planes."""
    facts = step.facts
    if not facts.of_family(Family.CONVOLUTION).any():
        return "there are no convolutions"
    batch_norms = facts.of_family(Family.NORM) & facts.named("batch_norm", "BatchNorm") & ~laid_out(facts)
    if (transposes(facts) | planar_norms(facts) | batch_norms).any():
        return None
    return "already channels_last: nothing converts the layout"


def misaligned_products(step: Step, others: Others) -> str | None:
    """Kernels for rows that are not aligned."""
    return None if misaligned(step.facts).any() else "no product uses a kernel for misaligned sizes"


def fp32_products(step: Step, others: Others) -> str | None:
    """Products of fp32 on CUDA cores, and a GPU that has TF32."""
    facts, gpu = step.facts, step.facts.gpu
    if gpu is not None and gpu.peak("tf32", TENSOR) is None:
        return "this GPU has no TF32"
    if simt_products(facts).any() or ("fp32" in others and (facts.dtype == "fp64").any()):
        return None
    return _already(facts, ("tf32",)) or _already(facts, ("bf16", "fp16")) or "no product in fp32 was found"


def wide_types(step: Step, others: Others) -> str | None:
    """Products with 32-bit inputs."""
    facts = step.facts
    wide = wide_products(facts) & ~facts.optimizer
    if wide.any() and facts.share(wide) >= facts.share(_products_in(facts, ("bf16", "fp16"))):
        return None
    return _already(facts, ("bf16", "fp16")) or "no matrix products were found"


def optimizer_of_single_tensors(step: Step, others: Others) -> str | None:
    """An optimizer that works on one parameter at a time."""
    return _optimizer(step.facts, ("single",))


def unfused_optimizer(step: Step, others: Others) -> str | None:
    """An optimizer in several passes."""
    return _optimizer(step.facts, ("single", "foreach"))


def zeroed_gradients(step: Step, others: Others) -> str | None:
    """Kernels that zero gradients."""
    return None if zeroing(step.facts).any() else "no gradients are zeroed"


def waits(step: Step, others: Others) -> str | None:
    """Calls inside the step that wait for the device."""
    return None if inner_waits(step) else "nothing inside the step waits for the device"


def eager_kernels(step: Step, others: Others) -> str | None:
    """Kernels that a compiler would fuse."""
    facts = step.facts
    if facts.compiled.any():
        return "already compiled"
    if graphed(step):
        return "already a CUDA graph"
    if not fusible(facts).any():
        return "no kernels that a compiler would fuse"
    if (
        not facts.view.steps.count
        and len(np.unique(facts.view.trace.operations.name[facts.program.row])) == 1
    ):
        return "one kernel repeats without a step, as in a measurement of it: nothing to fuse"
    return None


def breaks(step: Step, others: Others) -> str | None:
    """Several compiled graphs, with kernels between them."""
    if not step.facts.once(breaks_of):
        return "no breaks of compiled graphs were found"
    return None if fusible(step.facts).any() else "no kernels between the compiled graphs"


def recompilation(step: Step, others: Others) -> str | None:
    """Compilation within the step, of a region that was compiled before."""
    again = step.facts.once(compilation_ns) > 0 and step.facts.once(newest_version) > 0
    return None if again else "nothing is compiled again in the step"


def values_read_one_by_one(step: Step, others: Others) -> str | None:
    """Several reads of single values at one time."""
    reads = step.facts.once(scalar_reads).any() and not step.facts.once(anomaly_checks).any()
    return None if reads else "no values are read one by one"


def pageable_batches(step: Step, others: Others) -> str | None:
    """Copies from pageable memory."""
    return None if pageable_copies(step.facts).any() else "no batch is copied from pageable memory"


def driver_allocations(step: Step, others: Others) -> str | None:
    """Calls like cudaMalloc in the step."""
    return None if step.program.allocation_ns.any() else "no memory is asked of the driver"


def known_gpu(step: Step, others: Others) -> str | None:
    """A GPU of the table, whose rates can be compared."""
    return None if step.facts.gpu is not None else "the GPU of the recording is not known"


def fetching(step: Step, others: Others) -> str | None:
    """Data that the launching thread fetches."""
    return None if step.program.input_ns.any() else "the launching thread fetches no data"


def launches_without_waits(step: Step, others: Others) -> str | None:
    """Launches that a graph can replay: the same in every step, without waits, collectives or allocation."""
    if graphed(step):
        return "already a CUDA graph"
    if step.facts.of_family(Family.COMMUNICATION).any():
        return "collectives inside: what a graph makes of them has no price"
    if not same_every_step(step):
        return "the steps launch different numbers of operations"
    if "no-allocation" not in others and step.program.allocation_ns.sum() > _ALLOCATES * step.plain_ns:
        return "memory is asked of the driver inside"
    count = 0 if "no-sync" in others else inner_waits(step)
    if not count:
        return None
    after = step.predict([lift_waits, capture]).likely
    return f"waits inside: remove {_what_waits(step)} first, then {after:.1f}x"


def same_every_step(step: Step) -> bool:
    """Whether the kept steps launch equally many operations; a single one cannot tell, and is taken to."""
    view = step.facts.view
    if view.kept_count < 2:
        return True
    mine = view.trace.operations.device == step.facts.device
    # The first count is of what lies outside all steps.
    counts = np.bincount(view.step_of_operation[mine] + 1, minlength=view.steps.count + 1)
    kept = counts[1:][view.kept_steps]
    return int(kept.max() - kept.min()) <= _UNLIKE * int(kept.max())


def inner_waits(step: Step) -> int:
    """How many calls wait for the device before the last launch; a wait at the very end ends the step."""
    program = step.program
    return int((program.kind[: max(program.tokens - 2, 0)] != LAUNCH).sum())


def graphed(step: Step) -> bool:
    """Whether a good part of the operations comes from CUDA graphs."""
    facts, trace = step.facts, step.facts.view.trace
    operations, rows = trace.operations, facts.program.row
    graphs = (operations.kind[rows] == OperationKind.GRAPH) | (operations.graph_node[rows] != 0)
    calls = trace.names(trace.calls.name[np.maximum(facts.program.call, 0)])
    launched = np.array(["GraphLaunch" in name for name in calls], bool)
    return bool(max(graphs.mean(), launched[facts.token].mean()) > _GRAPHED)


def _what_waits(step: Step) -> str:
    asked = step.facts.innermost("aten::_local_scalar_dense").any()
    return ".item()" if asked else "the waits"


def _products_in(facts: StepFacts, dtypes: tuple[str, ...]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return facts.matrix & np.isin(facts.dtype.astype(str), dtypes)


def _already(facts: StepFacts, dtypes: tuple[str, ...]) -> str | None:
    chosen = _products_in(facts, dtypes)
    if not chosen.any():
        return None
    kinds, counts = np.unique(facts.dtype[chosen].astype(str), return_counts=True)
    return f"already {'TF32' if 'tf32' in dtypes else kinds[np.argmax(counts)]}"


def _optimizer(facts: StepFacts, styles: tuple[str, ...]) -> str | None:
    style = optimizer_style(facts)
    if style in styles:
        return None
    return "no optimizer was found" if style is None else f"the optimizer is already {style}"
