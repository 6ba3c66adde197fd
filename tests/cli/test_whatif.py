import json

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli.whatif import command
from profkit.errors import ProfkitError
from tests.shared import DATA

TINY = str(DATA / "kineto" / "tiny_mlp.json.gz")


def run(*arguments):
    return CliRunner().invoke(command, [*arguments], catch_exceptions=False)


def test_changes_are_shown_alone_and_together():
    found = json.loads(run(TINY, "--fused-optimizer", "--cuda-graphs", "--json").output)

    assert [row["name"] for row in found["changes"]] == [
        "fused-optimizer",
        "cuda-graphs",
        "fused-optimizer + cuda-graphs",
    ]
    assert found["schema"] == "profkit.whatif/1"
    assert found["refused"] == []
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


def test_what_cannot_be_made_is_told_with_its_reason_and_is_no_failure():
    found = run(TINY, "--channels-last", "--json")

    assert found.exit_code == 0
    assert json.loads(found.output)["changes"] == []
    assert json.loads(found.output)["refused"] == [
        {"name": "channels-last", "reason": "there are no convolutions"}
    ]
    assert "there are no convolutions" in run(TINY, "--channels-last").output


def test_python_gives_the_same_answer():
    told = json.loads(run(TINY, "--cuda-graphs", "--json").output)

    found = profkit.what_if(TINY, ["cuda-graphs"])

    assert found.changes[0].after_ns == told["changes"][0]["after_ns"]


def test_a_change_that_is_none_is_an_error():
    with pytest.raises(ProfkitError, match="no change is called 'faster'"):
        profkit.what_if(TINY, ["faster"])


@pytest.mark.parametrize(
    ("name", "plain_step_ns"),
    [("tiny_mlp", None), ("tiny_mlp", 3_000_000), ("gpt_fp32", None), ("gpt_fp32", 60_000_000)],
)
def test_a_change_has_the_price_that_advice_gave_it(name, plain_step_ns):
    path = DATA / "kineto" / f"{name}.json.gz"
    rows = profkit.analyze(path, plain_step_ns=plain_step_ns).as_dict()["advice"]
    priced = {row["change"]: row for row in rows if row["speedup"] and not row["precondition_unmet"]}
    alone = {
        row.name: row for row in profkit.what_if(path, list(priced), plain_step_ns=plain_step_ns).changes
    }

    assert priced
    for change, row in priced.items():
        assert alone[change].after_ns == row["after_ns"]
        assert alone[change].speedup.likely == row["speedup"]["likely"]


def test_ranks_of_a_job_are_priced_together():
    ranks = [str(DATA / "kineto" / f"ddp_rank{rank}.json.gz") for rank in range(2)]

    assert "one rank alone" in run(ranks[0], "--bf16-collectives").output
    assert "one rank alone" not in run(*ranks, "--bf16-collectives").output


def test_a_change_alone_is_after_nothing():
    for flags in (["--fused-optimizer"], ["--cuda-graphs"], []):
        first = run(TINY, *flags).output.splitlines()[1]

        assert "after those above" not in first
