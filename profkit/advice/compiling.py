"""Rules about compiled code: torch.compile, graph breaks, recompilation, CUDA graphs, Python loops."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from profkit.advice.rule import Case, Evidence, Rule, kernels_seen
from profkit.model.states import State
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.fusion import compile_model, fusible
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.launching import capture, lift_waits
from profkit.simulation.preconditions import graphed, inner_waits
from profkit.simulation.registry import refusal
from profkit.units import duration_text, noun_text, percent_text

__all__ = ["RULES"]

_REGION = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")
_LOOPED = ("aten::select", "aten::slice", "aten::index_put_", "aten::copy_")
_FEWEST_IN_A_LOOP = 24
_SMALL_NS = 10_000
_FEWEST_LAUNCHES = 10
"""A graph of fewer launches saves next to nothing of the host."""
_ADDS = 0.9
"""Of the step without its waits: a graph that leaves more is no reason to remove them."""
_COLD = 0.1
"""Of the step: with so much initialisation or compilation in it, the code ran for the first time."""


def _compile(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = fusible(facts)
    if chosen.sum() < 3 or facts.compiled.any() or graphed(case.step) or _ran_once(case):
        return None
    place = " between the matrix products" if facts.matrix.any() else ""
    return Evidence(
        f"{int(chosen.sum())} kernels{place} (pointwise, norms, casts, copies, sums) take "
        f"{percent_text(facts.share(chosen))} of the device's time. Compiled, each chain reads and writes its data once, "
        "and the host launches fewer kernels.",
        kernels_seen(facts, chosen),
        [compile_model],
    )


def _ran_once(case: Case) -> bool:
    """Whether the code ran for the first time, or once: compiling takes longer than it saves."""
    if case.view.kept_count >= 2:
        return False
    since, until = (np.array([at]) for at in case.host_span)
    threads = np.unique(case.view.launches.thread[case.facts.program.row]).tolist()
    cold = sum(
        int(case.view.activity.of_thread(thread)[state].within(since, until).sum())
        for thread in threads
        for state in (State.INITIALISATION, State.COMPILATION)
    )
    return cold > _COLD * case.facts.program.step_ns


def _breaks(case: Case) -> Evidence | None:
    regions = _regions(case)
    frames = {frame for frame, _ in regions}
    eager = fusible(case.facts)
    if len(frames) < 3 or not eager.any():
        return None
    count = len(regions)

    def joined(edited: EditedStep) -> None:
        tokens = len(edited.gap_ns)
        edited.gap_ns -= (
            min((count - 1) * 2 * edited.usual_launch_ns, 0.5 * float(edited.gap_ns.sum())) / tokens
        )
        edited.gap_ns = np.maximum(edited.gap_ns, 0)

    return Evidence(
        f"{count} compiled regions of {len(frames)} graphs run in one step, with {int(eager.sum())} eager kernels "
        "between them. Each entry checks its guards, and nothing is fused across regions.",
        [f"Torch-Compiled Region: {frame}/…" for frame in sorted(frames)[:4]],
        [joined, compile_model],
        "low",
    )


def _recompiles(case: Case) -> Evidence | None:
    view, facts = case.view, case.facts
    since, until = case.host_span
    compiling = sum(
        view.activity.of_thread(t)[State.COMPILATION].within(np.array([since]), np.array([until])).sum()
        for t in np.unique(view.launches.thread[facts.program.row]).tolist()
    )
    versions = max((version for _, version in _regions(case)), default=0)
    if compiling <= 0 or versions < 1:
        return None

    def compiled_once(edited: EditedStep) -> None:
        factor = max(0.0, 1 - float(compiling) / max(float(edited.gap_ns.sum()), 1.0))
        edited.gap_ns *= factor

    return Evidence(
        f"The step spends {duration_text(float(compiling))} on compilation, and a region is in version {versions + 1}. "
        "Some property of the inputs changes from step to step.",
        ["Torch-Compiled Region", "dynamo_timed"],
        [compiled_once],
    )


def _graphs(case: Case) -> Evidence | None:
    facts, program = case.facts, case.step.program
    alike = case.view.kept_count >= 2 and refusal(case.step, "cuda-graphs", ["no-sync"]) is None
    if program.tokens <= _FEWEST_LAUNCHES or not alike:
        return None
    waits = inner_waits(case.step)
    if waits and case.step.after_ns([lift_waits, capture]) > _ADDS * case.step.after_ns([lift_waits]):
        return None
    small = facts.program.duration_ns < _SMALL_NS
    fetching = float(program.input_ns.sum())
    host = case.step.unchanged.host_ns - fetching
    besides = (
        f", besides {duration_text(fetching)} of fetching data,"
        if fetching > 0.01 * case.step.plain_ns
        else ""
    )
    without = (
        f"The host also waits for the device {noun_text(waits, 'time')} inside, which a graph cannot: remove that first."
        if waits
        else "Every step launches the same operations without waiting, so a graph can replay them."
    )
    return Evidence(
        f"The host needs {duration_text(host)}{besides} to launch {facts.count} operations that keep "
        f"the device busy for {duration_text(float(program.duration_ns.sum()))}; {int(small.sum())} of them are shorter "
        f"than {duration_text(_SMALL_NS)}. {without}",
        kernels_seen(facts, small),
        [lift_waits, capture] if waits else [capture],
        "low" if waits else "medium",
        unmet="waits inside: remove .item() and other waits first" if waits else None,
    )


def _loop(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = _repeated(facts) & ~facts.optimizer & ~facts.backward & ~facts.compiled
    if not chosen.any():
        return None
    return Evidence(
        f"{int(chosen.sum()) + 1} launches in a row do the same to equal parts of a tensor: a Python loop over it.",
        kernels_seen(facts, chosen),
        [lambda edited: _vectorise(edited, chosen)],
        "low",
    )


def _repeated(facts: StepFacts) -> NDArray[np.bool_]:
    """The later launches of long runs of one kernel with one grid, on parts of known and equal shapes."""
    operations, rows = facts.view.trace.operations, facts.program.row
    outer = [names[-1] if names else "" for names in facts.operators]
    shapes = np.full(facts.count, -1)
    known = np.array([bool(sizes) for sizes in facts.inputs], bool)
    shapes[known] = facts.view.trace.ranges.shapes[facts.operator_row[known]]
    parts = facts.named(*_LOOPED[:3]) | facts.innermost("aten::copy_")
    columns = (operations.name, operations.grid_x, operations.grid_y, operations.grid_z, operations.stream)
    key = np.stack([np.unique(outer, return_inverse=True)[1].ravel(), shapes, *(c[rows] for c in columns)])
    new = np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0))
    run = np.cumsum(new) - 1
    long = np.bincount(run) >= _FEWEST_IN_A_LOOP
    found: NDArray[np.bool_] = long[run] & ~new & (parts & (shapes >= 0))[np.flatnonzero(new)[run]]
    return found


def _vectorise(edited: EditedStep, chosen: NDArray[np.bool_]) -> None:
    """One launch for each run does the work of all."""
    work = np.where(chosen, np.maximum(edited.duration_ns - edited.constants.start_ns, 0.0), 0.0)
    run = np.cumsum(~chosen)
    first = ~chosen & np.append(chosen[1:], False)
    edited.duration_ns = edited.duration_ns + np.where(first, np.bincount(run, work)[run], 0.0)
    edited.drop(chosen)


def _regions(case: Case) -> list[tuple[int, int]]:
    """Graph and version of every compiled region of the step."""
    since, until = case.host_span
    ranges, strings = case.view.trace.ranges, case.view.trace.strings
    inside = (ranges.start_ns >= since) & (ranges.start_ns < until)
    found = [_REGION.match(strings[i]) for i in ranges.name[inside].tolist() if i >= 0]
    return [(int(m[1]), int(m[2])) for m in found if m]


_COMPILE = "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"

RULES = (
    Rule(
        "torch-compile", "Compile the model", _compile,
        'Compile the model once, before training. Modes: default; "reduce-overhead" adds CUDA graphs; "max-autotune" also tunes matmuls.',
        "model = torch.compile(model)   # model.compile() does nothing to an nn.Sequential of torch's layers",
        'triton_ kernels replace the chains; TORCH_LOGS="graph_breaks,recompiles" stays silent.',
        ("The first steps compile, which takes minutes for large models.", "Changing shapes compile again: pass dynamic=True.",
         "Little to gain where large matmuls dominate."), _COMPILE,
        change="compile",
    ),
    Rule(
        "graph-breaks", "Remove the graph breaks", _breaks,
        "Find what breaks the graph: .item(), print, branches on values, unsupported calls.",
        'torch.compile(model, fullgraph=True)   # raises at the first break\n# TORCH_LOGS="graph_breaks" python train.py',
        "Each step has one Torch-Compiled Region for forward.",
        ("A break outside the hot path costs nothing.",),
        "https://docs.pytorch.org/docs/stable/compile/programming_model.graph_breaks_index.html",
    ),
    Rule(
        "recompilation", "Stop compiling in every step", _recompiles,
        "Find the guard that fails. Mark the sizes that change as dynamic, or pad them to a few.",
        'torch._dynamo.mark_dynamic(x, 1)\n# TORCH_LOGS="recompiles" python train.py',
        "No dynamo_timed range after the first steps.",
        ("Compilation is expected during warm-up: leave those steps out of the recording.",),
        "https://docs.pytorch.org/docs/stable/compile/programming_model.recompilation.html",
    ),
    Rule(
        "cuda-graphs", "Capture the step in a CUDA graph", _graphs,
        'Compile with mode="reduce-overhead", or capture the whole step. The optimizer must be capturable.',
        "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    step()\ngraph.replay()   # each step, after copying the batch into static inputs",
        "One cudaGraphLaunch a step replaces the launches, and the device no longer idles.",
        ("Shapes, addresses and control flow must stay the same.", "Nothing inside may wait for the device (.item(), prints, blocking copies).",
         "Inputs are copied into static buffers, and the graph keeps its memory."),
        "https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs",
        change="cuda-graphs",
    ),
    Rule(
        "python-loop", "Replace the Python loop over a tensor", _loop,
        "Use one operator over the whole tensor.",
        "y = f(x)                      # not: for i in range(len(x)): y[i] = f(x[i])",
        "The repeated launches become one.",
        ("Not where each iteration needs the previous one.",),
        "https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",
    ),
)  # fmt: skip
