"""What the trap cases demand in words: exit codes, messages, bounds, and what must not be said."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import profkit
from profkit.model import OperationKind, Trace
from profkit.model.report import Report
from profkit.readers import read
from tests.exactness.test_cases import CASES, TRACES, case_of, result_of

REFUSED = {"22b_empty_file": "empty", "93c_not_a_database": "not a readable SQLite database"}
READ = [name for name in TRACES if name not in REFUSED]


def run(name: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`profkit analyze` on a case, as a user calls it."""
    command = [sys.executable, "-m", "profkit", "analyze", str(case_of(name).path), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def codes(result: Report) -> dict[str, int]:
    return {finding.code: finding.count for finding in result.health.findings}


def trace_of(name: str) -> Trace:
    trace = read(case_of(name).path)
    assert isinstance(trace, Trace)
    return trace


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_recording_is_refused_in_one_line(name: str) -> None:
    done = run(name, "--format", "json", "-o", "-")
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert case_of(name).path.name in line
    assert REFUSED[name] in line


@pytest.mark.parametrize("name", ["01_win_backslash", "02_inf_nan_args", "94_absurd_timestamps"])
def test_a_repaired_file_gives_strict_json_and_exit_code_0(name: str) -> None:
    done = run(name, "--format", "json", "-o", "-")
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    json.loads(done.stdout, parse_constant=lambda constant: pytest.fail(constant))


@pytest.mark.parametrize("name", READ)
def test_a_report_is_strict_json_and_holds_no_infinity(name: str) -> None:
    text = profkit.Report(result_of(case_of(name).path)).render("json")
    json.loads(text, parse_constant=lambda constant: pytest.fail(constant))


def test_lone_backslashes_are_repaired_and_told() -> None:
    assert codes(case_of("01_win_backslash").result)["invalid-escapes"] > 0


def test_a_truncated_file_says_so_on_the_terminal() -> None:
    assert codes(case_of("04_truncated_tail").result)["truncated"] > 0
    done = run("04_truncated_tail", "--format", "text", "-o", "-")
    assert "ends early" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_kernels_below_a_microsecond_keep_their_length() -> None:
    operations = trace_of("06_sub_us_kernels").operations
    lengths = (operations.end_ns - operations.start_ns).tolist()
    assert (min(lengths), max(lengths), sum(lengths) / len(lengths)) == (200, 1100, 525)


def test_two_ranks_stay_two_devices() -> None:
    paths = [CASES / "09_rank0.json", CASES / "09_rank1.json"]
    result = profkit.analyze(paths).document
    assert len(result.devices) == 2
    spans = [profkit.analyze(path).document.window.device_ns for path in paths]
    assert [device.window_ns for device in result.devices] == spans


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("12_metadata_only", "no CPU or GPU events"),
        ("13_launches_without_kernels", "2 launches have no kernel record"),
        ("37_graph_level_only", "--cuda-graph-trace=node"),
    ],
)
def test_a_file_that_cannot_decide_has_no_verdict_and_says_why(name: str, words: str) -> None:
    verdict = case_of(name).result.verdict
    assert verdict.bound == "unknown"
    assert words in f"{verdict.sentence} {verdict.remedy}"


def test_a_lost_timestamp_stretches_no_window() -> None:
    result = case_of("20_zero_timestamp_kernel").result
    assert result.window.device_ns < 100_000
    assert result.health.events_dropped == {"lost_timestamps": 1}


def test_a_trace_without_steps_and_rank_is_analysed() -> None:
    result = case_of("22_no_step_no_rank").result
    assert result.window.steps == []
    assert result.devices[0].rank is None


def test_backward_of_another_thread_is_not_forward_and_not_lost() -> None:
    result = case_of("23_autograd_thread").result
    kernels = {row.path: row.kernel_count for row in result.phases}
    assert kernels == {"forward": 1, "backward": 1}
    by_phase = sum(row.gpu_exclusive_ns for row in result.phases)
    assert by_phase + result.health.gpu_ns_without_phase == result.totals.gpu_busy_ns


def test_junk_between_the_events_is_counted() -> None:
    assert case_of("26_bare_array_unsorted").result.health.events_dropped == {"not_an_object": 2}


def test_a_copy_alone_is_transfer_and_no_idle_time() -> None:
    result = case_of("17_overlap_utilisation").result
    assert result.devices[0].shares["transfer"] == 30_000
    assert result.idle.total_ns == 20_000


def test_kernels_that_overlap_on_one_stream_leave_no_idle_time() -> None:
    assert case_of("18_same_stream_overlap_pdl").result.idle.total_ns == 0


def test_a_peer_copy_is_communication_and_the_copies_leave_10_us_idle() -> None:
    result = case_of("44_memcpy_kinds_no_enum").result
    assert result.idle.total_ns == 10_000
    assert result.totals.communication_sum_ns == 10_000
    operations = trace_of("44_memcpy_kinds_no_enum").operations
    copies = operations.kind == OperationKind.COPY
    assert sorted(operations.bytes[copies].tolist()) == [500, 1_000_000, 2_000_000, 6_000_000]
    assert 1 in operations.pageable[copies].tolist()


def test_a_linked_kernel_is_not_joined_through_id_0() -> None:
    result = case_of("15_amd_zero_correlation").result
    assert [(row.name, row.gpu_ns) for row in result.operators if row.gpu_ns] == [("aten::mm", 10_000)]
    assert not any("hipDeviceSynchronize" in row.name for row in result.ranges)


def test_start_end_ranges_are_listed_with_their_length_and_count_nothing_twice() -> None:
    result = case_of("34_start_end_ranges").result
    lengths = {row.name: row.host_wall_ns for row in result.ranges if row.kind == "start_end"}
    assert lengths == {"async_span": 300_000, "overlapping_span": 400_000}
    assert result.phases == []


def test_the_ranges_of_two_domains_nest_apart() -> None:
    exclusive = {
        row.path: row.gpu_exclusive_ns for row in case_of("36_two_domains_interleaved").result.phases
    }
    assert exclusive == {"app_A": 5_000, "app_A/app_inner": 2_000}


def test_a_newer_schema_is_told() -> None:
    assert codes(case_of("42_future_schema_suffix").result)["schema-newer"] >= 1


def test_hostile_names_stay_readable_and_reach_no_markup() -> None:
    report = profkit.Report(case_of("91_xss_names").result)
    page = report.render("html")
    for tag in ("<script>window.__pwned", "<img src=x", "</script><script>window"):
        assert tag not in page
    names = [row.name for row in report.document.totals.kernels]
    assert any("__pwned" in name for name in names)


def test_a_bomb_is_read_in_bounded_memory() -> None:
    # VmHWM is of the program itself; ru_maxrss remembers the size of the process that forked it.
    script = (
        "import re, sys, profkit; r = profkit.analyze(sys.argv[1]).document;"
        "print(r.totals.kernel_count, re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    path = str(case_of("92_gz_bomb").path)
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    kernels, kibibytes = map(int, done.stdout.split())
    assert kernels == 1
    assert kibibytes < 4 * 40 * 1024 + 100 * 1024, (
        "a few times what the file expands to, over the bare program"
    )


def test_a_view_in_the_place_of_a_table_is_refused_at_once() -> None:
    started = time.monotonic()
    result = profkit.analyze(case_of("93_view_trigger_names").path).document
    assert time.monotonic() - started < 5
    assert codes(result)["table-refused"] == 1
    assert result.verdict.bound == "unknown"


def test_absurd_times_are_left_out() -> None:
    result = case_of("94_absurd_timestamps").result
    assert result.health.events_dropped == {"implausible_times": 3}
    assert result.window.device_ns == 20_000


def test_nothing_is_written_beside_a_case(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(case_of("06_sub_us_kernels").path.read_bytes())
    profkit.analyze(path)
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]
