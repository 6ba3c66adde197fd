import json
import re

import jsonschema
import pytest
from markupsafe import escape

from profkit.rendering.comparisons import COMPARISON_RENDERERS, comparison_schema
from tests.comparison import recordings
from tests.rendering.sample_reports import SAMPLES

PAIRS = [
    (before, after)
    for before in SAMPLES
    for after in ("compute_bound", "hostile", "snapshot_only")
    if after in SAMPLES
]


def compared(before, after):
    return recordings.compared([SAMPLES[before]()], [SAMPLES[after]()])


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_the_json_is_strict_and_follows_its_schema(before, after):
    def refuse(value):
        raise AssertionError(f"{value} is no JSON")

    document = json.loads(COMPARISON_RENDERERS["json"](compared(before, after)), parse_constant=refuse)
    jsonschema.Draft202012Validator(comparison_schema()).validate(document)
    assert document["schema"] == "profkit.compare/1"


def test_the_schema_refuses_another_verdict():
    document = json.loads(COMPARISON_RENDERERS["json"](compared("compute_bound", "compute_bound")))
    fault = jsonschema.Draft202012Validator(comparison_schema()).iter_errors(document | {"verdict": "better"})
    assert any(fault)


@pytest.mark.parametrize("format_", ["text", "md", "html"])
def test_the_setup_is_told_before_the_numbers(format_):
    text = COMPARISON_RENDERERS[format_](compared("compute_bound", "unknown"))
    assert (
        text.index("Only the") < text.index("What changed")
        if "What changed" in text
        else "Not comparable" in text
    )


def test_every_markdown_table_has_as_many_cells_in_each_row():
    for before, after in PAIRS:
        for block in COMPARISON_RENDERERS["md"](compared(before, after)).split("\n\n"):
            if block.startswith("| "):
                assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


def test_no_line_of_the_text_is_wider_than_the_terminal():
    for before, after in PAIRS:
        assert max(map(len, COMPARISON_RENDERERS["text"](compared(before, after)).splitlines())) <= 100


@pytest.mark.parametrize("format_", ["text", "md", "html"])
def test_names_from_files_are_text_and_nothing_else(format_):
    text = COMPARISON_RENDERERS[format_](compared("compute_bound", "hostile"))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e\ud800-\udfff]", text)
    if format_ == "md":
        prose = re.sub(r"`[^`\n]*`", "", text)
        assert not re.search(r"<(?!/?(?:details|summary)\b)", prose)
        assert "](" not in prose
    if format_ == "html":
        assert "<script" not in text.lower()
        assert "<img" not in text.lower()
        assert "default-src 'none'" in text


def test_the_page_says_its_verdict_first_and_nothing_twice():
    comparison = compared("compute_bound", "unknown")
    page = COMPARISON_RENDERERS["html"](comparison)
    assert comparison.warnings
    for row in comparison.warnings:
        assert page.count(str(escape(row.message))) == 1, row.message
        assert page.index("<h1") < page.index(str(escape(row.message)))


def test_the_page_links_and_loads_nothing():
    page = COMPARISON_RENDERERS["html"](compared("compute_bound", "launch_bound"))
    assert not re.search(r"(?:src|href)\s*=", page)
    assert "What explains it" in page


def test_the_same_comparison_gives_the_same_bytes():
    for render in COMPARISON_RENDERERS.values():
        assert render(compared("compute_bound", "launch_bound")) == render(
            compared("compute_bound", "launch_bound")
        )
