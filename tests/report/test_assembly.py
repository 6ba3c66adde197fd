"""What a report is put together from: inputs, times from one origin, and why nothing could be decided."""

from profkit.readers import read
from profkit.report.assembly import input_row, summarise, time_offsets, timelines
from profkit.report.views import Options
from tests.shared import DATA

TRACE, SNAPSHOT = DATA / "kineto/elementwise_chain.json.gz", DATA / "snapshot/leak.pickle.gz"


def test_a_report_starts_with_the_earliest_event_of_its_files():
    ranks = [read(DATA / f"kineto/ddp_rank{rank}.json.gz") for rank in (0, 1)]
    views, _ = timelines(ranks, Options())
    starts = [view.span[0] + offset for view, offset in zip(views, time_offsets(views), strict=True)]
    assert min(starts) == 0


def test_an_input_is_its_name_its_format_and_its_ranks():
    row = input_row(read(DATA / "kineto/ddp_rank1.json.gz"))
    assert (row.path, row.format, row.ranks) == ("ddp_rank1.json.gz", "kineto", [1])


def test_a_snapshot_alone_decides_nothing():
    alone = summarise([read(SNAPSHOT)]).verdict
    assert (alone.bound, alone.undecided.code) == ("unknown", "memory-only")
    assert summarise([read(TRACE), read(SNAPSHOT)]).verdict.bound != "unknown"
