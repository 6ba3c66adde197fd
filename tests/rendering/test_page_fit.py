"""The page's bars of memory before and after changes."""

import pytest

from profkit.model.report_fit import FitCategory
from profkit.model.report_memory import FitRow
from profkit.model.rows import Interval
from profkit.rendering.page_fit import fit_lines


def row(change, *, memory_bytes, **held):
    """A change, with what each category holds before and after."""
    after = float(sum(pair[1] for pair in held.values()))
    around = Interval(low=after, likely=after, high=after)
    parts = [FitCategory(category=name, before_bytes=a, after_bytes=b) for name, (a, b) in held.items()]
    return FitRow(
        change=change,
        peak_bytes=around,
        step_ns=around,
        fits=None,
        memory_bytes=memory_bytes,
        by_category=parts,
    )


def test_bars_stack_categories_on_one_scale_up_to_the_gpus_memory():
    fit = [row("bf16", memory_bytes=200, parameter=(40, 40), activation=(60, 30))]
    recorded, changed = fit_lines(fit)
    assert recorded.row is None
    assert [(p.category, p.at, p.length) for p in recorded.parts] == [
        ("parameter", 0, 20),
        ("activation", 20, 30),
    ]
    assert [(p.category, p.at, p.length) for p in changed.parts] == [
        ("parameter", 0, 20),
        ("activation", 20, 15),
    ]
    assert recorded.limit_at == changed.limit_at == 100
    assert (recorded.peak_bytes, changed.peak_bytes) == (100, 70)


@pytest.mark.parametrize(
    ("memory_bytes", "limit_at"),
    [(None, None), (500, None), (50, 50.0)],
    ids=["unknown", "far beyond", "too small"],
)
def test_the_line_is_drawn_where_it_can_be_compared(memory_bytes, limit_at):
    lines = fit_lines([row("optimizer", memory_bytes=memory_bytes, parameter=(100, 80))])
    assert {line.limit_at for line in lines} == {limit_at}
    assert lines[0].parts[0].length == 100
    assert fit_lines([]) == []
