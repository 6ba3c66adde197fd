"""Two snapshots compared by owner."""

from profkit.comparison.memory_changes import compare_memory
from profkit.comparison.rows import Change
from profkit.memory import summarise_memory
from profkit.readers.snapshot import history_of
from tests.memory.caching_allocator import MIB, CachingAllocator


def section(*allocations):
    allocator = CachingAllocator()
    for size, line in allocations:
        allocator.alloc(size * MIB, stack=line)
    return summarise_memory(history_of(allocator.snapshot(), "x"))


def test_owners_are_compared_largest_change_first():
    found = compare_memory(section((4, 10), (6, 11), (2, 12)), section((4, 10), (9, 11), (3, 12)))

    assert [(row.where, row.change) for row in found.owners] == [
        ("train.py:11 f", 3 * MIB),
        ("train.py:12 f", MIB),
        ("train.py:10 f", 0),
    ]
    assert found.peak_allocated_bytes == Change.of(12 * MIB, 16 * MIB)
    assert sum(row.change for row in found.categories) == 4 * MIB


def test_an_owner_whose_line_moved_is_the_same_owner():
    (row,) = compare_memory(section((4, 10)), section((9, 14))).owners
    assert (row.where, row.before, row.after) == ("train.py:14 f", 4 * MIB, 9 * MIB)


def test_owners_of_one_side_are_shown():
    found = compare_memory(section((4, 10)), section((4, 10), (5, 20))).owners
    assert [(row.where, row.before, row.after) for row in found] == [
        ("train.py:20 f", 0, 5 * MIB),
        ("train.py:10 f", 4 * MIB, 4 * MIB),
    ]


def test_an_unknown_peak_has_no_change():
    empty = summarise_memory(history_of({"segments": [], "device_traces": []}, "x"))
    assert compare_memory(empty, section((4, 10))).peak_allocated_bytes == Change.of(None, 4 * MIB)
