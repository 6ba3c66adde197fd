"""Samples of Python beside an nsys export: functions as ranges, and what a report says of a slow host."""

import json

import pytest

from profkit import api
from profkit.model import RangeKind
from tests.readers.nsys_by_hand import THREAD, Export, read

MS = 1_000_000
LAUNCH = [("train", "/home/someone/train.py", 31), ("forward", "/x/site-packages/torch/nn/linear.py", 134)]


@pytest.fixture
def export(tmp_path):
    """Eight steps: Python alone for 16 ms, sampled every millisecond, then a launch and a kernel of one."""
    export = Export(tmp_path / "report.sqlite")
    for step in range(8):
        start = 20 * MS * step + MS
        for number in range(16):
            line = 9 if number % 4 else 8
            stack = [("train", "/home/someone/train.py", 27), ("tokens_of", "/home/someone/train.py", line)]
            sample(export, start + number * MS, stack)
        sample(export, start + 16 * MS, LAUNCH)
        end = start + 17 * MS
        export.nvtx("step", start - 1000, end + MS)
        export.call("cudaLaunchKernel", end - 20_000, end - 10_000, correlationId=step + 1)
        export.kernel(
            "void at::native::elementwise_kernel<128, 4>(int)", end, end + MS, correlationId=step + 1
        )
    return export


def sample(export, time, stack, thread=THREAD):
    chains = vars(export).setdefault("chains", {})
    key = tuple(stack)
    if key not in chains:
        chains[key] = len(chains)
        for depth, (function, file, line) in enumerate(reversed(stack)):
            row = {"symbol": export.string(function), "module": export.string(file), "line": line}
            export.add("PROFKIT_PYTHON_CALLCHAINS", id=chains[key], **row, stackDepth=depth)
    export.add("PROFKIT_PYTHON_SAMPLES", timestamp=time, globalTid=thread, callchainId=chains[key])


def frames(trace):
    rows = trace.ranges.kind == RangeKind.PYTHON
    ranges = zip(
        trace.names(trace.ranges.name[rows]).tolist(),
        trace.ranges.start_ns[rows].tolist(),
        trace.ranges.end_ns[rows].tolist(),
        strict=True,
    )
    return sorted(ranges, key=lambda row: (row[1], -row[2]))


def test_a_function_runs_from_its_first_to_its_last_sample_in_a_row(export):
    found = frames(read(export))
    train, *rest = found
    assert train == ("/home/someone/train.py(27): train", MS, (20 * 7 + 17) * MS), "the line of most samples"
    assert rest == [
        ("/home/someone/train.py(9): tokens_of", (20 * step + 1) * MS, (20 * step + 16) * MS)
        for step in range(8)
    ], "what a single sample saw lasted for less than a period"


def test_a_pause_of_the_sampler_ends_what_ran(export):
    stack = [("train", "/home/someone/train.py", 27)]
    for time in (1000, 1001, 1400, 2900, 2901):
        sample(export, time * MS, stack)
    name = "/home/someone/train.py(27): train"
    assert frames(read(export))[-2:] == [(name, 1000 * MS, 1400 * MS), (name, 2900 * MS, 2901 * MS)], (
        "the same stack before and after a shorter pause went on"
    )


def test_samples_of_other_threads_and_stacks_that_are_not_there_are_left_out(export):
    for time in (1, 2, 3):
        sample(export, time * MS, [("other", "other.py", 1)], thread=THREAD + 7)
        export.add("PROFKIT_PYTHON_SAMPLES", timestamp=time * MS, globalTid=THREAD, callchainId=99)
    names = {name for name, _, _ in frames(read(export))}
    assert names == {"/home/someone/train.py(27): train", "/home/someone/train.py(9): tokens_of"}


def test_a_slow_host_has_the_names_of_its_lines(export):
    export.connection.close()
    report = api.analyze(export.path)
    assert json.loads(report.render("json"))["idle"]["by_range"][0]["name"] == "train.py:9 tokens_of"
    for written in map(report.render, ("json", "html", "text")):
        assert "train.py:9 tokens_of" in written
        assert "someone" not in written
