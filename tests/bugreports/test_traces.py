"""Profiler traces that others reported as trouble, each with an input of our own (docs/dev/robustness.md has the rows)."""

import gzip
import json
import subprocess
import sys

import pytest

import profkit
from profkit.readers import read
from tests.bugreports.made import analysed, by_name, codes, event, kernel, launch, mark, op, written

# --- text


def test_a_quote_that_an_exporter_left_out_costs_that_event_alone(tmp_path):
    path = written(tmp_path, launch(10, 1), kernel(20, 5, 1), launch(30, 2), kernel(40, 5, 2, name="second"))
    text = path.read_text()
    assert '"tid": 7' in text
    path.write_text(text.replace('"tid": 7', 'tid": 7', 1))
    result = profkit.analyze(path).document
    assert by_name(result.totals.kernels, "count") == {"second": 1}
    assert result.health.events_dropped == {"unreadable": 1}
    assert codes(result)["unreadable-events"] == 1


@pytest.mark.parametrize("content", [b"", gzip.compress(b"", mtime=0), gzip.compress(b"  \n", mtime=0)])
def test_nothing_in_a_file_is_one_line_and_an_error(tmp_path, content):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content)
    command = [sys.executable, "-m", "profkit", "analyze", str(path), "-o", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.strip().splitlines()
    assert "empty" in line or "nothing" in line


def test_gzip_behind_a_plain_name_and_plain_text_behind_gz(tmp_path):
    plain = written(tmp_path, launch(10, 1), kernel(20, 5, 1))
    packed = tmp_path / "packed.json"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    misnamed = tmp_path / "plain.json.gz"
    misnamed.write_bytes(plain.read_bytes())
    totals = [profkit.analyze(path).document.totals for path in (plain, packed, misnamed)]
    assert totals[0] == totals[1] == totals[2]
    assert totals[0].kernel_count == 1


def test_control_characters_and_bytes_that_are_no_text_leave_a_report_of_valid_unicode(tmp_path):
    path = written(tmp_path, launch(10, 1), kernel(20, 5, 1, name="one"), kernel(30, 5, name="two"))
    path.write_bytes(
        path.read_bytes().replace(b'"one"', b'"o\x01n\x1be"').replace(b'"two"', b'"t\xff\xfewo"')
    )
    report = profkit.analyze(path)
    assert report.document.totals.kernel_count == 2
    assert codes(report.document).keys() >= {"control-characters", "invalid-utf8"}
    for format_ in ("json", "html", "md", "text", "csv"):
        text = report.render(format_)
        assert text.encode().decode() == text
        assert not {"\x01", "\x1b"} & set(text)


# --- times


def test_large_times_with_decimals_overlap_nowhere(tmp_path):
    """At 1.7e15 µs neighbouring doubles are a quarter of a microsecond apart."""
    base = 1_712_345_678_901_234
    events = [(f"{base + at}.{at % 1000:03d}", "0.999") for at in range(1, 200)]
    rows = ",".join(
        f'{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{ts},"dur":{dur},"args":{{"device":0,"stream":7}}}}'
        for ts, dur in events
    )
    path = tmp_path / "trace.json"
    path.write_text(f'{{"traceEvents":[{rows}]}}')
    totals = profkit.analyze(path).document.totals
    assert totals.kernel_sum_ns == totals.kernel_union_ns == 199 * 999
    assert totals.gpu_span_ns == 198 * 1001 + 999


@pytest.mark.parametrize("unit", ["ns", "ms", None, "fortnights"])
def test_the_unit_of_the_display_changes_no_number(tmp_path, unit):
    result = analysed(tmp_path, launch(10, 1), kernel(20, 5, 1), displayTimeUnit=unit)
    assert (result.totals.kernel_sum_ns, result.window.end_ns) == (5_000, 15_000)


def test_ends_of_zero_and_negative_durations_are_counted_and_stretch_nothing(tmp_path):
    start = 1_700_000_000_000_000
    never_ended = {
        "ph": "X",
        "cat": "Trace",
        "name": "PyTorch Profiler (0)",
        "pid": "Spans",
        "tid": "x",
        "ts": start,
        "dur": -start,
    }
    result = analysed(
        tmp_path,
        never_ended,
        op("unfinished", start + 5, -1),
        launch(start + 10, 1),
        kernel(start + 20, 5, 1),
    )
    assert result.health.events_dropped == {"reversed_times": 1}
    assert result.window.device_ns == 5_000
    assert (result.step.startup_ns, result.step.teardown_ns) == (10_000, 0)
    assert "unfinished" not in by_name(result.operators, "host_ns")


def test_no_rate_of_a_copy_is_negative_or_infinite(tmp_path):
    def copied(ts, dur, size):
        return event(
            "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", ts, dur, tid=7, device=0, stream=7, bytes=size,
            **{"memory bandwidth (GB/s)": -3.0},
        )  # fmt: skip

    report = profkit.Report(
        analysed(tmp_path, copied(20, -5, 100), copied(30, 0, 1 << 40), copied(40, 5, -7), kernel(60, 5))
    )
    assert report.document.totals.copy_ns == 5_000
    assert report.document.health.events_dropped == {"reversed_times": 1}
    text = report.render("json")
    assert "Infinity" not in text
    assert "NaN" not in text
    json.loads(text, parse_constant=pytest.fail)


def test_most_steps_without_work_leave_no_verdict(tmp_path):
    """30 of 32 steps lost their GPU side; what is left looked healthy."""
    steps = [mark(f"ProfilerStep#{at}", 1000 * at, 900) for at in range(32)]
    busy = [each for at in (5, 6) for each in (launch(1000 * at + 10, at), kernel(1000 * at + 20, 500, at))]
    result = analysed(tmp_path, *steps, *busy)
    assert codes(result)["steps-without-work"] == 30
    assert result.verdict.bound == "unknown"
    assert result.verdict.undecided.code == "steps-without-work"
    each = [
        e for at in range(32) for e in (launch(1000 * at + 10, at + 1), kernel(1000 * at + 20, 500, at + 1))
    ]
    whole = analysed(tmp_path, *steps, *each[:-2])
    assert codes(whole)["steps-without-work"] == 1
    assert whole.verdict.undecided.code != "steps-without-work"


@pytest.mark.parametrize(("whole", "undecided"), [((5,), ["steps-damaged"]), ((5, 6), [])])
def test_steps_as_long_as_the_others_without_their_kernels_are_damaged(tmp_path, whole, undecided):
    """Two whole steps are enough to go by, as two of eight were; of one nobody knows whether it is usual."""
    steps = [mark(f"ProfilerStep#{at}", 1000 * at, 900) for at in range(32)]
    busy = []
    for number, begin in enumerate(1000 * at + 50 * each for at in whole for each in range(12)):
        busy += [launch(begin + 10, number + 1), kernel(begin + 20, 30, number + 1)]
    result = analysed(tmp_path, *steps, *busy)
    assert codes(result)["steps-damaged"] == 32 - len(whole)
    assert not result.health.ok
    assert [s.name for s in result.window.steps if s.kept] == [f"ProfilerStep#{at}" for at in whole]
    assert [reason.code for reason in [result.verdict.undecided] if reason] == undecided


def test_a_kernel_before_its_launch_is_told_with_its_size(tmp_path):
    result = analysed(tmp_path, launch(50, 1), kernel(20, 5, 1), launch(100, 2), kernel(110, 5, 2))
    (finding,) = [f for f in result.health.findings if f.code == "kernel-before-launch"]
    assert (finding.count, finding.severity) == (1, "warning")
    assert "30.0 µs" in finding.message
    assert min(result.devices[0].shares.values()) >= 0


# --- whose is what


def test_the_id_of_an_operator_is_no_correlation(tmp_path):
    """Kernel 5 is launched inside b; operator a merely has the External id 5."""
    result = analysed(
        tmp_path,
        op("a", 0, 100, **{"External id": 5}),
        op("b", 200, 100, **{"External id": 6}),
        launch(10, 4, **{"External id": 5}),
        kernel(50, 10, 4),
        launch(210, 5, **{"External id": 6}),
        kernel(250, 20, 5, **{"External id": 6}),
    )
    assert by_name(result.operators, "gpu_ns") == {"a": 10_000, "b": 20_000}


def test_id_0_links_nothing_to_nothing(tmp_path):
    result = analysed(
        tmp_path,
        op("a", 0, 100, **{"External id": 0}),
        launch(10, 0),
        kernel(50, 10, 0, **{"External id": 0}),
    )
    assert by_name(result.operators, "gpu_ns") == {"a": 0}
    assert result.health.kernels_without_launch == 1


def test_arrows_of_flows_decide_nothing(tmp_path):
    """An ac2g flow that ends on a row of the host, and one that ends nowhere; a file without fwdbwd flows."""
    flows = [
        {"ph": "s", "id": 6, "pid": 100, "tid": 1, "ts": 10, "cat": "ac2g", "name": "ac2g"},
        {"ph": "f", "id": 6, "pid": 100, "tid": 1, "ts": 250, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {"ph": "s", "id": 7, "pid": 100, "tid": 1, "ts": 10, "cat": "fwdbwd", "name": "fwdbwd"},
    ]
    plain = [op("a", 0, 100), op("b", 240, 30), launch(10, 6), kernel(50, 10, 6)]
    told = [analysed(tmp_path, *events).operators for events in (plain, [*flows, *plain])]
    assert told[0] == told[1]
    assert by_name(told[0], "gpu_ns") == {"a": 10_000, "b": 0}


def test_a_child_that_ends_after_its_parent_is_not_dropped(tmp_path):
    result = analysed(
        tmp_path,
        mark("ProfilerStep#1", 0, 100),
        mark("forward", 10, 90.4),
        op("aten::mm", 15, 84.9),
        launch(20, 1),
        kernel(30, 10, 1),
    )
    assert by_name(result.phases, "gpu_inclusive_ns") == {"forward": 10_000}
    assert by_name(result.operators, "gpu_ns") == {"aten::mm": 10_000}
    assert [step.name for step in result.window.steps] == ["ProfilerStep#1"]


def test_a_tag_within_the_same_tag_counts_no_work_twice(tmp_path):
    result = analysed(
        tmp_path,
        mark("outer", 0, 100),
        mark("tag", 1, 98),
        mark("tag", 2, 50),
        launch(10, 1),
        kernel(20, 30, 1),
    )
    assert {row.path: row.gpu_inclusive_ns for row in result.phases} == {
        "outer": 30_000, "outer/tag": 30_000, "outer/tag/tag": 30_000,
    }  # fmt: skip
    assert sum(row.gpu_exclusive_ns for row in result.phases) == result.totals.gpu_busy_ns == 30_000


def test_annotations_and_waits_on_a_stream_are_no_work(tmp_path):
    marks = [
        event("gpu_user_annotation", "fwd", 19.999, 3000, tid=7, stream=7, device=0),
        event("cuda_sync", "Context Sync", 0, 1000, tid=7, stream=7, device=0),
        event("cuda_sync", "Event Sync", 5, 500, tid=7, stream=7, device=0),
    ]
    result = analysed(tmp_path, *marks, launch(10, 1), kernel(20, 30, 1))
    assert (result.totals.kernel_count, result.totals.gpu_busy_ns, result.totals.gpu_span_ns) == (
        1,
        30_000,
        30_000,
    )
    assert result.totals.copy_ns == 0


# --- graphs


def replays(count, recorded, nodes=10):
    """Launches of a graph, of which some left their kernels in the file."""
    found = []
    for at in range(count):
        found.append(launch(1000 * at + 10, at + 1, "cudaGraphLaunch", dur=5))
        if at < recorded:
            found += [kernel(1000 * at + 100 + 50 * n, 40, at + 1, name=f"node{n}") for n in range(nodes)]
    return found


def test_kernels_of_a_graph_are_each_a_kernel_and_their_launch_is_one(tmp_path):
    result = analysed(tmp_path, op("replay", 0, 4000), *replays(4, 4))
    assert result.totals.kernel_count == 40
    assert by_name(result.operators, "gpu_ns") == {"replay": 40 * 40_000}
    assert sum(row.count for row in result.operators) == 1
    assert sum(result.idle.by_cause.values()) == result.idle.total_ns
    assert result.health.launches_without_kernel == 0


def test_replays_that_left_no_kernels_make_idle_time_that_is_not_believed(tmp_path):
    """Launches with kernels outnumber those without; yet the graphs among these hide most of the work."""
    single = [
        each
        for at in range(30)
        for each in (launch(20_000 + 100 * at, 100 + at), kernel(20_020 + 100 * at, 40, 100 + at))
    ]
    result = analysed(tmp_path, *replays(12, 3), *single)
    assert codes(result)["launches-without-kernel"] == 9
    assert result.verdict.bound == "unknown"
    assert result.verdict.undecided.params == {"graphs": 9, "hidden": 90, "kernels": 60}
    assert analysed(tmp_path, *replays(12, 11), *single).verdict.undecided is None


# --- numbers and what is missing


def test_queueing_is_no_overhead_of_launching(tmp_path):
    """The host runs 5 ms ahead of a device that is never idle."""
    launches = [launch(2 * at, at + 1, dur=1) for at in range(50)]
    kernels = [kernel(100 + 100 * at, 100, at + 1, name="ampere_sgemm_128x64_nn") for at in range(50)]
    shares = analysed(tmp_path, *launches, *kernels).devices[0].shares
    assert shares["launch"] == 0
    assert sum(shares.values()) == 5_000_000


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy DtoH (Device -> Pinned)", "transfer"), ("Memcpy DtoH (Device -> Pageable)", "transfer"),
        ("Memcpy HtoA (Pinned -> Array)", "transfer"), ("Memcpy DtoD (Device -> Device)", "memory"),
        ("Memcpy PtoP (Device -> Device)", "communication"), ("CopyHostToDevice", "transfer"), ("hipMemcpyDtoH", None),
    ],
)  # fmt: skip
def test_the_direction_of_a_copy_is_read_from_any_spelling(tmp_path, name, kind):
    copy = event("gpu_memcpy", name, 20, 5, tid=7, device=0, stream=7, correlation=1, bytes=100)
    result = analysed(tmp_path, launch(10, 1), copy)
    assert result.totals.copy_ns == 5_000
    if kind:
        assert result.devices[0].shares[kind] == 5_000


@pytest.mark.parametrize(
    "prefix", ["ncclDevKernel_", "ncclKernel_", "NcclDevKernel_", "rcclGenericKernel_", "oneccl_"]
)
def test_collectives_are_known_by_any_of_their_prefixes(tmp_path, prefix):
    result = analysed(tmp_path, launch(10, 1), kernel(20, 30, 1, name=f"{prefix}AllReduce_Sum_bf16"))
    assert result.totals.communication_sum_ns == 30_000
    assert result.totals.communication_exposed_ns == 30_000


def test_a_trace_of_the_host_alone_is_a_report_on_the_host(tmp_path):
    result = analysed(tmp_path, op("aten::mm", 0, 100), op("aten::add", 120, 10))
    assert by_name(result.operators, "host_ns") == {"aten::mm": 100_000, "aten::add": 10_000}
    assert result.verdict.bound == "unknown"
    assert "on the CPU alone" in result.verdict.sentence
    assert result.devices == []
    assert "idle" not in result.verdict.sentence


def test_names_threads_ranks_and_steps_may_all_be_missing(tmp_path):
    bare = [
        {key: value for key, value in e.items() if key not in ("tid", "name")}
        for e in (launch(10, 1), kernel(20, 5, 1))
    ]
    result = analysed(tmp_path, *bare)
    assert result.totals.kernel_count == 1
    assert result.health.kernels_without_launch == 0
    assert read(tmp_path / "trace.json").source.rank is None
