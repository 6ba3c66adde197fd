"""Where memory is short, the change that makes room is named with its price."""

from profkit.advice.recording import _what_fits
from profkit.model.report_fit import FitCategory
from profkit.model.report_memory import FitRow
from profkit.model.rows import Interval

GIB = 2**30


def row(change, peak_gib, step_ms, fits):
    peak, step = (
        Interval(low=value, likely=value, high=value) for value in (peak_gib * GIB * 1.0, step_ms * 1e6)
    )
    held = [FitCategory(category="activation", before_bytes=20 * GIB, after_bytes=peak_gib * GIB)]
    return FitRow(change=change, peak_bytes=peak, step_ns=step, fits=fits, by_category=held)


def test_of_what_surely_fits_the_shortest_step_is_named():
    fit = [row("recompute", 6, 130, True), row("bf16", 9, 60, True), row("optimizer", 18, 50, None)]
    told = _what_fits(fit)
    assert told.startswith(" Autocast to bf16 fits: ")
    assert "9.00 GiB instead of 20.0 GiB" in told
    assert "60.0 ms per step" in told


def test_where_nothing_surely_fits_the_lowest_peak_is_named_with_that_doubt():
    told = _what_fits([row("bf16", 15, 60, None), row("recompute", 14, 130, False)])
    assert told.startswith(
        " Recomputing all layers has the lowest peak of one change, which may not be enough"
    )


def test_what_takes_more_memory_is_no_remedy():
    assert _what_fits([row("batch", 10, 60, True), row("bf16", 21, 60, True)]) == ""
    assert _what_fits([]) == ""
