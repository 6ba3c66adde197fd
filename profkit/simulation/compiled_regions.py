"""Compiled regions of a step: their graphs and versions, and a step without their breaks or their compilation."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from profkit.model.states import State
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.fusion import compile_model
from profkit.simulation.kernel_facts import StepFacts

__all__ = ["compilation_ns", "compile_once", "graphs_of", "join_regions", "newest_version", "regions"]

_REGION: Final = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")


def regions(facts: StepFacts) -> list[tuple[int, int]]:
    """Graph and version of every compiled region of the step."""
    since, until = facts.host_span
    ranges, strings = facts.view.trace.ranges, facts.view.trace.strings
    inside = (ranges.start_ns >= since) & (ranges.start_ns < until)
    found = [_REGION.match(strings[i]) for i in ranges.name[inside].tolist() if i >= 0]
    return [(int(m[1]), int(m[2])) for m in found if m]


def graphs_of(facts: StepFacts) -> list[int]:
    """The numbers of the compiled graphs, ascending."""
    return sorted({graph for graph, _ in facts.once(regions)})


def newest_version(facts: StepFacts) -> int:
    """How often the region that was compiled most often was compiled again."""
    return max((version for _, version in facts.once(regions)), default=0)


def compilation_ns(facts: StepFacts) -> int:
    """What the launching threads spend on compilation within the step."""
    view, (since, until) = facts.view, (np.array([at]) for at in facts.host_span)
    threads = np.unique(view.launches.thread[facts.program.row]).tolist()
    return sum(
        int(view.activity.of_thread(thread)[State.COMPILATION].within(since, until).sum())
        for thread in threads
    )


def join_regions(edited: EditedStep) -> None:
    """One graph instead of several: entered once, and the kernels between them compiled, too."""
    count, tokens = len(edited.facts.once(regions)), len(edited.gap_ns)
    if not count:
        return
    entering = (count - 1) * 2 * edited.usual_launch_ns
    edited.gap_ns -= min(entering, 0.5 * float(edited.gap_ns.sum())) / tokens
    edited.gap_ns = np.maximum(edited.gap_ns, 0)
    compile_model(edited)


def compile_once(edited: EditedStep) -> None:
    """No compilation in the step."""
    spent = edited.facts.once(compilation_ns)
    edited.gap_ns *= max(0.0, 1 - float(spent) / max(float(edited.gap_ns.sum()), 1.0))
