"""A trace without a GPU: the host time of operators and phases, equal to the brute force."""

from pathlib import Path

import profkit
from tests.exactness.brute_force import operators
from tests.exactness.plain_files import read_plainly

CPU_ONLY = Path(__file__).parent / "cpu_mlp.json.gz"
"""Three steps of a two-layer network on the CPU (torch 2.13, torch.profiler with shapes)."""


def test_host_times_of_operators_equal_the_brute_force() -> None:
    rows: dict[str, dict[str, int]] = {}
    for row in profkit.analyze(CPU_ONLY).document.operators:
        known = rows.setdefault(row.name, {"count": 0, "host_ns": 0, "host_self_ns": 0})
        for key in known:
            known[key] += getattr(row, key)
    by_hand = operators(read_plainly(CPU_ONLY))
    assert len(by_hand) > 40
    assert rows == by_hand


def test_host_times_of_phases_are_the_sums_of_their_ranges() -> None:
    by_hand: dict[str, tuple[int, int]] = {}
    for span in read_plainly(CPU_ONLY).spans:
        if span.kind == "annotation" and not span.name.startswith(("ProfilerStep", "Optimizer.")):
            count, total = by_hand.get(span.name, (0, 0))
            by_hand[span.name] = (count + 1, total + span.end - span.start)
    rows = profkit.analyze(CPU_ONLY).document.phases
    assert {row.name: (row.count, row.host_wall_ns) for row in rows} == by_hand
    assert {row.path for row in rows} == {"forward", "forward/loss", "backward", "optimizer"}


def test_a_trace_without_a_gpu_has_no_verdict() -> None:
    result = profkit.analyze(CPU_ONLY).document
    assert result.verdict.bound == "unknown"
    assert result.devices == []
    assert result.window.wall_ns > 0
