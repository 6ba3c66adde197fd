import re

import pytest

from profkit.rendering.markdown import render_markdown
from tests.rendering.sample_reports import SAMPLES, compute_bound, launch_bound
from tests.rendering.samples import edited


@pytest.mark.parametrize("name", SAMPLES)
def test_every_table_has_as_many_cells_in_each_row(name):
    for block in render_markdown(SAMPLES[name]()).split("\n\n"):
        if block.startswith("| "):
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


def test_the_story_is_told_in_the_order_of_the_page():
    text = render_markdown(launch_bound())
    titles = ["## Launch-bound", "**Launch overhead**", "### Trace health", "### What to do", "### Steps", "### Phases",
              "### Kernels", "### Idle", "### Synchronisation"]  # fmt: skip
    places = [text.index(title) for title in titles]
    assert places == sorted(places)


def test_numbers_are_per_step_and_what_is_left_out_is_counted():
    assert "| 57 % | 19.4 ms |" in render_markdown(compute_bound())
    assert "… and 45 more." in render_markdown(launch_bound())


def test_code_belongs_to_its_entry_of_the_list():
    def change(values):
        values["advice"] = values["advice"][:1] * 10

    lines = render_markdown(edited(compute_bound(), change)).splitlines()
    code = [line for line in lines if "torch.compile(model)" in line]
    assert code == [*["   model = torch.compile(model)"] * 9, "    model = torch.compile(model)"]


def test_no_name_is_html_a_link_or_a_mention():
    text = render_markdown(SAMPLES["hostile"]())
    prose = re.sub(r"(?ms)^ *(`{3,})python$.*?^ *\1$", "", text)  # in a block of code nothing means anything,
    prose = re.sub(r"`[^`\n]*`", "", prose)  # nor in a code span
    assert not re.search(r"<(?!br)", prose)
    assert "](" not in prose
    assert not re.search(r"@\w", prose)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e\ud800-\udfff]", text)
