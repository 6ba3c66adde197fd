"""The step without a profiler: estimated where nobody timed it, its shares, and what sets its pace."""

import json
import shutil
from dataclasses import replace
from functools import partial

import pytest

import profkit
from profkit.model import RangeKind
from profkit.rendering.document_of import document_of
from profkit.report.assembly import summarise, timelines
from profkit.report.views import Options
from profkit.simulation import unprofiled
from tests.advice.made_steps import BF16_GEMM, GEMM_SHAPES, loop
from tests.builders import TraceBuilder
from tests.shared import DATA


@pytest.mark.parametrize(
    ("file", "measured_ms", "bound"),
    [
        ("kineto/gpt_bf16.json.gz", (35.3, 38.3), "memory"),
        ("kineto/gpt_bf16_compile.json.gz", (27.3, 28.0), "compute"),
        ("kineto/tiny_mlp.json.gz", (13.0, 24.0), "launch"),
    ],
)
def test_a_recorded_step_is_replayed_without_its_recorder(file, measured_ms, bound):
    document = profkit.analyze(DATA / file).document
    step, verdict = document.step, document.verdict

    assert (step.source, verdict.bound) == ("estimated", bound)
    # Measured without a profiler; the estimate is held to 15 % beyond the range.
    assert measured_ms[0] * 0.85 <= step.unprofiled_ns.likely / 1e6 <= measured_ms[1] * 1.15
    assert step.unprofiled_ns.low <= step.unprofiled_ns.likely <= step.unprofiled_ns.high
    assert sum(verdict.unprofiled_shares.values()) == step.unprofiled_ns.likely
    assert "takes an estimated" in verdict.caveats[-1]


def test_nothing_is_estimated_where_the_step_was_timed():
    document = profkit.analyze(DATA / "kineto/gpt_bf16.json.gz", plain_step_ns=38_300_000).document

    assert (document.step.source, document.step.unprofiled_ns.likely) == ("measured", 38_300_000)
    assert sum(document.verdict.unprofiled_shares.values()) == 38_300_000
    assert document.verdict.caveats == []


def test_where_the_device_is_the_limit_the_estimate_needs_no_word():
    assert profkit.analyze(DATA / "kineto/gpt_fp32.json.gz").verdict.caveats == []


def test_under_nsys_the_recorded_step_stands_and_may_be_longer_without_it():
    step = profkit.analyze(DATA / "nsys/tiny_mlp.sqlite.gz").document.step

    assert (step.source, step.unprofiled_ns.likely) == ("recorded", step.recorded_ns)
    assert step.unprofiled_ns.low < step.recorded_ns < step.unprofiled_ns.high


@pytest.mark.parametrize(
    ("listed", "plain_ns", "source"),
    [
        (["trace.json.gz"], 38_300_000, "measured"),
        (["other.json.gz"], 38_300_000, "estimated"),
        # The GPU is busy for 34 ms of each step.
        (["trace.json.gz"], 20_000_000, "estimated"),
    ],
)
def test_a_run_file_counts_for_what_it_lists_and_when_it_is_possible(tmp_path, listed, plain_ns, source):
    shutil.copy(DATA / "kineto/gpt_bf16.json.gz", tmp_path / "trace.json.gz")
    run = {"schema": "profkit.run/1", "plain_step_median_ns": plain_ns, "files": listed}
    (tmp_path / "run.json").write_text(json.dumps(run))

    for path in (tmp_path, tmp_path / "trace.json.gz"):
        assert profkit.analyze(path).document.step.source == source


def test_a_recording_without_steps_has_no_estimate():
    made = (
        TraceBuilder(format="kineto")
        .kernel(0, 10_000, launch=(-5_000, -1_000))
        .kernel(90_000, 99_000, launch=(80_000, 81_000))
    )

    doubts = [fact.code for fact in summarise([made.trace()]).verdict.doubts]
    assert doubts == ["profiler-slows-host"]


MS = 1_000_000


def steps_of(*busy_ms, gap_ms=1):
    """Marked steps, each with a product of such a length, launched when the one before is over."""
    made, at = TraceBuilder(format="kineto"), 0
    for number, ms in enumerate(busy_ms):
        end = at + round((gap_ms + ms) * MS)
        made.range(at, end, f"ProfilerStep#{number}")
        if ms:
            made.kernel(at + gap_ms * MS, end, launch=(at + gap_ms * MS - 9_000, at + gap_ms * MS - 5_000))
        at = end + 1
    return made


def test_of_two_steps_shares_and_length_are_their_mean():
    report = summarise([steps_of(1, 9).trace()])

    assert report.step.recorded_ns == report.step.unprofiled_ns.likely == pytest.approx(6 * MS, abs=10)
    busy = {
        name: ns for name, ns in report.verdict.unprofiled_shares.items() if name in ("compute", "memory")
    }
    assert sum(busy.values()) == pytest.approx(5 * MS, abs=10)


def test_steps_of_which_half_launched_nothing_give_no_verdict():
    report = summarise([steps_of(3, 0).trace()])

    assert (report.verdict.bound, report.verdict.undecided.code) == ("unknown", "steps-without-work")
    assert [f.severity for f in report.health.findings if f.code == "steps-without-work"] == ["warning"]


@pytest.mark.parametrize("replayed", [0.5, 1.04, 1.5])
def test_an_estimate_is_no_longer_than_the_recorded_step_and_no_shorter_than_its_work(monkeypatch, replayed):
    made = steps_of(3, 3, 3)
    made.range(0, 10, "aten::mm", kind=RangeKind.OPERATOR)
    real = unprofiled.replay

    def scaled(program):
        found = real(program)
        return replace(found, step_ns=found.step_ns * replayed)

    monkeypatch.setattr(unprofiled, "replay", scaled)
    (view,), _ = timelines([made.trace()], Options())
    step = unprofiled.unprofiled_step(view, 0)

    assert step.busy_ns == 3 * MS
    assert 3 * MS <= step.length_ns.low <= step.length_ns.likely <= step.recorded.step_ns


def test_work_without_a_launch_record_is_no_shorter_without_the_recorder():
    made = TraceBuilder()
    for at in range(3):
        made.range(at * 10 * MS, (at + 1) * 10 * MS, "step")
        made.kernel(at * 10 * MS, at * 10 * MS + 6 * MS)
        made.kernel(at * 10 * MS + 7 * MS, at * 10 * MS + 9 * MS, launch=(at * 10 * MS, at * 10 * MS + 100))
    (view,), _ = timelines([made.trace()], Options())

    assert unprofiled.unprofiled_step(view, 0).busy_ns == 8 * MS


def test_steps_that_the_median_does_not_tell_are_told():
    report = document_of(summarise([steps_of(2, 2, 2, 2, 40, 40, 40, gap_ms=1).trace()]))

    (outlier,) = [f.message for f in report.health.findings if f.code == "step-outlier"]
    assert outlier.endswith("Compute grew most, by 38.0 ms on average.")
    report = document_of(summarise([steps_of(2, 2, 2, 2, 40, gap_ms=1).trace()]))
    (outlier,) = [f.message for f in report.health.findings if f.code == "step-outlier"]
    assert outlier.endswith("Compute grew most, by 38.0 ms.")
    report = document_of(summarise([steps_of(2, 40, 40, 2, 40, gap_ms=1).trace()]))
    (shorter,) = [f.message for f in report.health.findings if f.code == "steps-shorter"]
    assert shorter.startswith("2 steps took much less than the median of ")
    assert shorter.endswith("Compute shrank most, by 38.0 ms on average.")


def test_what_all_steps_spend_most_on_is_said_beside_the_median_step():
    made, at = TraceBuilder(format="kineto"), 0
    for number in range(7):
        fetch = 30 * MS if number > 3 else 10_000
        end = at + fetch + 5 * MS
        made.range(at, end, f"ProfilerStep#{number}").range(at, at + fetch, "load_batch")
        made.kernel(at + fetch + 20_000, end, launch=(at + fetch + 5_000, at + fetch + 10_000))
        at = end + 1
    sentence = document_of(summarise([made.trace()])).verdict.sentence

    assert "of its 5.00 ms" in sentence or "of its 5.01 ms" in sentence
    assert sentence.endswith("Yet over all 7 steps, of 17.9 ms on average, input data takes 72 %.")


def test_four_products_of_8192_cubed_use_the_tensor_cores_for_two_thirds_of_the_step():
    step = profkit.analyze(DATA / "kineto/big_gemm_bf16.json.gz").document.step

    # 4 x 2 x 8192^3 FLOP at the 989.4 TFLOP/s of an H200 in bf16.
    assert step.hfu == pytest.approx(4 * 2 * 8192**3 / 989.4e12 * 1e9 / step.unprofiled_ns.likely, rel=1e-3)
    assert step.mfu == step.hfu


def test_what_backward_computes_again_is_no_model_flop():
    def body(step, number, again):
        for _ in range(2):
            step.launch(BF16_GEMM, 400, operators=("aten::addmm",), shapes=GEMM_SHAPES)
        for _ in range(2):
            if again:
                step.backward(BF16_GEMM, 400, operators=("aten::addmm",), shapes=GEMM_SHAPES)
            step.backward(BF16_GEMM, 800, operators=("aten::mm",), shapes=GEMM_SHAPES[1:])

    again, once = (summarise([loop(partial(body, again=each))]).step for each in (True, False))
    # Four of six products of one size are the model's.
    assert again.mfu == pytest.approx(again.hfu * 4 / 6)
    assert once.mfu == once.hfu > 0


@pytest.mark.parametrize("file", ["nsys/gpt_bf16.sqlite.gz", "kineto/elementwise_chain.json.gz"])
def test_without_known_products_their_use_is_unknown(file):
    step = profkit.analyze(DATA / file).document.step
    assert (step.mfu, step.hfu) == (None, None)


def reducing(step, number, waits_us):
    step.launch(BF16_GEMM, 2_000, operators=("aten::mm",), shapes=GEMM_SHAPES)
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    step.launch(name, 4_000 + waits_us, operators=("nccl:all_reduce",))


def communication_limit(traces):
    found = {row.resource: row.saving_if_twice_as_fast_ns for row in summarise(traces).limits}
    return found["communication"]


def test_what_transfers_cost_is_told_by_the_files_of_two_ranks_but_not_by_one():
    early, late = (loop(partial(reducing, waits_us=waits)) for waits in (10_000, 0))

    assert communication_limit([early]) is None
    # Half of 4 ms of transfer: the 10 ms that the first rank waits for the second stay.
    assert communication_limit([early, late]).likely == pytest.approx(2_000_000, rel=0.05)
    assert communication_limit([late, early]).likely == pytest.approx(2_000_000, rel=0.05)
