"""Reading memory snapshots: every layout torch wrote, and everything that a hostile file may try."""

import gzip
import json
import pickle
import struct
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ReadError
from profkit.model.memory_history import Action, BlockState
from profkit.readers.snapshot import history_of, read_snapshot
from tests.shared import DATA, SHARED, needs_shared

CASES = DATA / "cases"
FRAMES = [
    {"filename": "train.py", "line": 10, "name": "forward"},
    {"filename": "train.py", "line": 99, "name": "main"},
]


def entry(action, addr=4096, size=512, time_us=1, **more):
    return {
        "action": action,
        "addr": addr,
        "size": size,
        "stream": 0,
        "time_us": time_us,
        "frames": FRAMES,
        **more,
    }


def snapshot(*entries, segments=(), **more):
    return {"segments": list(segments), "device_traces": [list(entries)], **more}


def segment(address=4096, blocks=((512, "active_allocated"), (1536, "inactive")), **more):
    made, at = [], address
    for size, state in blocks:
        made.append(
            {"address": at, "size": size, "requested_size": size - 1, "state": state, "frames": FRAMES}
        )
        at += size
    return {
        "device": 0,
        "address": address,
        "total_size": at - address,
        "stream": 0,
        "segment_type": "small",
        "blocks": made,
    } | more


def read(value, protocol=4):
    return read_snapshot(pickle.dumps(value, protocol), "s.pickle")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_pickle_protocol_gives_the_same_columns(protocol):
    history = read(
        snapshot(entry("alloc"), entry("free_completed", time_us=7), segments=[segment()]), protocol
    )

    assert history.events.action.tolist() == [Action.ALLOC, Action.FREE_COMPLETED]
    assert history.events.time_ns.tolist() == [1_000, 7_000]
    assert history.blocks.state.tolist() == [BlockState.ALLOCATED, BlockState.INACTIVE]
    assert history.blocks.requested_bytes.tolist() == [511, 1535]
    assert history.dropped == {}


def test_json_dumps_are_read_like_pickles():
    value = snapshot(entry("alloc"), segments=[segment(segment_pool_id=[0, 0])])

    from_json = read_snapshot(json.dumps(value).encode(), "s.json")

    assert from_json.events.bytes.tolist() == read(value).events.bytes.tolist()
    assert [from_json.text(i) for i in from_json.segments.pool.tolist()] == ["0,0"]


def test_equal_stacks_are_stored_once_however_they_are_shared():
    copies = [entry("alloc", addr=i, frames=[dict(f) for f in FRAMES]) for i in range(50)]
    history = read(
        snapshot(*copies, entry("alloc", addr=99, frames=FRAMES[:1]), entry("alloc", addr=100, frames=[]))
    )

    assert len(history.stacks) == 2
    assert len(history.frames) == 2
    assert history.events.stack.tolist() == [0] * 50 + [1, -1]
    assert [history.text(i) for i in history.frames.function[history.stacks[0]].tolist()] == [
        "forward",
        "main",
    ]


def test_addresses_of_64_bits_written_unsigned_keep_their_bits_and_order():
    high = (1 << 63) + (1 << 40)
    history = read(snapshot(entry("alloc", addr=high), entry("alloc", addr=high + 512, stream=high)))

    assert np.diff(history.events.address).tolist() == [512]
    assert history.events.address.view(np.uint64).tolist() == [high, high + 512]


def test_an_out_of_memory_entry_has_free_memory_instead_of_an_address():
    oom = {
        "action": "oom",
        "size": 1 << 30,
        "device_free": 12345,
        "stream": 0,
        "time_us": 3,
        "frames": FRAMES,
    }
    history = read(snapshot(entry("alloc"), oom))

    assert history.events.device_free.tolist() == [-1, 12345]
    assert history.events.bytes.tolist() == [512, 1 << 30]


def test_unknown_actions_are_counted_and_left_out():
    history = read(snapshot(entry("alloc"), entry("workspace_snapshot"), entry("teleport")))

    assert len(history.events) == 1
    assert history.dropped == {"unknown_actions": 2}
    assert [finding.code for finding in history.findings] == ["unknown-actions"]


def test_malformed_rows_are_counted_and_the_rest_is_kept():
    bad_frame = entry("alloc", addr=1, frames=[None, FRAMES[0], 7])
    rows = [
        None,
        5,
        entry(None),
        entry("alloc", size=-7),
        entry("alloc", size="12"),
        entry("alloc", addr="x"),
        {"action": "alloc"},
    ]
    history = read(
        snapshot(*rows, bad_frame, segments=[segment(), None, segment(total_size=True), segment(device=-4)])
    )

    assert len(history.events) == 1
    assert len(history.segments) == 1
    assert history.dropped == {"malformed_entries": 7, "malformed_segments": 3, "malformed_frames": 2}
    assert "7 malformed entries" in history.findings[0].params["what"]


def test_torch_2_0_blocks_without_addresses_fill_their_segment():
    old = segment()
    for block in old["blocks"]:
        del block["address"], block["requested_size"], block["frames"]
    old["blocks"][0]["history"] = [{"addr": 4096, "real_size": 400, "frames": FRAMES}]
    history = read([old])

    assert history.blocks.address.tolist() == [4096, 4608]
    assert history.blocks.requested_bytes.tolist() == [400, -1]
    assert history.blocks.stack.tolist() == [0, -1]


def test_annotations_pair_by_name_and_nesting_and_lose_the_mark():
    def mark(name, stage, at):
        return {"name": name, "stage": stage, "time_us": at, "device": 0}

    rows = [
        mark("profkit::a", "START", 1),
        mark("b", "START", 2),
        mark("b", "START", 3),
        mark("b", "END", 4),
        mark("b", "END", 5),
    ]
    rows += [mark("profkit::a", "END", 6), mark("open", "START", 7), mark("never", "END", 8), "junk"]
    history = read(snapshot(entry("alloc"), external_annotations=rows))

    found = history.annotations
    assert [history.text(i) for i in found.name.tolist()] == ["a", "b", "b", "open"]
    assert found.start_ns.tolist() == [1000, 2000, 3000, 7000]
    assert found.end_ns.tolist() == [6000, 5000, 4000, -1]
    assert found.marked.tolist() == [1, 0, 0, 0]
    assert history.dropped == {"malformed_annotations": 2}


def test_text_that_is_no_unicode_becomes_valid():
    frames = [{"filename": "a\ud800.py", "line": 1, "name": "f" * 9000}]
    history = read(snapshot(entry("alloc", frames=frames)))

    for text in history.strings:
        text.encode()
        assert len(text) <= 2000


def test_only_the_base_name_of_the_file_is_kept():
    data = pickle.dumps(snapshot(entry("alloc")))
    assert read_snapshot(data, "/home/someone/run/s.pickle").source.name == "s.pickle"
    assert read_snapshot(data, "C:\\Users\\someone\\s.pickle").source.name == "s.pickle"


class Evil:
    def __reduce__(self):
        import os

        return os.mkdir, ("profkit_pwned",)


ROTTEN = {
    "reduce": (pickle.dumps({"segments": [Evil()]}), "posix.mkdir"),
    "protocol 0": (pickle.dumps({"segments": [Evil()]}, 0), "posix"),
    "inst": (b"(S'profkit_pwned'\nios\nmkdir\n.", "os.mkdir"),
    "popped": (b"\x80\x04cbuiltins\neval\n0}.", "builtins.eval"),
    "stack global": (
        b"\x80\x04\x8c\x09importlib\x8c\x0dimport_module\x93\x8c\x0bantigravity\x85R.",
        "importlib.import_module",
    ),
    "persistent id": (b"\x80\x04\x8c\x01a\x51.", "persistent id"),
    "extension": (b"\x80\x02\x82\x01.", "extension"),
    "build": (b"\x80\x04}}b.", "object's state"),
    "call of data": (b"\x80\x04]\x29R.", "a call"),
}


@pytest.mark.parametrize("name", ROTTEN)
def test_code_in_a_pickle_is_refused_by_name_and_never_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, named = ROTTEN[name]

    with pytest.raises(ReadError, match=named) as caught:
        read_snapshot(data, "evil.pickle")

    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


BOMBS = {
    "memo index": b"\x80\x02]r\xff\xff\xff\xff.",
    "memo index as text": b"(lp99999999999\n.",
    "text of 2^60 bytes": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"x.",
    "bytes of 2^60 bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b"x.",
    "bytearray of 2^62": b"\x80\x05\x96" + struct.pack("<Q", 1 << 62) + b"x.",
    "text of 4 GB": b"\x80\x04X\xff\xff\xff\xffx.",
    "long of 2 GB": b"\x80\x02\x8b\xff\xff\xff\x7f.",
    "negative long": b"\x80\x02\x8b\xff\xff\xff\xff.",
    "memo levels": b"\x80\x04]\x94" + b"".join(b"](h%ch%ce\x94" % (i, i) for i in range(60)) + b".",
    "deep nesting": b"\x80\x04" + b"]" * 20_000 + b"a" * 19_999 + b".",
    "unknown opcode": b"\x80\x04\xee.",
    "no stop": b"\x80\x04}",
    "empty stack": b"\x80\x04.",
    "missing memo": b"\x80\x04h\x05.",
    "a number": b"\x80\x04K\x05.",
    "an unhashable key": b"\x80\x04}(]K\x01u.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_and_nonsense_are_one_quick_line(name):
    started = time.process_time()

    with pytest.raises(ReadError) as caught:
        read_snapshot(BOMBS[name], "bomb.pickle")

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert time.process_time() - started < 1


@pytest.mark.parametrize("data", [b"{", b'{"segments": ', b"[" * 100_000, b'{"a": 1}', b"[1, 2]", b"{}"])
def test_broken_or_foreign_json_is_one_line(data):
    with pytest.raises(ReadError) as caught:
        read_snapshot(data, "x.json")
    assert "\n" not in str(caught.value)


def test_large_parts_that_a_pickle_names_again_and_again_are_read_once():
    one = segment(blocks=((512, "inactive"),) * 1000)
    trace = [entry("alloc")] * 1000
    history = read(
        {
            "segments": [one] * 20_000 + [segment(1 << 30) | {"blocks": one["blocks"]}],
            "device_traces": [trace] * 1000,
        }
    )

    assert len(history.segments) == 2
    assert len(history.blocks) == 1000
    assert len(history.events) == 1000
    assert history.dropped["malformed_segments"] == 19_999


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_cut_or_flipped_file_is_read_or_is_one_line(data):
    whole = pickle.dumps(
        snapshot(entry("alloc"), entry("free_completed"), segments=[segment()]), data.draw(st.integers(0, 5))
    )
    broken = bytearray(whole[: data.draw(st.integers(0, len(whole)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if broken:
            broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    try:
        history = read_snapshot(bytes(broken), "x")
    except ReadError as error:
        assert "\n" not in str(error)  # noqa: PT017 (reading it is as good)
    else:
        assert (history.events.bytes >= 0).all()


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(sorted({*entry("a"), *segment(), "blocks"})), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(plain, plain, plain, plain)
def test_any_shape_is_read_or_is_one_line(segments, traces, annotations, allocator):
    value = {"segments": [segment(), segments], "device_traces": [[entry("alloc"), traces], traces]}
    history = history_of(
        value | {"external_annotations": [annotations], "allocator_settings": allocator}, "x"
    )
    assert len(history.segments) >= 1
    try:
        history_of({"segments": segments, "device_traces": traces, "external_annotations": annotations}, "x")
    except ReadError as error:
        assert "it contains nothing usable" in str(error)  # noqa: PT017 (reading it is as good)


def test_case_90_names_the_forbidden_global(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for case, named in (
        ("90_evil_reduce", "posix.system"),
        ("90c_evil_stack_global", "importlib.import_module"),
    ):
        with pytest.raises(ReadError, match=f"contains a forbidden global {named}"):
            read_snapshot((CASES / f"{case}.pickle").read_bytes(), case)
    assert not list(tmp_path.iterdir())


def test_case_96_is_rejected_without_being_walked():
    with pytest.raises(ReadError, match="malformed entries"):
        read_snapshot((CASES / "96_memo_bomb.pickle").read_bytes(), "96")


def test_case_98_counts_its_five_bad_entries():
    with pytest.raises(ReadError, match="5 malformed entries"):
        read_snapshot((CASES / "98_wrong_shape.pickle").read_bytes(), "98")


def test_a_recording_loses_nothing():
    data = gzip.decompress((DATA / "snapshot/cases/gpt_cpp_frames.pickle.gz").read_bytes())
    history, plain_value = read_snapshot(data, "gpt"), pickle.loads(data)

    trace = plain_value["device_traces"][0]
    assert history.events.bytes.tolist() == [e["size"] for e in trace]
    assert history.events.address.tolist() == [e["addr"] for e in trace]
    for row in range(0, len(trace), 97):
        frames = history.stacks[int(history.events.stack[row])] if history.events.stack[row] >= 0 else []
        assert [history.text(int(history.frames.function[f])) for f in frames] == [
            f["name"] for f in trace[row].get("frames", [])
        ]
    assert history.dropped == {}


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("path", sorted(SHARED.glob("corpus/snapshot/*")), ids=lambda path: path.stem[:20])
def test_files_of_other_people_lose_nothing(path):
    history = read_snapshot(path.read_bytes(), path.name)

    value = pickle.loads(path.read_bytes())
    assert len(history.events) == sum(map(len, value["device_traces"]))
    assert len(history.blocks) == sum(len(s["blocks"]) for s in value["segments"])
    assert not history.dropped


def test_settings_by_size_are_whole_numbers_and_the_others_finite():
    divisions = {"1": 4, "2": 1.5, "4": "8", "8": True, "16": 1 << 80}
    written = {
        "roundup_power2_divisions": divisions,
        "garbage_collection_threshold": 0.5,
        "odd": float("nan"),
    }
    history = history_of({"segments": [], "device_traces": [], "allocator_settings": written}, "x")
    assert history.settings == {"roundup_power2_divisions": {"1": 4}, "garbage_collection_threshold": 0.5}
