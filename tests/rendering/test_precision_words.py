"""What the precision section says of the unit that computes the products."""

from types import SimpleNamespace

import pytest

from profkit.model.report_precision import PrecisionRow, Tf32Row
from profkit.rendering.precision_tables import flop_cell, note_of
from profkit.rendering.sentences.precision import tf32_message


@pytest.mark.parametrize(
    ("tf32_ns", "fp32_ns", "said"),
    [
        (
            0,
            3_520,
            "No products ran in TF32: 3.52 µs in fp32 on CUDA cores. Where TF32 is off, this turns it on: x",
        ),
        (7_000, 3_520, "TF32 is on for products: 7.00 µs in TF32, 3.52 µs in fp32 on CUDA cores."),
        (7_000, 0, "TF32 is on for products: 7.00 µs in TF32."),
    ],
)
def test_only_a_kernel_in_tf32_says_whether_it_is_on(tf32_ns, fp32_ns, said):
    row = Tf32Row(work="products", tf32_ns=tf32_ns, fp32_ns=fp32_ns, switch="x")

    assert tf32_message(row, 1) == said


@pytest.mark.parametrize(
    ("units", "said"),
    [
        ([True, False], "50 % of the time of products is on Tensor Cores"),
        ([True, None], "50 % of the time of products is on Tensor Cores, 50 % on an unknown unit"),
        ([None, None], "the unit that computes the products is unknown"),
        ([], ""),
    ],
)
def test_an_unknown_unit_is_not_called_cuda_cores(units, said):
    rows = [
        PrecisionRow(phase=None, dtype="bf16", tensor_core=unit, matrix=True, ns=50, flop=None, count=1)
        for unit in units
    ]
    nvidia = SimpleNamespace(precision=rows, devices=[SimpleNamespace(name="NVIDIA H100 80GB HBM3")])
    assert note_of(nvidia) == said
    amd = SimpleNamespace(precision=rows, devices=[SimpleNamespace(name="AMD Instinct MI300X")])
    assert note_of(amd) == said.replace("Tensor Cores", "Matrix Cores")


@pytest.mark.parametrize(
    ("flop", "flop_ns", "said"), [(4_000, 50, "4.00 kFLOP"), (4_000, 49, "> 4.00 kFLOP"), (None, 0, "–")]
)
def test_work_that_is_known_in_part_is_a_lower_bound(flop, flop_ns, said):
    row = PrecisionRow(
        phase=None, dtype="fp32", tensor_core=False, matrix=True, ns=50, flop=flop, flop_ns=flop_ns, count=2
    )

    assert flop_cell(row, lambda amount: amount) == said
