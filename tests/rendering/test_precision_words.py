"""What the precision section says of the unit that computes the products."""

from types import SimpleNamespace

import pytest

from profkit.model.report_precision import PrecisionRow
from profkit.rendering.precision_tables import note_of


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
