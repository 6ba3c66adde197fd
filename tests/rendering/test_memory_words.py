"""What the memory section says, and does not say, of blocks that stay and of allocations that failed."""

import pytest

from profkit.rendering.sentences.memory import FINDINGS

GIB = 2**30
SHORT = {
    "where": "train.py:7 step", "requested_bytes": 2 * GIB, "allocated_bytes": 60 * GIB, "free_bytes": GIB, "reserved_bytes": 70 * GIB,
    "reserved_free_bytes": 10 * GIB, "usable_free_bytes": GIB, "largest_free_block_bytes": GIB, "gpu_bytes": 80 * GIB,
    "expandable_segments": False,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["fragmented", "streams", "limit", "outside", "full"])
def test_a_failed_allocation_says_once_what_is_outside_the_allocator(kind):
    told = FINDINGS["out-of-memory"]({**SHORT, "kind": kind, "outside_bytes": 9 * GIB})
    assert told.count("9.00 GiB") == 1
    assert "outside PyTorch's allocator" in told


@pytest.mark.parametrize("kind", ["fragmented", "streams", "limit"])
def test_what_is_outside_is_not_said_where_it_is_not_known(kind):
    assert "outside" not in FINDINGS["out-of-memory"]({**SHORT, "kind": kind, "outside_bytes": None})
