"""What a notebook's cell shows: a summary of a few kB, without scripts, that links to the saved page."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import profkit
from profkit.rendering.notebook import report_cell
from tests.rendering.sample_reports import SAMPLES, compute_bound
from tests.shared import DATA

VOID = {"br"}


class Tags(HTMLParser):
    """Collects tags, and checks that all are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags_of(cell):
    parser = Tags()
    parser.feed(cell)
    assert not parser.open
    return parser.seen


@pytest.mark.parametrize("name", SAMPLES)
def test_a_cell_is_small_and_has_no_scripts_and_no_style_sheet(name):
    cell = report_cell(SAMPLES[name]())
    assert len(cell) < 40_000
    seen = tags_of(cell)
    assert not {tag for tag, _ in seen} & {"script", "style", "iframe", "img", "link"}
    assert not [a for _, attributes in seen for a in attributes if a.startswith("on")]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", cell)


def test_a_cell_tells_verdict_bar_first_advice_and_tables():
    report = profkit.analyze(DATA / "kineto/sync_item.json.gz")
    cell = report._repr_html_()
    assert report.verdict.sentence in cell
    assert report.document.advice[0].title in cell
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", cell)]
    assert sum(widths) == pytest.approx(100, abs=0.1)
    assert report.document.phases[0].name in cell
    assert report.document.kernels[0].short_name.split("<")[0] in cell
    assert len(set(re.findall(r"background:(#\w+)", cell))) == len(widths)


def test_a_cell_links_to_the_page_that_was_saved_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = profkit.analyze(DATA / "kineto/sync_item.json.gz")
    assert 'report.save("report.html")' in report._repr_html_()
    report.save("x.json")
    assert "<a " not in report._repr_html_()
    Path("sub").mkdir()
    report.save("sub/to day#1.html")
    links = [attributes["href"] for tag, attributes in tags_of(report._repr_html_()) if tag == "a"]
    assert links == ["sub/to%20day%231.html"]
    monkeypatch.chdir(tmp_path / "sub")
    assert 'href="to%20day%231.html"' in report._repr_html_()


def test_a_comparison_is_a_small_cell_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pair = (DATA / "pairs/gpt_item.json.gz", DATA / "pairs/gpt_none.json.gz")
    compared = profkit.compare(*pair)
    cell = compared._repr_html_()
    assert compared.comparison.sentence in cell
    assert len(cell) < 40_000
    tags_of(cell)
    compared.save("c.html")
    assert 'href="c.html"' in compared._repr_html_()


def test_names_from_files_are_text():
    hostile = SAMPLES["hostile"]()
    assert "<img" not in report_cell(hostile)
    assert "<script" not in report_cell(hostile)
    assert report_cell(compute_bound()) == report_cell(compute_bound())


def test_the_text_of_a_report_is_kept_and_not_shown_line_by_line_within_jupyter(monkeypatch, tmp_path):
    report = profkit.analyze(DATA / "kineto/sync_item.json.gz")
    outside = str(report)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert str(report) == outside
    assert report.save(tmp_path / "r.txt").read_text() == outside
    assert len(outside) > 1000


def test_a_cell_says_what_to_do_first_where_no_advice_has_a_price():
    cpu = profkit.analyze(DATA / "../exactness/cpu_mlp.json.gz")
    short = profkit.analyze(DATA / "run_gpt/memory_oom.pickle")
    assert "What to do first: Raise the process's memory limit" in short._repr_html_().replace("&#39;", "'")
    # No columns of a GPU that was not there.
    assert ">host<" in cpu._repr_html_()
    assert ">GPU<" not in cpu._repr_html_()


def test_a_late_rank_comes_before_priced_changes_in_a_cell_and_in_a_terminal():
    late = profkit.analyze(sorted((DATA / "ranks/4_gpus").glob("fsdp2_rank*")))
    told = "Analyse the file of rank 3 and that of another rank"
    assert late.document.advice
    assert f"What to do first: {told}" in late._repr_html_()
    assert f"First: {told}" in str(late)
