"""Two stages out of the middle of a recorded pipeline of four: one step of the two is held up from outside."""

from profkit.readers import read
from tests.ranks.reports import summarise
from tests.shared import DATA


def test_the_others_wait_at_most_their_window_and_a_trifle_does_not_explain_it():
    paths = [DATA / "ranks" / "4_gpus" / f"messages_rank{rank}.json.gz" for rank in (1, 2)]
    result = summarise([read(path) for path in paths])
    told = [f.message for f in result.health.findings if f.code == "straggler"]
    assert told
    assert all("97 % of their window" in text for text in told)
    assert result.verdict.straggler.bound is None
    assert "launches" not in result.verdict.sentence
    assert "does not explain" in result.verdict.sentence
