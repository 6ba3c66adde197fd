"""The closed table of products by size: alignment, occupancy and waves in words."""

import pytest

from profkit.rendering.html import render_html
from profkit.rendering.page_kernels import products_section
from tests.rendering.sample_reports import compute_bound
from tests.rendering.samples import edited


def with_first(**changes):
    def change(values):
        values["kernels"][0].update(changes)

    return edited(compute_bound(), change)


def first_line(**changes):
    lines, _ = products_section(with_first(**changes))
    return lines[0]


@pytest.mark.parametrize(
    ("dtype", "mnk", "said"),
    [
        ("bf16", (16384, 50257, 768), "N 50257"),
        ("bf16", (4, 8, 12), "M 4 · K 12"),
        # Four elements of fp32 are 16 bytes, sixteen of fp8.
        ("fp32", (4, 8, 12), "none"),
        ("fp8", (16, 24, 32), "N 24"),
        ("bf16", None, "–"),
    ],
)
def test_sizes_that_misalign_stand_there_by_name(dtype, mnk, said):
    assert first_line(dtype=dtype, mnk=mnk).misaligned == said


def test_waves_tell_what_stays_empty():
    line = first_line(waves=1.125, occupancy=0.1875, occupancy_limit="shared_memory")
    assert line.waves == "1.12, 44\u00a0% empty"
    assert line.occupancy == "19 % · shared memory"
    # Blocks of one wave may be persistent, and have more to do than one tile.
    assert first_line(waves=1.0).waves == "1.00"
    assert first_line(waves=None, occupancy=None, occupancy_limit=None).waves == "–"


def test_the_page_has_the_table_closed():
    page = render_html(with_first(mnk=(16384, 50257, 768), waves=0.5))
    assert '<details id="products">' in page
    assert "16384 × 50257 × 768" in page
    assert "0.50, 50\u00a0% empty" in page
