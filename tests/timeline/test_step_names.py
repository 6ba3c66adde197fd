"""Names that mark steps: patterns, engines, kinds, and marks inside marks."""

import re
import time

import pytest

from profkit.timeline.decoding import decodes_few
from profkit.timeline.launches import find_launches
from profkit.timeline.phases import find_phases
from profkit.timeline.range_names import compiles, loads_code
from profkit.timeline.step_names import engine_iteration, kind_of, number_in, step_test
from profkit.timeline.steps import find_steps
from tests.builders import TraceBuilder


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("step", ["step 0/9", "step 1/9", "step#2"]),
        ("*train", ["[0] train", "[1] train"]),
        ("re:^\\[\\d+\\]", ["[0] train", "[1] train"]),
        ("stepp", ["stepper"]),
        ("[0] train", ["[0] train"]),
        ("iteration", []),
    ],
)
def test_a_pattern_is_a_name_a_prefix_a_glob_or_an_expression(pattern, found):
    names = ["step 0/9", "step 1/9", "step#2", "stepper", "[0] train", "[1] train", "forward"]
    test = step_test(pattern, names)
    assert [name for name in names if test(name)] == found


def test_a_wrong_expression_is_an_error():
    with pytest.raises(re.error):
        step_test("re:(", [])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("execute_context_1(512)_generation_0(0)", "prefill"),
        ("execute_8192_context_9(8192)_generation_0(0)", "prefill"),
        ("execute_context_0(0)_generation_8(8)", "decode"),
        ("execute_context_1(512)_generation_8(8)", "mixed"),
        ("step[DECODE bs=16]", "decode"),
        ("step[EXTEND bs=1 toks=512]", "prefill"),
        ("[Executor] _forward_step 12: 0 ctx reqs, 8 gen reqs", "decode"),
        ("[Executor] _forward_step 3: 2 ctx reqs, 0 gen reqs", "prefill"),
    ],
)
def test_an_engines_iteration_says_its_kind(name, kind):
    assert engine_iteration(name)
    assert kind_of(name) == kind


def test_other_names_are_no_iterations_and_their_kind_is_the_name_without_numbers():
    assert not any(map(engine_iteration, ("execute", "execute_callback", "forward_step 1", "step")))
    assert kind_of("ProfilerStep#12") == "ProfilerStep"
    assert (number_in("step 12"), number_in("epoch 1 batch 2"), number_in("step")) == (12, None, None)


def test_a_step_inside_a_profiler_step_is_the_same_step_and_no_phase():
    made = TraceBuilder()
    for at in (0, 100, 200):
        made.range(at, at + 100, f"ProfilerStep#{at // 100}").range(at + 1, at + 99, "step")
        made.range(at + 2, at + 40, "forward").range(at + 50, at + 60, "optimizer_step")
    trace = made.trace()
    launches = find_launches(trace)
    steps = find_steps(trace, launches)

    assert steps.names == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert find_phases(trace, launches, steps.rows).paths == ["forward", "optimizer_step"]


def test_many_short_steps_in_each_profiler_step_are_something_else():
    made = TraceBuilder().range(0, 100, "ProfilerStep#1")
    made.range(1, 20, "step").range(30, 40, "step")
    trace = made.trace()
    launches = find_launches(trace)

    assert find_phases(trace, launches, find_steps(trace, launches).rows).paths == ["step"]


def test_a_name_of_a_million_letters_is_judged_at_once():
    begun = time.process_time()
    assert loads_code("Module Loading" * 70_000 + "\n")
    assert compiles("Driver Compiler" * 70_000 + "\n")
    assert not compiles("(dynamo_timed)" * 70_000 + "\n")
    assert time.process_time() - begun < 1


@pytest.mark.parametrize(
    ("name", "few"),
    [
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", True),
        ("execute_96_context_1(sq64sk64sqsq64sqsk64)_generation_32(sq32sk55086sqsq32sqsk55086)", False),
        ("execute_256_context_0(sq0sk0sqsq0sqsk0)_generation_256(sq256sk9sqsq256sqsk9)", False),
        ("step[DECODE bs=16]", True),
        ("step[EXTEND bs=1 toks=4096]", False),
        ("[Executor] _forward_step 9: 0 ctx reqs, 8 gen reqs", True),
        ("forward", False),
    ],
)
def test_what_a_small_decode_launches_reads_weights_for_little_arithmetic(name, few):
    made = TraceBuilder().range(0, 100, name)
    made.kernel(50, 90, launch=(10, 12)).kernel(140, 190, launch=(110, 112))
    trace = made.trace()
    assert decodes_few(trace, find_launches(trace)).tolist() == [few, False]
