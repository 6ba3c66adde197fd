"""A kernel row says which steps, devices, modules and lines its launches come from."""

import profkit
from profkit.model import RangeKind
from profkit.report.assembly import summarise
from tests.builders import BACKWARD, TraceBuilder
from tests.shared import DATA


def only_kernel(builder):
    (row,) = summarise([builder.trace()]).kernels
    return row


def test_times_by_step_and_device_add_up_to_the_row():
    report = profkit.analyze([DATA / "kineto/ddp_rank0.json.gz", DATA / "kineto/ddp_rank1.json.gz"])
    for row in report.document.kernels:
        assert sum(row.steps.values()) == row.total_ns
        assert sum(row.devices.values()) == row.total_ns
    assert {d for row in report.document.kernels for d in row.devices} == {"0", "1"}


def test_a_line_is_the_innermost_frame_of_the_users_own_code():
    made = TraceBuilder().range(0, 100, "/home/x/train.py(12): step", kind=RangeKind.PYTHON)
    made.range(10, 90, "nn.Module: Linear_3", kind=RangeKind.PYTHON)
    made.range(20, 80, "torch/nn/modules/linear.py(125): forward", kind=RangeKind.PYTHON)
    row = only_kernel(made.kernel(200, 300, launch=(30, 40)))

    assert row.source_lines == {"train.py:12 step": 1}
    assert row.modules == {"Linear": 1}


def test_a_backward_kernel_has_the_line_of_its_forward_operator():
    made = TraceBuilder().range(0, 100, "train.py(12): step", kind=RangeKind.PYTHON)
    made.range(30, 40, "aten::addmm", kind=RangeKind.OPERATOR)
    made.range(
        500,
        600,
        "autograd::engine::evaluate_function: AddmmBackward0",
        thread=BACKWARD,
        kind=RangeKind.OPERATOR,
    )
    made.range(510, 590, "aten::mm", thread=BACKWARD, kind=RangeKind.OPERATOR)
    for at in (1, 2):
        made._ranges[at]["sequence"] = 7
    backward = made.kernel(700, 800, launch=(520, 530), thread=BACKWARD)

    assert only_kernel(backward).source_lines == {"train.py:12 step": 1}


def test_another_sequence_number_is_another_operator():
    made = TraceBuilder().range(0, 100, "train.py(12): step", kind=RangeKind.PYTHON)
    made.range(30, 40, "aten::addmm", kind=RangeKind.OPERATOR)
    made.range(
        500,
        600,
        "autograd::engine::evaluate_function: AddmmBackward0",
        thread=BACKWARD,
        kind=RangeKind.OPERATOR,
    )
    made._ranges[1]["sequence"], made._ranges[2]["sequence"] = 7, 8

    assert only_kernel(made.kernel(700, 800, launch=(520, 530), thread=BACKWARD)).source_lines == {}
