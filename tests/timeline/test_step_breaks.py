"""Where steps break off, and where the tile after a break begins."""

import pytest

from profkit.rendering.document_of import document_of
from profkit.rendering.sentences import finding_message
from profkit.report.assembly import summarise
from profkit.timeline.launches import find_launches
from profkit.timeline.steps import find_steps
from tests.builders import TraceBuilder

US = 1_000


def steps_of(made):
    trace = made.trace()
    return find_steps(trace, find_launches(trace))


def some_steps(*starts, name="step", numbers=None, made=None):
    """Steps of 100 us, each with a kernel of 80 us that its launch precedes by 5 us."""
    made = made or TraceBuilder()
    for at, start in enumerate(starts):
        number = at if numbers is None else numbers[at]
        made.range(start * US, (start + 100) * US, f"{name} {number}")
        made.kernel((start + 15) * US, (start + 95) * US, launch=((start + 10) * US, (start + 11) * US))
    return made


def test_steps_that_follow_each_other_do_not_break_off():
    found = steps_of(some_steps(0, 100, 210, 310))
    assert found.resumes.tolist() == [True, False, False, False]
    assert found.tile_start_ns.tolist() == [[0, 95 * US, 195 * US, 305 * US]]


def test_a_jump_in_the_numbers_is_a_break():
    found = steps_of(some_steps(0, 100, 300, 400, numbers=(4, 5, 9, 10)))
    assert found.resumes.tolist() == [True, False, True, False]
    assert found.tile_start_ns[0].tolist() == [0, 95 * US, 300 * US, 395 * US]


def test_every_tenth_step_that_is_marked_is_no_jump():
    assert steps_of(some_steps(0, 100, 200, numbers=(10, 20, 30))).resumes.sum() == 1


@pytest.mark.parametrize(("kernels", "breaks"), [(3, 2), (0, 1)])
def test_work_between_marks_is_evaluation_and_a_pause_that_waits_for_data_is_the_next_steps(kernels, breaks):
    made = some_steps(0, 100, 200, 700, 800)
    for at in range(kernels):
        made.kernel((400 + at) * US, (401 + at) * US, launch=((390 + at) * US, (391 + at) * US))
    assert steps_of(made).resumes.sum() == breaks


@pytest.mark.parametrize(
    ("pause", "recorded", "breaks"), [(9_000, False, 2), (9_000, True, 1), (900, False, 1)]
)
def test_a_long_stretch_in_which_nothing_was_recorded_is_no_steps_time(pause, recorded, breaks):
    made = some_steps(0, 100, 200, 300 + pause, 400 + pause)
    if recorded:
        made.call(301 * US, (299 + pause) * US, "cudaDeviceSynchronize")
    assert steps_of(made).resumes.sum() == breaks


def test_what_was_launched_before_a_break_is_in_no_step():
    made = some_steps(0, 100, 300, 400, numbers=(1, 2, 7, 8))
    made.kernel(250 * US, 320 * US, launch=(240 * US, 241 * US))
    found = steps_of(made)

    assert found.of_operation.tolist() == [0, 1, 2, 3, -1]
    # It still runs when step 7 begins on the host: the tile begins with the first operation of its own.
    assert found.tile_start_ns[0, 2] == 315 * US
    result = summarise([made.trace()])
    assert result.window.device_ns == (95 + 100 + 80 + 100) * US
    assert sum(row.count for row in result.kernels) == 4


def test_leftovers_of_an_earlier_step_are_in_no_step():
    made = TraceBuilder().kernel(-50 * US, 8 * US)
    found = steps_of(some_steps(0, 100, 200, made=made))
    assert found.tile_start_ns[0, 0] == 8 * US


def test_steps_of_two_kinds_are_told_and_not_taken_for_warm_up():
    made = TraceBuilder()
    names = ["step[EXTEND bs=1]", *["step[DECODE bs=1]"] * 4]
    start = 0
    for name in names:
        length = 500 if "EXTEND" in name else 100
        made.range(start * US, (start + length) * US, name)
        made.kernel((start + 10) * US, (start + length) * US, launch=((start + 1) * US, (start + 2) * US))
        start += length
    result = summarise([made.trace()])
    told = {finding.code: finding for finding in result.health.findings}

    assert [row.kept for row in result.window.steps] == [True] * 5
    assert told["steps-differ"].params["kinds"] == ["decode", "prefill"]
    message = next(f.message for f in document_of(result).health.findings if f.code == "steps-differ")
    assert "4 decode of 100 µs, mostly memory; 1 prefill of 500 µs, mostly compute" in message
    assert result.step.found_by == "names"
    assert result.step.recorded_ns == 100 * US


def test_the_window_without_steps_is_from_the_first_operation_to_the_last():
    made = (
        TraceBuilder()
        .call(0, 900 * US, "cudaMalloc")
        .kernel(1_000 * US, 1_100 * US, launch=(950 * US, 960 * US))
    )
    made.kernel(1_200 * US, 1_300 * US, launch=(1_110 * US, 1_111 * US)).call(
        1_400 * US, 1_500 * US, "cudaFree"
    )
    result = summarise([made.trace()])
    told = {finding.code: finding.params for finding in result.health.findings}

    assert result.window.device_ns == 300 * US
    assert (result.step.found_by, result.step.recorded_ns) == ("none", None)
    assert (result.step.startup_ns, result.step.teardown_ns) == (1_000 * US, 200 * US)
    assert told["no-steps"] == {"startup_ns": 1_000 * US, "teardown_ns": 200 * US, "weights": False}


def test_the_window_without_steps_begins_after_the_weights_were_copied():
    made = TraceBuilder()
    for at in range(12):
        made.copy(at * 100 * US, at * 100 * US + 50 * US, launch=(at * 100 * US, at * 100 * US + US))
    made.kernel(2_000 * US, 2_100 * US, launch=(1_990 * US, 1_995 * US))
    result = summarise([made.trace()])
    (told,) = [finding for finding in result.health.findings if finding.code == "no-steps"]

    assert result.window.device_ns == 100 * US
    assert told.params["weights"]
    assert "after the weights were copied" in finding_message(told)
    assert "tear-down" not in finding_message(told)


@pytest.mark.parametrize("ran_us", [4, 900])
def test_what_held_a_stream_from_before_the_recording_is_in_no_step(ran_us):
    """A copy on another stream comes first; the stream of the model is still at the batch before."""
    made = TraceBuilder().range(0, 60_000 * US, "step[DECODE bs=32]")
    made.kernel(80 * US, (80 + ran_us) * US, launch=(70 * US, 74 * US), stream=2)
    made.kernel(50_000 * US, 50_100 * US, launch=(120 * US, 124 * US), stream=3)
    made.kernel(50_100 * US, 50_300 * US, launch=(130 * US, 134 * US), stream=3)
    found = steps_of(made)
    assert found.tile_end_ns[0, 0] == 50_300 * US
    # What ran for long on the other stream may be what it waited for.
    held = ran_us == 4
    assert found.of_operation.tolist() == [-1 if held else 0, 0, 0]
    assert found.tile_start_ns[0, 0] == (50_000 if held else 0) * US
