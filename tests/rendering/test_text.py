import re

import pytest

from profkit.rendering.digest import code_lines
from profkit.rendering.markdown import render_markdown
from profkit.rendering.terminal import Terminal
from profkit.rendering.text import render_text
from profkit.units import bytes_text, duration_text, rate_text
from tests.rendering.sample_reports import HOSTILE, SAMPLES, compute_bound, launch_bound, multi_rank, unknown
from tests.rendering.samples import edited


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_sample_fits_the_terminal_and_starts_with_its_verdict(name, width):
    report = SAMPLES[name]()
    lines = render_text(report, width=width).splitlines()
    code = {f"         {line}".rstrip() for row in report.advice for line in code_lines(row.code)}
    assert all(
        len(line) <= width for line in lines if not re.search(r"[^\x00-\u2fff]", line) and line not in code
    )
    assert lines[0].split(" ")[0] == report.verdict.sentence.split(" ")[0]


def test_code_is_never_wrapped_so_that_it_can_be_pasted():
    code = "loader = DataLoader(dataset, batch_size=n, num_workers=8, pin_memory=True)\nfor batch in loader:\n    step(batch)"
    report = edited(compute_bound(), lambda values: values["advice"][0].update(code=code))
    for color in (False, True):
        lines = re.sub(r"\x1b\[[0-9;]*m", "", render_text(report, width=40, color=color)).splitlines()
        first = next(at for at, line in enumerate(lines) if "DataLoader" in line)
        assert "\n".join(line[9:] for line in lines[first : first + 3]) == code


def test_the_story_is_told_in_one_order():
    text = render_text(launch_bound())
    titles = [
        "Launch-bound",
        "Launch overhead  ",
        "\nTrace health",
        "\nPhases",
        "\nKernels",
        "\nIdle",
        "\nSynchronisation",
        "\nWhat to do",
    ]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)


def test_durations_are_those_of_one_step_of_one_device():
    # 58.2 ms in three steps; 40 ms in three steps of two devices.
    assert re.search(r"Compute .* 57 %  19\.4 ms per step", render_text(compute_bound()))
    assert re.search(r"Compute .* 33 %  6\.67 ms per step and device", render_text(multi_rank()))


def test_names_are_cut_before_times():
    terminal = Terminal(60, color=False)
    table = terminal.table(("call", "left"), ("where", "left"), ("cost", "right"))
    table.add_row("cudaStreamSynchronize", "forward/" * 10, "2.38 ms")
    terminal.print_table(table)
    assert terminal.printed().rstrip().endswith("…  2.38 ms")
    assert "cudaStreamSynchronize" in terminal.printed()


def test_what_rounds_to_a_thousand_is_one_of_the_next_unit():
    assert [duration_text(ns) for ns in (999.6, 999_600, 999_400)] == ["1.00 µs", "1.00 ms", "999 µs"]
    assert (bytes_text(1023.6 * 1024), rate_text(999.6e9, "FLOP/s"), rate_text(0, "FLOP")) == (
        "1.00 MiB",
        "1.00 TFLOP/s",
        "0 FLOP",
    )


def test_idle_times_say_that_they_are_those_of_the_profiled_step():
    def unprofiled(values):
        values["step"] = {
            "recorded_ns": 60_000_000,
            "unprofiled_ns": {"low": 50_000_000, "likely": 55_000_000, "high": 60_000_000},
            "source": "estimated",
            "found_by": "marks",
            "startup_ns": 0,
            "teardown_ns": 0,
        }
        values["verdict"]["unprofiled_shares"] = values["verdict"]["shares"]

    assert "per step, with the profiler" in render_text(edited(compute_bound(), unprofiled))
    assert "per step, with the profiler" not in render_text(compute_bound())


def test_launch_shapes_of_a_kernel_are_one_line():
    text = render_text(compute_bound(), width=140)
    assert text.count("coopA_NNT") == 1
    launches = (147 + 9) // 3
    assert f" {launches}  " in next(line for line in text.splitlines() if "coopA_NNT" in line)


def test_a_report_without_kernels_shows_host_times_and_what_to_record():
    text = render_text(unknown())
    assert "aten::linear" in text
    assert "ProfilerActivity.CUDA" in text
    assert "the verdict cannot be trusted" in text


def test_colour_is_there_only_when_asked_for():
    assert "\x1b[" in render_text(compute_bound(), color=True)
    assert "\x1b" not in render_text(compute_bound())


@pytest.mark.parametrize("color", [False, True])
def test_no_name_reaches_the_terminal_as_a_control_sequence(color):
    text = render_text(SAMPLES["hostile"](), color=color)
    ours = re.compile(r"\x1b\[[0-9;]*m")
    assert "\x1b[31m red" not in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e\ud800-\udfff]", ours.sub("", text))
    assert "[red]markup[/red]" in ours.sub("", text)
    told = ours.sub("", text).partition("What to do")[0]  # what follows is code, which is never cut
    assert max(map(len, HOSTILE)) > 10_000 > max(map(len, told.splitlines()))


def test_memory_says_what_an_allocation_met_and_what_the_health_check_does_not():
    def change(values):
        values["memory"]["oom"][0]["explanation"] = "The rest is outside PyTorch's allocator."
        found = values["memory"]["findings"]
        values["health"]["findings"].append(dict(found[0]))
        found.append(found[0] | {"code": "private-pools", "message": "3.00 GiB is in private pools."})
        found.append(found[0] | {"code": "out-of-memory", "message": "Out of memory."})

    report = edited(compute_bound(), change)
    for text in (render_text(report), render_markdown(report)):
        memory = re.split(r"Memory\W+peak", text)[1]
        assert "The rest is outside PyTorch's allocator." in memory
        assert "3.00 GiB is in private pools." in memory
        assert "The history begins late." not in memory
        assert "Out of memory." not in memory
