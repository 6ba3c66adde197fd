"""What traces give to a report adds up: the grouping does not matter, nor the processes that the parts come from."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.readers import read
from profkit.report.assembly import method_of, report_of, summarise
from profkit.report.joining import Joined, Told
from profkit.report.part import Part
from profkit.report.views import Options, analysed_views
from tests.shared import DATA

FILES = tuple(
    DATA / "kineto" / f"{name}.json.gz"
    for name in ("ddp_rank0", "ddp_rank1", "convnet_fp16_channels_last", "sync_item")
)


def part_of(path):
    (view,) = analysed_views([read(path)], Options())
    return pickle.dumps(Part.of(view))


@cache
def pickled():
    """One part a file, from worker processes."""
    with ProcessPoolExecutor(2, get_context("spawn")) as workers:
        return tuple(workers.map(part_of, FILES))


def report_of_part(part):
    """A report of timelines alone."""
    return report_of(Joined.of(part), [], Told(), [], method_of([], [], Options()))


@cache
def whole():
    return report_of_part(Part.together([pickle.loads(each) for each in pickled()]))


def summed(parts, cuts):
    """The sum with brackets where the cuts say: each joins two neighbours."""
    parts = list(parts)
    for cut in cuts:
        at = cut % (len(parts) - 1)
        parts[at : at + 2] = [pickle.loads(pickle.dumps(parts[at] + parts[at + 1]))]
    return parts[0]


@settings(deadline=None, max_examples=12)
@given(st.lists(st.integers(0, 9), min_size=len(FILES) - 1, max_size=len(FILES) - 1))
def test_any_grouping_gives_the_same_tables(cuts):
    report = report_of_part(summed([pickle.loads(each) for each in pickled()], cuts))

    for table in report.__struct_fields__:
        assert getattr(report, table) == getattr(whole(), table), table


def test_parts_of_worker_processes_give_the_tables_of_one_process():
    options = Options()
    traces = [read(path) for path in FILES[:2]]
    views = analysed_views(traces, options)
    here = report_of_part(Part.together([Part.of(view) for view in views]))
    sent = sum([pickle.loads(pickle.dumps(Part.of(view))) for view in views[1:]], Part.of(views[0]))
    report = summarise(traces, options)

    apart = report_of_part(sent)
    for table in report.__struct_fields__:
        assert getattr(apart, table) == getattr(here, table), table
        if table not in ("inputs", "health", "memory", "fit", "phases", "advice", "timeline", "method"):
            assert getattr(report, table) == getattr(here, table), table


def test_the_sum_of_no_part_has_no_trace_and_its_tables_are_empty():
    report = report_of_part(Part.together([]))

    assert not report.kernels
    assert not report.devices
    assert report.totals.kernel_sum_ns == report.idle.total_ns == report.window.device_ns == 0
