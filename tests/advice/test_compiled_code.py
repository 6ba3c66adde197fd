"""Where compiled code breaks, or is compiled again, and why."""

import pytest

from profkit.advice import advise
from profkit.model import RangeKind
from profkit.report.assembly import timelines
from profkit.report.views import Options
from tests.advice.made_steps import ADD, MAIN, US, loop

FUSED = "triton_poi_fused_add_0"


def advised(body, rule):
    views, _ = timelines([loop(body)], Options())
    return next((row for row in advise(views) if row.id == rule), None)


def compiled(step, shapes=None):
    step.launch(FUSED, 20, host=80, operators=(FUSED, "CompiledFunction"), shapes=shapes)


def frame(step, name):
    return step.within(name, kind=RangeKind.PYTHON)


def broken(step, cause=None, where="train.py(9): torch_dynamo_resume_in_forward_at_9", nested=True):
    """A graph, a break in it, and the rest of the function, with eager kernels around."""
    for _ in range(6):
        start = step.host
        compiled(step)
        if cause:
            step.launch(ADD, 2, host=90, operators=("aten::_local_scalar_dense", cause))
        end = step.host
        with step.within("Torch-Compiled Region: 1/0"), frame(step, where):
            compiled(step)
        step.builder.range(
            start * US - 50, step.host * US + 50 if nested else end * US - 50, "Torch-Compiled Region: 0/0", thread=MAIN,
            kind=RangeKind.OPERATOR,
        )  # fmt: skip
    for _ in range(8):
        step.launch(ADD, 30, host=80, shapes=[[2048, 4096], [2048, 4096]])


@pytest.mark.parametrize(
    ("cause", "told"),
    [
        ("aten::item", "graph 0 ends at train.py:9 forward: aten::item (6x)"),
        (None, "graph 0 ends at train.py:9 forward: no operator, so a print, a branch or a call that is not supported (6x)"),
    ],
)  # fmt: skip
def test_a_break_is_told_with_its_line_and_what_ran_there(cause, told):
    row = advised(lambda step, number: broken(step, cause), "graph-breaks")

    assert row.evidence[0] == told
    assert "12 compiled regions of 2 graphs" in row.why


def test_two_modules_that_are_compiled_one_by_one_have_no_break():
    assert advised(lambda step, number: broken(step, nested=False), "graph-breaks") is None


def recompiled(step, number, sizes):
    with step.within("_compile.compile_inner (dynamo_timed)", kind=RangeKind.OPERATOR):
        step.idle(4000)
    with (
        step.within(f"Torch-Compiled Region: 0/{number + 1}", kind=RangeKind.OPERATOR),
        frame(step, "train.py(5): forward"),
    ):
        compiled(step, shapes=[[8, 8], sizes(number)])


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        (lambda number: [64, 96 + 16 * number], "A size changes: [64, "),
        (lambda number: [64, 96], "Some property of the inputs changes"),
    ],
)
def test_compilation_in_every_step_names_the_size_that_changes_and_the_line(sizes, told):
    row = advised(lambda step, number: recompiled(step, number, sizes), "recompilation")

    assert told in row.why
    assert row.evidence[0].endswith(" at train.py:5 forward")


@pytest.mark.parametrize(
    "name",
    ["dynamo_data: compile_id=0/1", "backend_compile_data: fn_name=OutputGraph.call_user_compiler, compile_id=0/1"],
)  # fmt: skip
def test_what_the_compiler_marks_is_no_phase_of_the_program(name):
    def body(step, number):
        with step.within(name):
            compiled(step)

    views, _ = timelines([loop(body)], Options())

    assert views[0].phases.paths == []
