"""Steps of recordings in which nothing is marked."""

import pytest

from profkit.model import CopyKind, RangeKind
from profkit.report.assembly import summarise
from tests.builders import BACKWARD, TraceBuilder

US = 1_000
NAMES = [f"kernel_{at}" for at in range(20)]


def training(steps=5, *, start=0, made=None, optimizer=True, marks=None, threads=True):
    """Steps of 22 kernels of 10 us, launched ahead; each copies its input first."""
    made = made or TraceBuilder()
    for each in range(steps):
        at = start + each * 300 * US
        made.copy(at + 20 * US, at + 30 * US, launch=(at, at + 2 * US))
        names = [*NAMES, *(["multi_tensor_apply_kernel<FusedAdam>"] if optimizer else ["last"])]
        for number, name in enumerate(names):
            begin = at + (30 + number * 10) * US
            launch = (at + (3 + number) * US, at + (4 + number) * US)
            thread = BACKWARD if threads and 10 <= number < 20 else 0
            made.kernel(begin, begin + 10 * US, launch=launch, name=name, thread=thread)
        if marks:
            made.range(at, at + 40 * US, marks)
    return made


@pytest.mark.parametrize("optimizer", [True, False])
def test_steps_are_found_by_their_period(optimizer):
    result = summarise([training(optimizer=optimizer).trace()])
    marked = summarise([training(optimizer=optimizer, marks="step").trace()])

    assert result.step.found_by == "period"
    assert marked.step.found_by == "marks"
    assert len(result.window.steps) == 5
    assert result.step.recorded_ns == pytest.approx(marked.step.recorded_ns, rel=0.03)
    assert "steps-by-period" in {finding.code for finding in result.health.findings}


def test_start_up_is_outside_the_steps():
    made = TraceBuilder().call(0, 900_000 * US, "cudaFree")
    for at in range(30):
        made.kernel(
            (900_000 + at * 500) * US,
            (900_010 + at * 500) * US,
            launch=((900_000 + at * 500 - 5) * US, (900_000 + at * 500) * US),
            name=f"init_{at}",
        )
    result = summarise([training(start=1_000_000 * US, made=made).trace()])

    assert len(result.window.steps) == 5
    assert result.window.device_ns < 2_000 * US
    assert result.step.startup_ns > 900_000 * US


def test_layers_without_a_sign_of_a_step_are_none():
    made = TraceBuilder()
    for at in range(60):
        start = at * 10 * US
        made.kernel(start + 5 * US, start + 12 * US, launch=(start, start + US), name=f"layer_{at % 5}")
    for at in range(60, 90):
        start = at * 10 * US
        made.kernel(start + 5 * US, start + 12 * US, launch=(start, start + US), name=f"other_{at}")
    assert summarise([made.trace()]).step.found_by == "none"


def test_repeated_steps_of_one_optimizer_are_steps_and_those_of_two_that_take_turns_are_not():
    one, two = training(), training(steps=8)
    for at in range(5):
        one.range((at * 300 + 23) * US, (at * 300 + 25) * US, "Optimizer.step#AdamW.step")
    for at in range(8):
        name = "Optimizer.step#AdamW.step" if at % 2 else "Optimizer.step#SGD.step"
        two.range((at * 300 + 23) * US, (at * 300 + 25) * US, name)

    assert summarise([one.trace()]).step.found_by == "names"
    assert len(summarise([one.trace()]).window.steps) == 5
    assert summarise([two.trace()]).step.found_by == "period"


def test_weights_that_are_moved_once_are_start_up_where_there_are_no_steps():
    made = TraceBuilder()
    for at in range(12):
        made.copy(
            at * 100 * US,
            (at * 100 + 50) * US,
            launch=(at * 100 * US, (at * 100 + 1) * US),
            kind=CopyKind.HTOD,
        )
    made.kernel(5_000 * US, 5_100 * US, launch=(4_990 * US, 4_991 * US))
    made.kernel(5_100 * US, 5_200 * US, launch=(4_992 * US, 4_993 * US), name="another")
    result = summarise([made.trace()])

    assert result.window.device_ns == 200 * US
    assert result.step.startup_ns == 5_000 * US


def test_the_first_step_begins_no_earlier_than_the_recording():
    """Before later steps lies the time in which the device waits for their launch; before the first, nothing."""
    made = TraceBuilder()
    for step in range(40):
        begin = 2_020 * US * step
        for number, name in enumerate(("first", "second")):
            at = begin + 1_010 * US * number
            made.kernel(at, at + 1_000 * US, launch=(at - 3 * US, at - 1 * US), name=name)
    result = summarise([made.trace()])
    assert result.step.found_by == "period"
    assert sum(result.verdict.shares.values()) == result.window.device_ns


@pytest.mark.parametrize(
    ("mark", "steps"), [("FSDP::pre_forward (block.{})", 0), ("FSDP::pre_forward (block)", 5)]
)
def test_repetitions_that_each_run_a_module_of_their_own_are_layers(mark, steps):
    made = training(optimizer=False, threads=False)
    for each in range(5):
        made.range(each * 300 * US, each * 300 * US + 20 * US, mark.format(each), kind=RangeKind.ANNOTATION)

    assert len(summarise([made.trace()]).window.steps) == steps
