"""The launch queue over time, against counting at each instant."""

import numpy as np

from profkit.readers import read
from profkit.report.views import Options, analysed_views
from profkit.timeline.lanes import timeline_row
from profkit.timeline.queue_depth import queue_between, queue_depth
from tests.builders import TraceBuilder
from tests.shared import DATA


def view_of(trace):
    return analysed_views([trace], Options())[0]


def counted(view, device, at):
    """How many are launched and not begun at an instant, one by one."""
    operations, calls = view.trace.operations, view.trace.calls
    call_of = {c: s for c, s in zip(calls.correlation.tolist(), calls.start_ns.tolist(), strict=True) if c}
    queued = 0
    for start, correlation, own in zip(
        operations.start_ns.tolist(),
        operations.correlation.tolist(),
        operations.device.tolist(),
        strict=True,
    ):
        launch = call_of.get(correlation)
        queued += own == device and launch is not None and launch <= at < start
    return queued


def test_the_queue_of_a_recording_is_what_is_launched_and_not_begun():
    view = view_of(read(DATA / "kineto" / "sync_item.json.gz"))
    time, depth = queue_depth(view, 0)
    assert depth.max() > 1
    assert depth[-1] == 0
    for at in range(0, len(time), 7):
        assert depth[at] == counted(view, 0, int(time[at]))


def test_of_many_changes_the_fewest_and_the_most_of_each_part_stand():
    view = view_of(read(DATA / "kineto" / "gpt_bf16.json.gz"))
    row = timeline_row([view], [0], [[0]])
    time, depth = queue_depth(view, 0)
    inside = (time > row.start_ns) & (time < row.end_ns)
    shown = np.array(row.queue)
    assert len(shown) <= 600 < inside.sum()
    assert shown[0, 0] == row.start_ns
    assert shown[:, 1].max() == depth[inside].max()
    assert (np.diff(shown[:, 0]) > 0).all()
    exact = dict(zip(time.tolist(), depth.tolist(), strict=True))
    assert all(exact[at] == many for at, many in shown[1:].tolist())


def test_a_stretch_begins_with_what_was_queued_before():
    made = TraceBuilder()
    for at in (0, 10, 20):
        made.kernel(100 + at, 105 + at, launch=(at, at + 1))
    made.kernel(500, 510)
    assert queue_between(view_of(made.trace()), 0, 50, 115, 300) == [(50, 3), (100, 2), (110, 1)]
    assert queue_between(view_of(TraceBuilder().kernel(5, 9).trace()), 0, 0, 10, 300) == []
