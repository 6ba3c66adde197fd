"""Speed, by ratio to a floor measured in the same run, and exactness on inputs made long.

The ratios are about 1.6 times what was measured (in the comments), so that a stage that takes twice as long fails,
on any machine. Each time is the least CPU time of several runs, taken in turns with the floor's.
"""

import importlib
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from profkit.model import OperationKind
from profkit.readers import read
from profkit.rendering import RENDERERS
from profkit.rendering.document_of import document_of
from profkit.report.assembly import summarise
from tests.shared import DATA

BENCH = Path(__file__).parents[1] / "reports" / "bench"
RUNS = 7


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield lambda name: importlib.import_module(name)


@pytest.fixture(scope="module")
def kineto(bench, tmp_path_factory):
    file = tmp_path_factory.mktemp("speed") / "long.json"
    replicas, events = bench("make_kineto").make(DATA / "kineto" / "gpt_bf16.json.gz", file, mb=10)
    assert file.stat().st_size > 9e6
    return file, replicas, events


@pytest.fixture(scope="module")
def nsys(bench, tmp_path_factory):
    file = tmp_path_factory.mktemp("speed") / "long.sqlite"
    replicas = bench("make_nsys").make(BENCH / "data" / "emit_gpt_bf16.sqlite.gz", file, replicas=4)
    assert file.stat().st_size > 9e6
    return file, replicas


def cpu_ratio(first, second):
    """The CPU time of one action over that of another: the median of neighbours in time.

    A machine's speed changes by half within seconds, and hits both of a pair alike; the least of each would compare
    the fast moments of one with the slow ones of the other.
    """
    ratios = []
    for _ in range(RUNS):
        began = time.process_time()
        first()
        between = time.process_time()
        second()
        ratios.append((between - began) / (time.process_time() - between))
    return statistics.median(ratios)


def test_reading_a_profiler_trace_stays_near_the_typed_decode(bench, kineto):
    file, _, events = kineto
    assert bench("floors").msgspec(str(file)) == events

    assert cpu_ratio(lambda: read(file), lambda: bench("floors").msgspec(str(file))) < 7  # 4.2


def test_reading_an_nsys_export_stays_near_the_plain_fetch(bench, nsys):
    file, _ = nsys
    trace = read(file)
    rows = bench("floors").sqlite3_rows(str(file))
    assert rows >= len(trace.calls) + len(trace.ranges)

    assert cpu_ratio(lambda: read(file), lambda: bench("floors").sqlite3_rows(str(file))) < 3.2  # 2.0


@pytest.mark.parametrize(("made", "limit"), [("kineto", 3), ("nsys", 2.6)])
def test_analysing_costs_no_more_than_a_few_reads(made, limit, request):
    file = request.getfixturevalue(made)[0]
    trace = read(file)

    assert cpu_ratio(lambda: summarise([trace]), lambda: read(file)) < limit


def test_an_analysis_loads_nothing_heavy_that_it_does_not_need(tmp_path):
    program = """
import sys
from profkit.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code
print(*{"pandas", "torch", "plotly", "sqlite_utils", "matplotlib"} & set(sys.modules))
"""
    file = DATA / "kineto" / "sync_item.json.gz"
    command = [sys.executable, "-c", program, "analyze", "-q", str(file), "-o", str(tmp_path / "report.html")]

    done = subprocess.run(command, check=True, capture_output=True, text=True)

    assert done.stdout.split() == []


def test_the_page_costs_the_same_however_long_the_recording(kineto):
    short, long = (
        document_of(summarise([read(f)])) for f in (DATA / "kineto" / "tiny_mlp.json.gz", kineto[0])
    )

    assert cpu_ratio(lambda: RENDERERS["html"](long), lambda: RENDERERS["html"](short)) < 2


def test_cost_grows_as_the_recording_does(bench, tmp_path):
    def whole(file):
        return lambda: summarise([read(file)])

    files = []
    for replicas in (2, 8):
        file = tmp_path / f"{replicas}.sqlite"
        bench("make_nsys").make(BENCH / "data" / "emit_gpt_bf16.sqlite.gz", file, replicas=replicas)
        files.append(file)

    few, many = map(whole, files)
    assert cpu_ratio(many, few) < 4  # 2.3


def kernel_ns(trace):
    kernels = trace.operations.kind == OperationKind.KERNEL
    return int((trace.operations.end_ns - trace.operations.start_ns)[kernels].sum()), int(np.sum(kernels))


def test_a_long_trace_holds_its_source_so_many_times_to_the_nanosecond(bench, tmp_path):
    source = DATA / "kineto" / "gpt_bf16.json.gz"
    bench("make_kineto").make(source, tmp_path / "long.json", replicas=3)

    once, thrice = kernel_ns(read(source)), kernel_ns(read(tmp_path / "long.json"))

    assert thrice == (3 * once[0], 3 * once[1])


def test_totals_of_a_long_export_are_its_sources_so_many_times(nsys):
    source = summarise([read(BENCH / "data" / "emit_gpt_bf16.sqlite.gz")]).totals
    long = summarise([read(nsys[0])]).totals

    for total in ("kernel_count", "kernel_sum_ns", "kernel_union_ns", "gpu_busy_ns"):
        assert getattr(long, total) == nsys[1] * getattr(source, total) > 0


def test_a_long_snapshot_has_the_peak_of_its_source(bench, tmp_path):
    source = BENCH / "data" / "gpt_bf16.pickle.gz"
    entries = bench("make_snapshot").make(source, tmp_path / "long.pickle", entries=30_000)
    assert entries >= 30_000

    short, long = (summarise([read(file)]).memory for file in (source, tmp_path / "long.pickle"))

    assert long.peak_allocated_bytes == short.peak_allocated_bytes > 0
