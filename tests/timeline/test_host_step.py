"""A recording of a host alone: what its step goes to, and when there is a GPU after all."""

import json
from dataclasses import replace

import pytest

import profkit
from profkit.model import RangeKind
from profkit.rendering.document_of import document_of
from profkit.rendering.markdown import render_markdown
from profkit.rendering.sentences.first_action import first_action
from profkit.rendering.sentences.verdict import verdict_caveats
from profkit.rendering.text import render_text
from profkit.report.assembly import summarise
from tests.builders import LOADER, TraceBuilder

OPERATOR = RangeKind.OPERATOR


def a_step(made, at):
    made.range(at, at + 1000, f"ProfilerStep#{at}")
    made.range(at, at + 600, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    made.range(at + 600, at + 700, "forward").range(at + 610, at + 690, "aten::mm", kind=OPERATOR)
    made.range(at + 700, at + 900, "backward").range(at + 710, at + 890, "aten::mm", kind=OPERATOR)
    return made.range(at + 900, at + 950, "Optimizer.step#Adam.step")


def told(made):
    report = summarise([made.trace()])
    assert report.verdict.undecided.code == "host-only"
    return report.verdict.undecided.params


def test_a_steps_parts_are_by_marks():
    made = TraceBuilder(devices=0, format="kineto")
    for at in (0, 1000, 2000):
        a_step(made, at)
    params = told(made)
    assert (params["step_ns"], params["steps"]) == (1000, 3)
    shares = {part: params[f"{part}_share"] for part in ("input", "forward", "backward", "optimizer", "rest")}
    assert shares == pytest.approx(
        {"input": 0.6, "forward": 0.1, "backward": 0.2, "optimizer": 0.05, "rest": 0.05}
    )


def test_what_an_optimizers_closure_computes_is_not_the_optimizers():
    """As in Lightning, and in LBFGS: its step calls what computes the loss."""
    made = TraceBuilder(devices=0, format="kineto").range(0, 1000, "ProfilerStep#1")
    made.range(100, 900, "Optimizer.step#Adam.step").range(120, 320, "forward").range(400, 800, "backward")
    made.range(130, 310, "aten::addmm", kind=OPERATOR).range(850, 890, "aten::_foreach_add_", kind=OPERATOR)
    params = told(made)
    shares = [params[f"{part}_share"] for part in ("forward", "backward", "optimizer", "rest")]
    assert shares == pytest.approx([0.2, 0.4, 0.2, 0.2])


def test_an_optimizer_that_steps_within_backward_stays_one():
    made = TraceBuilder(devices=0, format="kineto").range(0, 1000, "ProfilerStep#1")
    made.range(100, 900, "backward").range(300, 500, "Optimizer.step#Adam.step")
    params = told(made)
    assert [params[f"{part}_share"] for part in ("backward", "optimizer")] == pytest.approx([0.6, 0.2])


def test_collectives_that_the_host_makes_are_a_part_where_nothing_else_runs():
    made = TraceBuilder(devices=0, format="kineto").range(0, 1000, "ProfilerStep#1")
    made.range(100, 900, "gloo:all_reduce", thread=LOADER).range(0, 300, "forward")
    params = told(made)
    assert (params["communication_share"], params["forward_share"]) == (0.6, 0.3)


def test_marks_between_hashes_are_read():
    made = TraceBuilder(devices=0, format="kineto").range(0, 1000, "ProfilerStep#1")
    made.range(0, 300, "## forward ##").range(300, 900, "## backward ##").range(900, 1000, "## optimizer ##")
    params = told(made)
    assert [params[f"{part}_share"] for part in ("forward", "backward", "optimizer")] == [0.3, 0.6, 0.1]


def test_parts_name_their_busiest_operators_per_step():
    made = TraceBuilder(devices=0, format="kineto")
    for at in (0, 1000, 2000):
        a_step(made, at)
    report = summarise([made.trace()])
    backward = next(f for f in report.verdict.doubts if f.params.get("part") == "backward")
    assert backward.params["operators"] == ["aten::mm"]
    assert backward.params["operator_times"] == [180]
    assert backward.params["part_ns"] == 200


def test_without_marks_the_engines_nodes_are_backward_and_other_operators_forward():
    made = TraceBuilder(devices=0, format="kineto").range(0, 400, "aten::mm", kind=OPERATOR)
    made.range(400, 1000, "autograd::engine::evaluate_function: MmBackward0", kind=OPERATOR)
    params = told(made)
    assert (params["forward_share"], params["backward_share"]) == pytest.approx((0.4, 0.6))
    assert params["steps"] == 0


def test_a_call_to_a_gpu_whose_kernels_are_missing_is_no_host_alone():
    made = TraceBuilder(devices=0, format="kineto").range(0, 400, "aten::mm", kind=OPERATOR)
    made.call(10, 20, "cudaStreamSynchronize")
    report = summarise([made.trace()])
    assert report.verdict.undecided.code == "no-gpu-events"


def on_a_machine_with_a_gpu(made):
    """The trace of the machine's A100, of which the profiler asked what it is."""
    trace = made.call(5, 6, "cudaGetDeviceCount").trace()
    return replace(trace, source=replace(trace.source, facts={"gpus": "1"}))


def test_operators_that_only_a_cpu_has_show_that_the_gpu_was_not_used():
    made = TraceBuilder(devices=0, format="kineto").range(0, 400, "aten::mkldnn_convolution", kind=OPERATOR)
    report = summarise([on_a_machine_with_a_gpu(made)])
    assert report.verdict.undecided.code == "host-only"
    (part,) = [f for f in report.verdict.doubts if f.params.get("part") == "forward"]
    assert part.params["steps"] == 0


@pytest.mark.parametrize("name", ["nccl:all_to_all", "aten::cudnn_convolution"])
def test_operators_that_only_a_gpu_has_show_that_its_rows_are_missing(name):
    made = TraceBuilder(devices=0, format="kineto").range(0, 400, name, kind=OPERATOR)
    report = summarise([made.trace()])
    assert report.verdict.undecided.code == "no-gpu-events"
    assert [f.params["part"] for f in report.verdict.doubts if "part" in f.params] == ["forward"]


@pytest.mark.parametrize(("gpus", "asked"), [([], False), ([{"id": 0, "name": "NVIDIA A100"}], True)])
def test_cuda_is_asked_for_only_where_a_gpu_is_described(tmp_path, gpus, asked):
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 1,
        "tid": 1,
        "ts": 1,
        "dur": 5,
        "args": {},
    }
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"deviceProperties": gpus, "traceEvents": [event]}))
    report = profkit.analyze([file])
    assert ("ProfilerActivity.CUDA" in str(report.verdict)) == asked


def test_a_slow_first_step_is_warm_up_on_the_host_too():
    made = (
        TraceBuilder(devices=0, format="kineto").range(0, 90_000, "ProfilerStep#0").range(0, 80_000, "data")
    )
    for at in (100_000, 101_000, 102_000):
        a_step(made, at)
    params = told(made)
    assert (params["step_ns"], params["steps"], params["input_share"]) == (1000, 3, 0.6)


def test_an_export_of_nsys_without_a_gpu_does_not_show_that_none_was_used():
    made = TraceBuilder(devices=0, format="nsys").range(0, 1000, "step").range(0, 900, "forward")
    assert summarise([made.trace()]).verdict.undecided.code == "no-gpu-events"


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("backward", "Record with torch.profiler: it names the operators of the backward part, the largest of the step."),
        ("elsewhere", "Mark the parts of the step with profkit.phase: no range or operator names what takes most of it."),
    ],
)  # fmt: skip
def test_a_part_without_operators_that_has_a_name_needs_no_mark(mark, said):
    made = TraceBuilder(devices=0, format="kineto").range(0, 1000, "ProfilerStep#1").range(0, 900, mark)
    assert first_action(summarise([made.trace()])) == said


def test_an_operator_that_is_hardly_any_of_a_part_does_not_explain_it():
    made = TraceBuilder(devices=0, format="kineto").range(0, 1000, "ProfilerStep#1")
    made.range(0, 900, "backward").range(10, 30, "aten::sum", kind=OPERATOR)
    made.range(900, 1000, "forward").range(910, 990, "aten::mm", kind=OPERATOR)
    said = verdict_caveats(summarise([made.trace()]))
    assert said[0] == "Backward takes 900 ns per step (90 %); the longest operator in it is aten::sum 20 ns."
    assert said[1] == "Forward takes 100 ns per step (10 %): aten::mm 80 ns."


@pytest.mark.parametrize("render", [render_text, render_markdown])
def test_an_operator_of_two_phases_has_one_row_in_text(render):
    made = TraceBuilder(devices=0, format="kineto").range(0, 1000, "ProfilerStep#1")
    made.range(0, 500, "forward", domain="profkit").range(500, 1000, "head", domain="profkit")
    made.range(10, 310, "aten::addmm", kind=OPERATOR).range(510, 610, "aten::addmm", kind=OPERATOR)
    text = render(document_of(summarise([made.trace()])))
    (row,) = [line for line in text.splitlines() if "aten::addmm" in line and "takes" not in line]
    assert "400 ns" in row
    assert row.split()[-1].strip("|") in ("2", "")
