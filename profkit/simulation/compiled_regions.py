"""Compiled regions of a step: their graphs and versions, and a step without their breaks or their compilation."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from profkit.model.states import State
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.fusion import compile_model
from profkit.simulation.kernel_facts import StepFacts
from profkit.timeline.range_names import matching

__all__ = [
    "Region", "all_regions", "breaks_of", "compilation_ns", "compile_once", "graphs_of", "join_regions", "newest_version", "regions",
]  # fmt: skip

_FEWEST_GRAPHS: Final = 3
"""Of graphs that follow each other; two may be two models."""
_REGION: Final = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")


class Region(NamedTuple):
    """A compiled region that ran in the step."""

    row: int
    """Of ``Trace.ranges``."""
    graph: int
    version: int


def regions(facts: StepFacts) -> list[Region]:
    """Every compiled region of the step, in the order of their starts."""
    since, until = facts.host_span
    starts = facts.view.trace.ranges.start_ns
    return [each for each in facts.once(all_regions) if since <= starts[each.row] < until]


def all_regions(facts: StepFacts) -> list[Region]:
    """Every compiled region of the recording, in the order of their starts."""
    ranges, strings = facts.view.trace.ranges, facts.view.trace.strings
    rows = np.flatnonzero(matching(strings, ranges.name, lambda name: _REGION.match(name) is not None))
    rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
    found = [(row, _REGION.match(strings[ranges.name[row]])) for row in rows.tolist()]
    return [Region(row, int(m[1]), int(m[2])) for row, m in found if m]


def breaks_of(facts: StepFacts) -> list[tuple[Region, Region]]:
    """Each region of the step with the one before it on its thread, where that is of another graph.

    What follows a break runs inside the region before it; modules that are compiled one by one follow each other.
    """
    ranges = facts.view.trace.ranges
    last, until, found, inside = dict[int, Region](), dict[int, int](), [], []
    for region in facts.once(regions):
        thread, ends = int(ranges.thread[region.row]), int(ranges.end_ns[region.row])
        if thread in last and last[thread].graph != region.graph:
            found.append((last[thread], region))
            inside.append(ends <= until[thread])
        last[thread], until[thread] = region, max(until.get(thread, 0), ends)
    nested = [pair for pair, within in zip(found, inside, strict=True) if within]
    return nested or (found if len(graphs_of(facts)) >= _FEWEST_GRAPHS else [])


def graphs_of(facts: StepFacts) -> list[int]:
    """The numbers of the compiled graphs, ascending."""
    return sorted({region.graph for region in facts.once(regions)})


def newest_version(facts: StepFacts) -> int:
    """How often the region that was compiled most often was compiled again."""
    return max((region.version for region in facts.once(regions)), default=0)


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
