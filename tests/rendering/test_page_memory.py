"""What the page draws and lists of memory, in a browser."""

import pytest

from tests.rendering.sample_reports import compute_bound
from tests.rendering.samples import edited

pytestmark = pytest.mark.browser


def test_the_largest_allocations_are_bars_of_their_size_that_do_not_cover_each_other(show):
    page = show(compute_bound())
    page.evaluate("profkit.plots.drawAll()")
    traces = page.evaluate(
        "profkit.plots.drawn('plot-largest').map(({name, base, x, y, width, customdata}) => ({name, base, x, y, width, customdata}))"
    )
    bars = {trace["name"]: {key: trace[key][0] for key in trace if key != "name"} for trace in traces}
    # The parameter is there before and after the history of 199 ms: it lies lowest.
    assert (bars["parameter"]["base"], bars["parameter"]["x"], bars["parameter"]["y"]) == (0, 199, 1)
    assert (bars["activation"]["base"], bars["activation"]["x"]) == (10, 50)
    assert bars["activation"]["y"] == 2 + 5 / 2
    assert bars["gradient"]["y"] == 2 + 1 / 2  # when it comes, the activation has gone
    assert [bars[name]["width"] for name in ("parameter", "activation", "gradient")] == [2, 5, 1]
    assert bars["activation"]["customdata"][:2] == ["model.py:41 forward", "5.00 GiB"]
    assert bars["gradient"]["customdata"][0] == "&lt;b&gt;model.py&lt;/b&gt;:70"
    assert bars["parameter"]["customdata"][2:] == ["before the history", "not freed"]
    assert page.inner_text("#plot-largest .more").startswith(
        "7 smaller or shorter allocations are not drawn; together they hold at most 3.00 GiB"
    )


def test_allocations_of_a_history_without_times_are_drawn_over_its_events(show):
    def change(values):
        values["memory"]["curve"][0] |= {"time_ns": None, "event": list(range(200))}

    page = show(edited(compute_bound(), change))
    page.evaluate("profkit.plots.drawAll()")
    ends = page.evaluate(
        "profkit.plots.drawn('plot-largest').flatMap(({base, x}) => base.map((b, i) => b + x[i]))"
    )
    assert sorted(ends) == [30, 40, 90]


def test_memory_by_step_shows_the_first_and_last_steps_and_counts_the_others(page):
    table = page.locator("#memory table", has_text="By step")
    assert table.locator("tbody th").all_inner_texts() == [f"step {i}" for i in (*range(6), *range(14, 20))]
    assert "8 steps more are not shown" in page.inner_text("#memory")
