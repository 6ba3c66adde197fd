"""The representative step: each bar says which phase it belongs to."""

from pathlib import Path

import pytest

import profkit

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("name", ["nsys/gpt_bf16.sqlite.gz", "kineto/gpt_bf16.json.gz"])
def test_idle_bars_have_the_phase_of_the_gap_that_they_are(name):
    result = profkit.analyze([DATA / name]).document
    bars = {bar[0]: bar for lane in result.timeline.lanes if lane.kind == "idle" for bar in lane.bars}
    phases = {
        gap.phase: (gap.phase, bars[gap.start_ns][4]) for gap in result.idle.gaps if gap.start_ns in bars
    }
    assert len(phases) > 1
    assert all(gap == bar for gap, bar in phases.values())


@pytest.mark.parametrize("name", ["nsys/gpt_bf16.sqlite.gz", "kineto/gpt_bf16.json.gz"])
def test_bars_of_streams_and_threads_name_phases_of_the_report(name):
    result = profkit.analyze([DATA / name]).document
    known = {row.path for row in result.phases} | {None}
    for kind in ("stream", "thread"):
        found = {bar[4] for lane in result.timeline.lanes if lane.kind == kind for bar in lane.bars}
        assert found <= known
        assert {"forward", "backward"} <= {path.split("/")[0] for path in found if path}
