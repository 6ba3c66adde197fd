import os
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from profkit.readers import read
from profkit.readers.name_bounds import MOST_NAMES, OTHER_NAME
from profkit.readers.nsys.samples import _frame_in, _is_metric
from profkit.readers.strings import LONGEST_NAME, Strings, short_name
from profkit.roofline.kernel_names import classify
from profkit.saved_runs.run_file import read_run_file
from profkit.timeline.range_names import compiles, is_torchs_frame, loads_code
from tests.fuzz.costly import made_of


def test_long_names_are_cut_and_still_told_apart():
    one, two = "a" * 100_000 + "1", "a" * 100_000 + "2"
    assert len(short_name(one)) == LONGEST_NAME
    assert short_name(one) != short_name(two)
    assert short_name("a" * LONGEST_NAME) == "a" * LONGEST_NAME


def test_a_list_of_shapes_stays_whole():
    strings = Strings()
    shapes = "[" + "[1,2]," * 5000 + "[1,2]]"
    assert strings.texts[strings.add_whole(shapes)] == shapes


def test_operations_have_a_bounded_number_of_names(tmp_path):
    made = made_of("kineto", "kernel", "a", MOST_NAMES + 500, 8)
    file = tmp_path / "many.json.gz"
    file.write_bytes(made.data)
    trace = read(file)
    names = np.unique(trace.operations.name)
    assert len(names) == MOST_NAMES + 1
    assert len(trace.operations) == MOST_NAMES + 503
    assert OTHER_NAME in trace.strings
    assert [f.params["count"] for f in trace.findings if f.code == "names-put-together"] == [501]


def test_samples_of_many_types_and_metrics_cost_their_rows(tmp_path):
    """A table of all types by all metrics would take 300 times the memory."""
    made = made_of("nsys", "metric", "a", 20_000, 8)
    file = tmp_path / "many.sqlite.gz"
    file.write_bytes(made.data)
    tracemalloc.start()
    trace = read(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(np.unique(trace.samples.metric)) > 50
    assert peak < 20_000 * 300 * 4


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("/home/me/train.py train.py:12", "train.py:12"),
        ("python3 lib/x.py line 7", "x.py:7"),
        ("a b.py: line 7", "b.py:7"),
        ("a.py " * 300, None),
        (" .py:7", None),
    ],
)
def test_a_call_chain_names_a_file_and_a_line(text, frame):
    assert _frame_in(text) == frame


@pytest.mark.parametrize(
    ("name", "is_metric"),
    [
        ("SM Active [Throughput %]", True),
        (" [x]", False),
        ("SM Active", False),
        ("SM []", False),
        ("a [b] [c]", True),
    ],
)
def test_a_metric_has_a_unit_in_brackets(name, is_metric):
    assert _is_metric(name) is is_metric


def test_names_of_ranges_say_what_they_are():
    assert compiles("entire_frame_compile (dynamo_timed)")
    assert compiles("CUDA Driver Compiler 3")
    assert not compiles("(dynamo_timed) 2")
    assert loads_code("Lazy Function Loading: k")
    assert is_torchs_frame("/usr/lib/torch/nn/functional.py(12): relu")
    assert not is_torchs_frame("train.py(12): torch/x")


@pytest.mark.parametrize(
    "unit",
    ["aFunctor", "torch/", "cudnn", "amax", "fmhaSm100Qkv", "nccl_", "0", "complex", "winograd", "gc."],
)
def test_the_longest_name_is_understood_in_linear_time(unit):
    """Quadratic patterns take seconds, linear ones milliseconds."""
    name = (unit * LONGEST_NAME)[:LONGEST_NAME]
    started = time.process_time()
    for each in (
        name,
        f"triton_per_fused_{name}"[:LONGEST_NAME],
        f"elementwise_kernel<{name}"[:LONGEST_NAME],
    ):
        classify([each])
        is_torchs_frame(each)
    assert time.process_time() - started < 1.5


def test_a_run_file_is_read_with_a_bound(tmp_path: Path):
    good = tmp_path / "run.json"
    good.write_text('{"schema": "profkit.run/1"}')
    assert read_run_file(good) == {"schema": "profkit.run/1"}
    large = tmp_path / "run_rank1.json"
    large.write_text('{"schema": "profkit.run/1", "a": "' + "a" * 1_000_000 + '"}')
    assert read_run_file(large) is None
    pipe = tmp_path / "run_rank2.json"
    os.mkfifo(pipe)
    assert read_run_file(pipe) is None
    device = tmp_path / "run_rank3.json"
    device.symlink_to("/dev/zero")
    assert read_run_file(device) is None
