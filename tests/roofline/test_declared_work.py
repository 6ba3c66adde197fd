"""Work that a phase declares goes to the kernels in it that no formula explains."""

import json

import numpy as np
import pytest

from profkit import phase
from profkit.hardware import find_gpu
from profkit.model import WORK_MARK
from profkit.model.marks import PHASE_DOMAIN
from profkit.model.work import Basis, OperationBound
from profkit.report.views import view_trace
from tests.builders import TraceBuilder

GPU = find_gpu("NVIDIA H100 80GB HBM3")
TRITON = "_weighted_sum_forward"


def declared(text, *, kernels=((100_000, 120_000), (130_000, 190_000))):
    """The work of Triton kernels launched in a phase that declares its own."""
    made = TraceBuilder(format="kineto")
    made.range(0, 1_000, "weighted_sum", domain=PHASE_DOMAIN)
    made.range(5, 6, WORK_MARK + text)
    for at, (start, end) in enumerate(kernels):
        made.kernel(start, end, launch=(10 + 20 * at, 20 + 20 * at), name=TRITON)
    made.kernel(300_000, 340_000, launch=(2_000, 2_010), name=TRITON)
    return view_trace(made.trace(), [GPU]).work


def test_kernels_share_the_work_by_their_time_and_are_bound_by_it():
    moved = 0.8 * GPU.bandwidth_bytes_per_s * 80e-6
    work = declared(f"flop=8000000 bytes={int(moved)}")

    assert work.flop[:2].tolist() == [2e6, 6e6]
    assert work.dram_bytes[:2].tolist() == pytest.approx([moved / 4, moved * 3 / 4], rel=1e-6)
    assert work.bound[:2].tolist() == [OperationBound.MEMORY] * 2
    assert work.efficiency[:2].tolist() == pytest.approx([0.8, 0.8], rel=1e-3)
    assert work.basis[:2].tolist() == [Basis.MODELLED] * 2


def test_a_kernel_outside_of_the_phase_stays_unknown():
    work = declared("flop=8000000 bytes=64")

    assert np.isnan(work.flop[2])
    assert work.basis[2] != Basis.MODELLED


def test_what_is_not_declared_is_not_known():
    work = declared("bytes=1000")

    assert np.isnan(work.flop[:2]).all()
    assert work.dram_bytes[:2].sum() == pytest.approx(1000)


@pytest.mark.parametrize("text", ["", "flop=x", "flop=-1", "flop=1 bytes=2 more"])
def test_what_makes_no_sense_declares_nothing(text):
    assert np.isnan(declared(text).dram_bytes[:2]).all()


def test_a_phase_writes_its_work_beside_its_name(tmp_path):
    torch = pytest.importorskip("torch")
    with torch.profiler.profile() as profiler, phase("weighted_sum", flop=2**40, bytes=64, note="x"):
        torch.ones(2).sum()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    names = [event.get("name") for event in json.loads(path.read_text())["traceEvents"]]

    assert f"{WORK_MARK}flop={2**40} bytes=64" in names
    assert names.count("profkit::weighted_sum") == 1
