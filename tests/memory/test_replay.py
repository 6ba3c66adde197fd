"""The replay against torch's own statistics, against a model of the allocator, and against memory_viz."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.memory import replay
from profkit.memory.free_space import free_at, free_at_end
from profkit.readers.snapshot import history_of, read_snapshot
from tests.memory.caching_allocator import MIB, CachingAllocator
from tests.shared import DATA, SHARED, needs_shared

RECORDED = DATA / "snapshot/cases"
TRUTH = json.loads((RECORDED / "truth.json").read_text())
WHOLE = [n for n, row in TRUTH.items() if isinstance(row, dict) and n not in ("late", "ring_buffer")]
PEAKS = {
    "leak": 343943680,
    "sync_item": 553410048,
    "tiny_mlp": 473304064,
    "fragmentation": 1342177280,
    "gpt_bf16": 9294640640,
    "gpt_bf16_compile": 9262626304,
}


def recorded(name):
    return read_snapshot(gzip.decompress((RECORDED / f"{name}.pickle.gz").read_bytes()), name)


def replayed(snapshot):
    (device,) = replay(history_of(snapshot, "model"))
    return device


@pytest.mark.parametrize("name", WHOLE)
def test_every_statistic_of_torch_is_met_to_the_byte(name):
    truth, (device,) = TRUTH[name], replay(recorded(name))

    assert device.allocated.max() == truth["peak_allocated"]
    assert device.active.max() == truth["peak_active"]
    assert device.reserved.max() == truth["peak_reserved"]
    assert device.allocated[-1] == truth["allocated"]
    assert device.active[-1] == truth["active"]
    assert device.reserved[-1] == truth["reserved"]
    assert device.complete
    assert device.resized == device.unmatched == device.lost_frees == device.extra_frees == 0


def test_a_history_that_began_late_bounds_the_peak_from_both_sides():
    (device,) = replay(recorded("late"))
    peak = int(device.allocated.max())
    unsure = int(device.lifetimes.unsure[device.alive(int(device.allocated.argmax()))].sum())

    assert peak <= TRUTH["late"]["peak_allocated"] <= peak + unsure
    assert unsure < 0.03 * peak
    assert device.reserved.max() == TRUTH["late"]["peak_reserved"]
    assert not device.complete


def test_a_ring_buffer_is_anchored_in_the_segments():
    (device,) = replay(recorded("ring_buffer"))

    assert len(device.events) == 400
    assert device.allocated[-1] == TRUTH["ring_buffer"]["allocated"]
    assert device.allocated.max() <= TRUTH["ring_buffer"]["peak_allocated"]
    assert device.allocated[0] > 0
    assert not device.complete


@pytest.mark.parametrize("name", ["leak", "sync_item", "fragmentation"])
def test_peaks_of_the_shared_workloads_that_are_part_of_the_project(name):
    data = gzip.decompress((DATA / f"snapshot/{name}.pickle.gz").read_bytes())
    (device,) = replay(read_snapshot(data, name))
    assert device.allocated.max() == PEAKS[name]


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("name", PEAKS)
def test_peaks_of_the_shared_workloads(name):
    (device,) = replay(read_snapshot((SHARED / f"recordings/snapshot/{name}.pickle").read_bytes(), name))
    assert device.allocated.max() == PEAKS[name]
    assert device.resized == 0


@pytest.mark.parametrize("name", [n for n in TRUTH if isinstance(TRUTH[n], dict)])
def test_free_blocks_of_the_last_state_are_those_of_the_segments(name):
    history = recorded(name)
    (device,) = replay(history)
    there, listed = free_at(history, device, len(device.events)), free_at_end(history, 0)

    def rows(free):
        return sorted(
            zip(
                free.bytes.tolist(),
                free.stream.tolist(),
                free.small.tolist(),
                free.whole.tolist(),
                strict=True,
            )
        )

    assert rows(there) == rows(listed)


@st.composite
def programs(draw):
    """A run of a model allocator, and how much of its trace the recorder kept."""
    allocator = CachingAllocator(
        max_split=draw(st.sampled_from([None, None, 24 * MIB])), roundup=draw(st.sampled_from([0, 0, 4]))
    )
    alive, pending = [], []
    mib = [0.0001, 0.005, 0.7, 1, 1.0001, 2, 4.9, 5, 9.3, 11, 19, 19.0001, 24, 40]
    sizes = st.sampled_from([int(size * MIB) for size in mib])
    for action in draw(st.lists(st.sampled_from("aaaaaffffrce"), min_size=5, max_size=60)):
        if action == "a":
            alive.append(
                allocator.alloc(draw(sizes), draw(st.sampled_from([0, 0, 7])), draw(st.integers(0, 3)))
            )
        elif action == "e":
            allocator.empty_cache()
        elif action == "c" and pending:
            allocator.finish(pending.pop(0))
        elif action in "fr" and alive:
            block = alive.pop(draw(st.integers(0, len(alive) - 1)))
            if action == "f":
                allocator.free(block)
            else:
                allocator.request_free(block)
                pending.append(block)
    if not allocator.trace:
        alive.append(allocator.alloc(3))
    return allocator, draw(st.integers(2, len(allocator.trace)))


@settings(max_examples=200, deadline=None)
@given(programs())
def test_a_whole_history_gives_every_state_of_the_allocator(program):
    allocator, _ = program
    device = replayed(allocator.snapshot())
    for name in ("allocated", "active", "reserved"):
        assert getattr(device, name).tolist() == [stat[name] for stat in allocator.stats]
    assert device.complete
    assert device.resized == 0


@settings(max_examples=200, deadline=None)
@given(programs())
def test_a_cut_history_gives_its_states_within_what_it_says_it_cannot_know(program):
    allocator, kept = program
    device = replayed(allocator.snapshot(keep=kept))
    stats = allocator.stats[len(allocator.stats) - kept - 1 :]
    actions = {e["action"] for e in allocator.trace[len(allocator.trace) - kept :]}
    # Completions without a single request look like a recorder that skips the requests.
    told_apart = "free_requested" in actions or "free_completed" not in actions

    assert len(device.allocated) == len(stats)
    unsure = [int(device.lifetimes.unsure[device.held(state)].sum()) for state in range(len(stats))]
    for state, stat in enumerate(stats):
        assert device.reserved[state] == stat["reserved"]
        assert device.active[state] <= stat["active"] <= device.active[state] + unsure[state]
        if told_apart:
            assert device.allocated[state] <= stat["allocated"] <= device.allocated[state] + unsure[state]
    assert device.allocated[-1] == stats[-1]["allocated"]
    assert device.complete <= (stats[0]["active"] == 0)


def test_a_new_neighbour_tells_where_a_block_from_before_the_history_ends():
    allocator = CachingAllocator()
    first, second = allocator.alloc(9 * MIB + MIB // 2), allocator.alloc(8 * MIB)
    allocator.free(first)
    wide = allocator.alloc(9 * MIB)  # takes all of the first one's place
    allocator.free(second)
    before = len(allocator.trace)
    beside = allocator.alloc(8 * MIB)
    allocator.free(wide)
    allocator.free(beside)
    device = replayed(allocator.snapshot(keep=len(allocator.trace) - before))

    assert not device.lifetimes.unsure.any()
    assert device.allocated.tolist() == [stat["allocated"] for stat in allocator.stats[before:]]


def test_a_block_beyond_max_split_size_from_before_the_history_may_be_far_larger():
    allocator = CachingAllocator(max_split=20 * MIB)
    allocator.free(allocator.alloc(40 * MIB))
    block = allocator.alloc(24 * MIB)  # takes all 40
    allocator.free(block)
    device = replayed(allocator.snapshot(keep=2))

    assert device.active[0] == 24 * MIB
    assert device.lifetimes.unsure.tolist() == [16 * MIB]
    assert allocator.stats[-3]["active"] == 40 * MIB


@settings(max_examples=100, deadline=None)
@given(
    programs(), st.sampled_from([("free_requested",), ("segment_alloc", "segment_free"), ("free_completed",)])
)
def test_skipped_kinds_of_entries_do_not_make_leaks(program, skip):
    allocator, _ = program
    snapshot = allocator.snapshot(skip=skip)
    device = replayed(snapshot)
    allocs = [e for e in allocator.trace if e["action"] == "alloc"]
    if not allocs or (
        "segment_alloc" in skip and any(e["action"] == "segment_free" for e in allocator.trace)
    ):
        return  # the borders of released segments are unknown
    if skip == ("free_requested",):
        assert device.allocated.max() == max(s["active"] for s in allocator.stats)
    else:
        pending_at_end = allocator.totals()["active"] - allocator.totals()["allocated"]
        assert device.allocated.max() == max(s["allocated"] for s in allocator.stats)
        assert device.active[-1] - device.allocated[-1] in (0, pending_at_end)


def viz(snapshot, device=0):
    """memory_viz's ``process_alloc_data``, in requested bytes, entry by entry: the baseline and the curve."""
    live, events, initially = {}, [], []
    for entry in snapshot["device_traces"][device]:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"]
            events.append(entry["size"])
        elif entry["action"] in ("free", "free_completed"):
            if entry["addr"] in live:
                events.append(-live.pop(entry["addr"]))
            else:
                initially.append(entry["size"])
                events.append(-entry["size"])
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            if (
                segment["device"] == device
                and block["state"] == "active_allocated"
                and block["address"] not in live
            ):
                initially.append(block["requested_size"])
    return sum(initially), np.cumsum([sum(initially), *events])


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize(
    "path",
    sorted([*SHARED.glob("corpus/snapshot/*"), *SHARED.glob("recordings/snapshot/*")]),
    ids=lambda path: path.stem[:24],
)
def test_requested_bytes_follow_memory_viz_on_files_of_other_people(path):
    import pickle

    (device,) = replay(read_snapshot(path.read_bytes(), path.name))
    baseline, curve = viz(pickle.loads(path.read_bytes()))
    lives = device.lifetimes
    change = np.zeros(len(device.events) + 2, np.int64)
    np.add.at(change, lives.allocated, lives.requested)
    np.subtract.at(change, lives.reusable, lives.requested)
    ours = np.cumsum(change)[:-1]

    assert ours[0] == baseline
    assert ours.max() == curve.max()
    assert ours[-1] == curve[-1]


def test_a_block_freed_twice_or_never_is_counted_and_bytes_stay_positive():
    def entry(action, addr, time):
        return {"action": action, "addr": addr, "size": 1000, "stream": 0, "time_us": time}

    rows = [
        entry("alloc", 1, 1),
        entry("alloc", 1, 2),
        entry("free_completed", 1, 3),
        entry("free_completed", 1, 4),
    ]
    device = replayed({"segments": [], "device_traces": [rows]})

    assert (device.lost_frees, device.extra_frees) == (1, 1)
    assert device.allocated.tolist() == [0, 1024, 1024, 0, 0]


def test_npu_snapshots_round_with_padding():
    blocks = [
        {"address": 512 * i, "size": 1024, "requested_size": 500, "state": "active_allocated"} for i in (0, 2)
    ]
    segment = {
        "device": 0,
        "address": 0,
        "total_size": 2 * MIB,
        "stream": 0,
        "segment_type": "small",
        "blocks": blocks,
    }
    rows = [
        {"action": "alloc", "addr": 9999, "size": 500, "stream": 0},
        {"action": "free_completed", "addr": 9999, "size": 500, "stream": 0},
    ]
    device = replayed({"segments": [segment], "device_traces": [rows]})

    assert device.allocated.tolist() == [2048, 3072, 2048]


@pytest.mark.parametrize(("request_bytes", "padded"), [(MIB, True), (MIB + 512, False)])
def test_padding_is_known_by_small_blocks_in_large_segments_too(request_bytes, padded):
    """Nothing is left whose size is known; but torch's allocator puts a request of 1 MiB into a segment of 2 MiB."""
    rows = [
        {"action": "segment_alloc", "addr": 0, "size": 20 * MIB, "stream": 0},
        {"action": "alloc", "addr": 0, "size": request_bytes, "stream": 0},
        {"action": "alloc", "addr": 4 * MIB, "size": 2 * MIB, "stream": 0},
        {"action": "free_completed", "addr": 0, "size": request_bytes, "stream": 0},
        {"action": "free_completed", "addr": 4 * MIB, "size": 2 * MIB, "stream": 0},
    ]
    free = {"address": 0, "size": 20 * MIB, "requested_size": 0, "state": "inactive"}
    segment = {
        "device": 0,
        "address": 0,
        "total_size": 20 * MIB,
        "stream": 0,
        "segment_type": "large",
        "blocks": [free],
    }
    device = replayed({"segments": [segment], "device_traces": [rows]})

    padding = 512 if padded else 0
    assert device.allocated.max() == request_bytes + padding + 2 * MIB + padding


@pytest.mark.parametrize(("request_mib", "taken_mib"), [(23, 23), (24, 40), (30, 40)])
def test_blocks_from_max_split_size_on_are_taken_whole(request_mib, taken_mib):
    allocator = CachingAllocator(max_split=24 * MIB)
    allocator.free(allocator.alloc(40 * MIB))
    allocator.alloc(request_mib * MIB)
    device = replayed(allocator.snapshot())

    assert device.allocated.tolist() == [stat["allocated"] for stat in allocator.stats]
    assert device.allocated[-1] == taken_mib * MIB or request_mib < 24
    assert device.resized == 0


def test_an_allocator_that_splits_every_rest_off_is_not_given_torchs_sizes():
    rest = {"address": 19 * MIB + MIB // 2, "size": MIB // 2, "requested_size": 0, "state": "inactive"}
    block = {
        "address": 0,
        "size": 19 * MIB + MIB // 2,
        "requested_size": 19 * MIB + MIB // 2,
        "state": "active_allocated",
    }
    segment = {
        "device": 0,
        "address": 0,
        "total_size": 20 * MIB,
        "stream": 0,
        "segment_type": "large",
        "blocks": [block, rest],
    }
    rows = [
        {"action": action, "addr": 0, "size": block["size"], "stream": 0}
        for action in ("alloc", "free_requested", "free_completed", "alloc")
    ]
    device = replayed({"segments": [segment], "device_traces": [rows]})

    assert device.allocated.max() == block["size"]
    assert device.resized == 0


def test_more_allocated_than_reserved_makes_the_reserved_peak_unknown():
    allocator = CachingAllocator()
    allocator.free(allocator.alloc(30 * MIB))
    allocator.empty_cache()
    allocator.alloc(MIB)
    device = replayed(allocator.snapshot(skip=("segment_alloc", "segment_free")))

    assert device.reserved_peak is None
    assert device.allocated.max() == 30 * MIB
