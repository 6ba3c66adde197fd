import json

import pytest
from click.testing import CliRunner

from profkit.cli.whatif import command
from tests.shared import DATA

TINY = str(DATA / "kineto" / "tiny_mlp.json.gz")


def run(*arguments):
    return CliRunner().invoke(command, [*arguments], catch_exceptions=False)


def test_changes_are_shown_alone_and_together():
    found = json.loads(run(TINY, "--fused-optimizer", "--cuda-graphs", "--json").output)

    assert [row["name"] for row in found["changes"]] == [
        "cuda-graphs",
        "fused-optimizer",
        "cuda-graphs + fused-optimizer",
    ]
    together = found["changes"][-1]
    assert together["after_ns"] < min(row["after_ns"] for row in found["changes"][:-1])


def test_the_text_says_what_becomes_the_limit():
    text = run(TINY, "--fused-optimizer").output

    assert "fused-optimizer" in text
    assert "limited by the host" in text


def test_the_plain_time_is_taken_as_it_is_given():
    found = json.loads(run(TINY, "--plain-step", "17.5ms", "--json").output)

    assert found["before_ns"] == pytest.approx(17_500_000, rel=0.01)


def test_a_time_that_is_none_is_wrong_usage():
    found = CliRunner().invoke(command, [TINY, "--plain-step", "soon"])

    assert found.exit_code == 2
    assert "--plain-step" in found.output
