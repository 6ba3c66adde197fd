"""Tables add up in any grouping."""

from hypothesis import given
from hypothesis import strategies as st

from profkit.model.report_time import KernelTotal, PhaseRow
from profkit.model.summing import Summed, added

KERNELS = Summed[KernelTotal](("name",), ("count", "total_ns"))

rows = st.lists(
    st.builds(KernelTotal, name=st.sampled_from("abc"), count=st.integers(0, 9), total_ns=st.integers(0, 9))
)


@given(rows, rows, rows)
def test_the_grouping_of_a_sum_does_not_matter(one, two, three):
    whole = KERNELS.rows([*one, *two, *three])

    assert KERNELS.rows([*KERNELS.rows([*one, *two]), *three]) == whole
    assert KERNELS.rows([*one, *KERNELS.rows([*two, *three])]) == whole
    assert sum(row.total_ns for row in whole) == sum(row.total_ns for row in [*one, *two, *three])


def test_what_is_unknown_in_one_is_unknown_in_the_sum():
    row = PhaseRow(
        name="forward", path="forward", count=1, host_wall_ns=2, gpu_inclusive_ns=3, gpu_exclusive_ns=4,
        kernel_count=None, bound="unknown", shares={"compute": 5}, peak_allocated_bytes=None,
    )  # fmt: skip
    both = Summed[PhaseRow](("path",), ("count", "kernel_count", "shares")).rows([row, row])

    assert [(r.count, r.kernel_count, r.shares) for r in both] == [(2, None, {"compute": 10})]


def test_a_key_that_one_map_has_keeps_its_value():
    assert added({"a": 1, "b": 2}, {"b": 3, "c": None}) == {"a": 1, "b": 5, "c": None}
