"""``--phase``: tables of one phase and what lies in it; the verdict stays that of the step."""

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli import main
from profkit.errors import AnalysisError
from profkit.timeline.phases import is_within
from tests.shared import DATA

GPT = DATA / "run_gpt" / "trace.json.gz"


@pytest.fixture(scope="module")
def whole():
    return profkit.analyze(GPT).document


@pytest.mark.parametrize("name", ["forward", "backward", "forward/attention", "softmax"])
def test_tables_of_a_phase_are_the_whole_tables_cut_to_it(whole, name):
    part = profkit.analyze(GPT, phase=name).document
    inside = [row.path for row in whole.phases if is_within(row.path, name)]
    kernels = sum(phase.ns for row in whole.kernels for path, phase in row.phases.items() if path in inside)
    launches = sum(
        phase.count for row in whole.kernels for path, phase in row.phases.items() if path in inside
    )

    assert inside
    assert [row.path for row in part.phases] == inside
    assert sum(row.total_ns for row in part.kernels) == sum(row.ns for row in part.precision) == kernels
    assert sum(row.count for row in part.kernels) == launches
    assert {path for row in part.kernels for path in row.phases} <= set(inside)
    assert [row for row in whole.operators if row.phase in inside] == list(part.operators)
    assert [row for row in whole.syncs if row.phase in inside] == list(part.syncs)
    assert {gap.phase for gap in part.idle.gaps} <= set(inside)
    assert part.verdict.shares == whole.verdict.shares
    assert part.totals == whole.totals
    assert part.health.findings == whole.health.findings


def test_a_phase_that_is_not_there_is_refused():
    with pytest.raises(AnalysisError, match="no phase has this name"):
        profkit.analyze(GPT, phase="forwards")


def test_the_command_line_shows_one_phase():
    done = CliRunner().invoke(main, ["analyze", str(GPT), "--phase", "backward", "--format", "text"])
    saved = CliRunner().invoke(main, ["analyze", str(GPT), "--phase", "backward", "--save"])

    assert done.exit_code == 0, done.output
    assert "tables of phase backward only" in done.output
    assert saved.exit_code == 2


@pytest.mark.parametrize(
    ("path", "name", "inside"),
    [
        ("forward", "forward", True), ("forward/loss", "forward", True), ("forward/loss", "loss", True),
        ("a/forward/loss/b", "forward/loss", True), ("forward_2", "forward", False), (None, "forward", False),
    ],
)  # fmt: skip
def test_a_name_is_whole_levels_of_a_path(path, name, inside):
    assert is_within(path, name) is inside
