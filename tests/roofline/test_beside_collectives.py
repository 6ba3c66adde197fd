"""Kernels beside collectives take longer than alone, or do not."""

import pytest

from profkit.report.assembly import summarise
from tests.builders import NCCL, TraceBuilder


def found(beside_ns, alone=4, beside=4, collective=NCCL):
    made, at = TraceBuilder(), 0
    for number in range(alone + beside):
        took = 100_000 if number < alone else beside_ns
        made.kernel(at, at + took, launch=(at, at + 1))
        if number >= alone:
            made.kernel(at, at + took, launch=(at + 2, at + 3), name=collective, stream=8)
        at += took + 1000
    report = summarise([made.trace()])
    return [f for f in report.health.findings if f.code == "slowed-by-collectives"]


def test_the_same_kernel_takes_longer_beside_a_collective():
    (finding,) = found(130_000)
    assert finding.params["slowdown_share"] == pytest.approx(0.3)
    assert finding.params["lost_ns"] == 4 * 30_000
    assert finding.count == 1


@pytest.mark.parametrize(
    "case",
    [
        {"beside_ns": 102_000},
        {"beside_ns": 130_000, "alone": 2},
        {"beside_ns": 130_000, "beside": 2},
        {"beside_ns": 130_000, "collective": "vectorized_elementwise_kernel<4, add>"},
    ],
    ids=["hardly", "too few alone", "too few beside", "no collective"],
)
def test_what_is_not_slowed_by_a_collective(case):
    assert found(**case) == []
