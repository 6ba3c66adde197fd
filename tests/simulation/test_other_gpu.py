"""The step on another GPU: terms at its rates, efficiency kept, host and links unchanged."""

import json

import pytest
from click.testing import CliRunner

import profkit
from profkit.cli.whatif import command
from profkit.errors import ProfkitError
from profkit.hardware import find_gpu
from profkit.simulation.other_gpu import OtherGpu
from profkit.simulation.precision import use_tf32
from tests.advice import steps_of_waiting as waiting
from tests.advice.made_steps import ADD, SGEMM
from tests.shared import DATA
from tests.simulation.steps import ROWS, draft_of, step_of

GPT = DATA / "kineto" / "gpt_fp32.json.gz"


def kernels(step, number):
    step.launch(SGEMM, 5_000, operators=("aten::mm",), shapes=[[4096, 4096], [4096, 4096]])
    step.launch(ADD, 200, shapes=ROWS)


def without_start(edited, duration_ns):
    return duration_ns - edited.facts.gpu.overhead_ns


def test_products_follow_the_peak_of_their_type_and_the_rest_follows_the_bandwidth():
    edited = draft_of(kernels)
    own, other, before = edited.facts.gpu, find_gpu("NVIDIA A100-SXM4-80GB"), edited.duration_ns.copy()
    OtherGpu(other)(edited)
    ratios = without_start(edited, edited.duration_ns) / without_start(edited, before)

    assert ratios[0] == pytest.approx(own.peak("fp32", "vector") / other.peak("fp32", "vector"), rel=0.01)
    assert ratios[1] == pytest.approx(own.bandwidth_bytes_per_s / other.bandwidth_bytes_per_s, rel=0.01)


def test_after_tf32_the_peaks_of_tf32_count():
    edited = draft_of(kernels)
    own, other = edited.facts.gpu, find_gpu("NVIDIA A100-SXM4-80GB")
    use_tf32(edited)
    before = edited.duration_ns.copy()
    OtherGpu(other)(edited)
    ratio = without_start(edited, edited.duration_ns[0]) / without_start(edited, before[0])

    assert ratio == pytest.approx(own.peak("tf32", "tensor") / other.peak("tf32", "tensor"), rel=0.01)


def test_the_same_gpu_changes_nothing():
    edited = draft_of(kernels)
    before = edited.duration_ns.copy()
    OtherGpu(edited.facts.gpu)(edited)

    assert edited.duration_ns.tolist() == pytest.approx(before.tolist())


def test_copies_from_the_host_and_the_host_stay_as_they_are():
    step = step_of(waiting.uploading)
    edited = draft_of(waiting.uploading)
    host, copies = (
        edited.gap_ns.copy(),
        edited.facts.view.trace.operations.copy_kind[edited.facts.program.row] > 0,
    )
    before = edited.duration_ns.copy()
    OtherGpu(find_gpu("NVIDIA L4"))(edited)

    assert step.facts.count == edited.facts.count
    assert copies.any()
    assert edited.duration_ns[copies].tolist() == before[copies].tolist()
    assert edited.gap_ns.tolist() == host.tolist()


def test_another_gpu_is_a_change_among_others():
    answer = profkit.what_if(GPT, ["bf16"], on="A100")

    assert [row.name for row in answer.changes] == ["bf16", "on", "bf16 + on"]
    assert answer.changes[1].speedup.likely < 1 < answer.changes[0].speedup.likely
    assert profkit.what_if(GPT, on="B200").changes[0].speedup.likely > 1


def test_a_gpu_that_is_not_known_is_an_error():
    with pytest.raises(ProfkitError, match="neither a file nor a known GPU"):
        profkit.what_if(GPT, on="Voodoo2")
    found = CliRunner().invoke(command, [str(GPT), "--on", "H200", "--json"])
    assert [row["name"] for row in json.loads(found.output)["changes"]] == ["on"]
