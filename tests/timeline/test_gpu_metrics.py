"""Samples of hardware metrics over the window."""

import numpy as np
import pytest

from profkit.readers import read
from profkit.report.assembly import summarise
from tests.shared import SHARED, needs_shared


@needs_shared
def test_clocks_are_told_in_the_unit_of_their_name():
    trace = read(SHARED / "recordings" / "nsys" / "metrics_gpt_bf16.sqlite")
    rows = {row.metric: row for row in summarise([trace]).utilisation}
    clock = rows["GPC Clock Frequency [MHz]"]
    samples = trace.samples
    mine = samples.metric == trace.strings.index(clock.metric)
    written = samples.value[mine & (samples.value > 0)] / 1e6
    assert written.min() <= min(clock.value)
    assert max(clock.value) <= written.max()
    # An H200 runs at up to 1980 MHz.
    assert np.mean(clock.value) == pytest.approx(1884, rel=0.05)
    assert max(rows["SM Active [Throughput %]"].value) <= 100
