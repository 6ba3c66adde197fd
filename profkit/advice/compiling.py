"""Rules about compiled code: torch.compile, graph breaks, recompilation, CUDA graphs, Python loops."""

from __future__ import annotations

import numpy as np

from profkit.advice.compiled_code import breaks_seen, changed_sizes, place_of
from profkit.advice.rule import Case, Evidence, Rule, kernels_seen
from profkit.model.states import State
from profkit.simulation.compiled_regions import breaks_of, compilation_ns, graphs_of, regions
from profkit.simulation.fusion import fusible
from profkit.simulation.launching import capture, lift_waits
from profkit.simulation.loops import repeated
from profkit.simulation.preconditions import breaks, eager_kernels, inner_waits, recompilation
from profkit.simulation.registry import refusal
from profkit.timeline.intervals import Intervals
from profkit.units import duration_text, noun_text, percent_text

__all__ = ["RULES"]

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
    if chosen.sum() < 3 or eager_kernels(case.step, ()) is not None or _ran_once(case):
        return None
    names = facts.view.trace.operations.name[facts.program.row]
    if not case.view.steps.count and len(np.unique(names)) == 1:
        return None  # One call timed again and again is no chain.
    place = " between the matrix products" if facts.matrix.any() else ""
    return Evidence(
        f"{int(chosen.sum())} kernels{place} (pointwise, norms, casts, copies, sums) take "
        f"{percent_text(facts.share(chosen))} of the device's time. Compiled, each chain reads and writes its data once, "
        "and the host launches fewer kernels.",
        kernels_seen(facts, chosen),
        ["compile"],
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
    facts = case.facts
    if breaks(case.step, ()) is not None:
        return None
    count, ways = len(facts.once(breaks_of)), len(graphs_of(facts))
    return Evidence(
        f"{noun_text(count, 'break')} in a step: {len(facts.once(regions))} compiled regions of {ways} graphs run, with "
        f"{int(fusible(facts).sum())} eager kernels between them. Each entry checks guards, and nothing is fused across regions.",
        breaks_seen(facts)[:4],
        ["no-graph-breaks"],
        "low",
    )


def _recompiles(case: Case) -> Evidence | None:
    if recompilation(case.step, ()) is not None:
        return None
    facts = case.facts
    compiling = facts.once(compilation_ns)
    newest = max(facts.once(regions), key=lambda region: region.version)
    sizes = changed_sizes(facts, newest.graph)
    told = (
        f"A size changes: {sizes}."
        if sizes
        else "Some property of the inputs changes from step to step; this file does not show which."
    )
    return Evidence(
        f"The step spends {duration_text(float(compiling))} on compilation, and graph {newest.graph} is in version "
        f"{newest.version + 1}. {told}",
        [f"Torch-Compiled Region: {newest.graph}/{newest.version}{place_of(facts, newest)}"],
        ["no-recompilation"],
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
    operations, rows = case.view.trace.operations, facts.program.row
    busy = Intervals.of(operations.start_ns[rows], operations.end_ns[rows])  # kernels of two streams overlap
    short = f"; {int(small.sum())} of them are shorter than {duration_text(_SMALL_NS)}" if small.any() else ""
    without = (
        f"The host also waits for the device {noun_text(waits, 'time')} inside, which a graph cannot: remove that first."
        if waits
        else "Every step launches the same operations without waiting, so a graph can replay them."
    )
    return Evidence(
        f"The host needs {duration_text(host)}{besides} to launch {facts.count} operations, which keep "
        f"the device busy for {duration_text(busy.total_ns)}{short}. {without}",
        kernels_seen(facts, small),
        ["no-sync", "cuda-graphs"] if waits else ["cuda-graphs"],
        "low" if waits else "medium",
        unmet="waits inside: remove .item() and other waits first" if waits else None,
    )


def _loop(case: Case) -> Evidence | None:
    facts = case.facts
    chosen = facts.once(repeated)
    if not chosen.any():
        return None
    return Evidence(
        f"{int(chosen.sum()) + 1} launches in a row do the same to equal parts of a tensor: a Python loop runs over it.",
        kernels_seen(facts, chosen),
        ["vectorised-loops"],
        "low",
    )


_COMPILE = "https://docs.pytorch.org/docs/stable/generated/torch.compile.html"

RULES = (
    Rule(
        "torch-compile", "Compile the model", _compile,
        'Compile the model once, before its first call. Modes: default; "reduce-overhead" adds CUDA graphs; "max-autotune" also tunes matmuls.',
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
        change="no-graph-breaks",
    ),
    Rule(
        "recompilation", "Stop compiling in every step", _recompiles,
        "Find the guard that fails. Mark the sizes that change as dynamic, or pad them to a few.",
        'torch._dynamo.mark_dynamic(x, 1)\n# TORCH_LOGS="recompiles" python train.py',
        "No dynamo_timed range after the first steps.",
        ("Compilation is expected during warm-up: leave those steps out of the recording.",),
        "https://docs.pytorch.org/docs/stable/compile/programming_model.recompilation.html",
        change="no-recompilation",
    ),
    Rule(
        "cuda-graphs", "Capture the step in a CUDA graph", _graphs,
        'Compile with mode="reduce-overhead", or capture the whole step. The optimizer must be capturable.',
        "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    step()\ngraph.replay()   # each step, after copying the batch into static inputs",
        "One cudaGraphLaunch per step replaces the launches, and the device is no longer idle.",
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
        change="vectorised-loops",
    ),
)  # fmt: skip
