"""Many ranks and files are told by what is unlike the others."""

import pytest

from profkit.api.inputs import expand
from profkit.rendering.digest import facts
from profkit.rendering.html import render_html
from profkit.rendering.rank_lines import rank_lines
from profkit.rendering.text import render_text
from tests.rendering.sample_reports import multi_rank
from tests.rendering.samples import MS, edited


def of_ranks(count, **odd):
    """Ranks in the order of their names as text, of which those in ``odd`` have another step in ms."""

    def change(values):
        shares = values["ranks"][0]["shares"]
        values["ranks"] = [
            {"rank": int(rank), "step_ns": odd.get(f"r{rank}", 20) * MS, "shares": shares, "late_ns": int(rank),
             "straggler": rank == "37", "exposed_waiting_ns": 3 * MS, "causes_wait_ns": 0}
            for rank in sorted(map(str, range(count)))
        ]  # fmt: skip
        values["inputs"] = [
            {"path": f"job7_rank{rank}.json", "format": "kineto", "tool": "torch.profiler", "tool_version": None, "ranks": [rank]}
            for rank in range(count)
        ]  # fmt: skip

    return edited(multi_rank(), change)


def test_few_ranks_are_all_told_in_the_order_of_their_numbers():
    assert [line.name for line in rank_lines(of_ranks(8, r3=30))] == list("01234567")


def test_of_many_ranks_the_odd_ones_come_first_and_the_others_are_one_line():
    lines = rank_lines(of_ranks(64, r5=30, r12=10))
    assert [line.name for line in lines] == ["37", "5", "12", "61 alike (median)"]
    assert (lines[-1].step_ns, lines[-1].waits_ns, lines[-1].straggler) == (20 * MS, MS, False)


def test_one_rank_beside_odd_ones_is_told_by_its_number():
    steps = {f"r{rank}": 20 + 5 * rank for rank in range(1, 9)}
    assert [line.name for line in rank_lines(of_ranks(9, **steps))] == [*"01235678", "4"]


@pytest.mark.parametrize("render", [render_html, render_text])
def test_files_that_differ_in_their_number_are_told_by_their_pattern(render):
    report = of_ranks(64)
    assert "job7_rank*.json (64 files) (torch.profiler)" in facts(report)
    assert "job7_rank*.json (64 files)" in " ".join(render(report).split())
    assert "rank63.json" not in render(report)


def test_files_of_a_folder_are_read_in_the_order_of_their_numbers(tmp_path):
    for rank in (10, 9, 1):
        (tmp_path / f"rank{rank}.json").write_text("{}")
    for path in (tmp_path, f"{tmp_path}/*.json"):
        assert [file.rpartition("/")[2] for file in expand(path)] == [
            "rank1.json",
            "rank9.json",
            "rank10.json",
        ]
