"""A GPU that becomes slower in the course of a recording, and what only looks like it."""

import pytest

from profkit.report.assembly import summarise
from tests.builders import TraceBuilder
from tests.roofline.test_kernel_rows import NVJET

OTHER = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"


def recording(durations, name=NVJET):
    made, at = TraceBuilder(), 0
    for took in durations:
        made.kernel(at, at + took, launch=(at, at + 1), name=name, grid_x=132, grid_y=1, grid_z=1)
        at += took + 100
    return made


def found(made):
    report = summarise([made.trace()])
    return [f for f in report.health.findings if f.code == "clock-dropped"]


def test_the_same_kernel_that_takes_longer_to_the_end_is_a_slower_gpu():
    noise = [0, 400, -300, 200]
    made = recording([98_000 + noise[i % 4] for i in range(30)] + [116_000 + noise[i % 4] for i in range(30)])
    (finding,) = found(made)
    assert finding.params["slowdown_share"] == pytest.approx(0.184, abs=0.01)
    assert finding.params["time_share"] == 1.0


@pytest.mark.parametrize(
    "durations",
    [
        [98_000, 99_000, 98_500, 97_000] * 15,
        [98_000, 116_000] * 30,
        [98_000] * 30 + [116_000] * 5 + [98_000] * 25,
        [98_000] * 55 + [116_000] * 5,
        [116_000] * 30 + [98_000] * 30,
        [98_000] * 5 + [116_000] * 5,
    ],
    ids=["noise", "two kinds in turns", "a disturbance", "only the end", "it becomes faster", "too few"],
)
def test_what_is_no_slower_gpu(durations):
    assert found(recording(durations)) == []


def test_one_kernel_among_others_that_keep_their_time_is_no_slower_gpu():
    made, at = TraceBuilder(), 0
    for i in range(60):
        for name, took in ((NVJET, 98_000 if i < 30 else 116_000), (OTHER, 300_000)):
            made.kernel(at, at + took, launch=(at, at + 1), name=name, grid_x=132, grid_y=1, grid_z=1)
            at += took + 100
    assert found(made) == []


def test_inside_one_step_launches_differ_by_their_data():
    durations = [98_000] * 30 + [116_000] * 30
    length = sum(durations) + 100 * len(durations)

    assert found(recording(durations).range(0, length, "step")) == []
    halves = recording(durations).range(0, 30 * 98_100 - 50, "step").range(30 * 98_100 - 49, length, "step")
    assert len(found(halves)) == 1
