"""Symbols that the recorder did not demangle."""

import pytest

from profkit.roofline.cpp_signature import split_name


@pytest.mark.parametrize(
    ("mangled", "function"),
    [
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi8EEvPT_", "aiter::add_rmsnorm_quant_kernel"),
        ("_Z9saxpy_gpuPfS_f", "saxpy_gpu"),
        ("_ZN12_GLOBAL__N_14fillEPfi", "fill"),
        ("_ZNK2at6native5copy_EPv", "at::native::copy_"),
        ("_Z", "_Z"),
    ],
)
def test_a_mangled_symbol_gives_its_functions_name(mangled, function):
    assert split_name(mangled).function == function
