"""What traces give to a report adds up: the grouping does not matter, nor the processes that the parts come from."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.readers import read
from profkit.report.assembly import summarise
from profkit.report.joining import Joined
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


@cache
def whole():
    return Joined.of(Part.together([pickle.loads(each) for each in pickled()])).tables(None)


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
    tables = Joined.of(summed([pickle.loads(each) for each in pickled()], cuts)).tables(None)

    for name, table in whole().items():
        assert tables[name] == table, name


def test_parts_of_worker_processes_give_the_tables_of_one_process():
    options = Options()
    traces = [read(path) for path in FILES[:2]]
    views = analysed_views(traces, options)
    here = Joined.of(Part.together([Part.of(view) for view in views]))
    sent = Joined.of(
        sum([pickle.loads(pickle.dumps(Part.of(view))) for view in views[1:]], Part.of(views[0]))
    )
    report = summarise(traces, options)

    for name, table in sent.tables(None).items():
        assert table == here.tables(None)[name], name
        if name not in ("memory", "phases"):
            assert getattr(report, name) == table, name


def test_the_sum_of_no_part_has_no_trace_and_its_tables_are_empty():
    tables = Joined.of(Part.together([])).tables(None)

    assert not tables["kernels"]
    assert not tables["devices"]
    assert tables["totals"].kernel_sum_ns == tables["idle"].total_ns == tables["window"].device_ns == 0
