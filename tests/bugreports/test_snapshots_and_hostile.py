"""Memory snapshots and hostile files that others reported, each with an input of our own."""

import json
import pickle
import subprocess
import sys
import time

import pytest

import profkit
from tests.bugreports.made import codes


def entry(action, addr, size, **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 1, "frames": [], **more}


def block(address, size, state="active_allocated"):
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": []}


def segment(address, size, *blocks):
    return {
        "device": 0, "address": address, "total_size": size, "stream": 0, "segment_type": "small", "blocks": list(blocks),
    }  # fmt: skip


def analysed(folder, *entries, segments=(), protocol=4):
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": list(segments), "device_traces": [list(entries)]}, protocol))
    return profkit.analyze(path).document


def test_a_ring_buffer_keeps_the_newest_and_is_read_from_its_end(tmp_path):
    """Two blocks from before the history, one of which is freed in it: never negative, and said."""
    kept = [block(0, 512), block(512, 1024), block(1536, 2097152 - 1536, "inactive")]
    result = analysed(
        tmp_path,
        entry("free_requested", 1536, 2048),
        entry("free_completed", 1536, 2048),
        entry("alloc", 512, 1000),
        segments=[segment(0, 2097152, *kept)],
    )
    (device,) = result.memory.devices
    assert (device.allocated_at_start_bytes, device.allocated_bytes) == (512 + 2048, 512 + 1024)
    assert device.peak_allocated_bytes == 2560
    assert "history-truncated" in codes(result)
    assert not device.complete
    assert min(result.memory.curve[0].allocated_bytes) >= 0


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_addresses_of_64_bits_in_every_protocol(tmp_path, protocol):
    """Above 2**63 a pickle writes nine bytes."""
    address = (1 << 64) - (1 << 21)
    result = analysed(
        tmp_path, entry("segment_alloc", address, 1 << 21), entry("alloc", address, 512), protocol=protocol,
        segments=[segment(address, 1 << 21, block(address, 512), block(address + 512, (1 << 21) - 512, "inactive"))],
    )  # fmt: skip
    assert result.memory.devices[0].peak_allocated_bytes == 512
    assert result.memory.complete


def test_running_out_of_memory_shows_the_request_beside_what_was_free(tmp_path):
    oom = {"action": "oom", "size": 1 << 34, "device_free": 1 << 30, "stream": 0, "time_us": 3, "frames": []}
    result = analysed(
        tmp_path, entry("segment_alloc", 0, 1 << 21), entry("alloc", 0, 512), oom,
        segments=[segment(0, 1 << 21, block(0, 512), block(512, (1 << 21) - 512, "inactive"))],
    )  # fmt: skip
    (row,) = result.memory.oom
    assert (row.requested_bytes, row.free_bytes) == (1 << 34, 1 << 30)
    assert result.memory.peak_allocated_bytes == 512, "what was refused was never held"


def test_a_block_is_allocated_until_it_is_given_back_and_active_until_it_can_be_used_again(tmp_path):
    result = analysed(
        tmp_path,
        entry("segment_alloc", 0, 1 << 21),
        entry("alloc", 0, 512),
        entry("free_requested", 0, 512),
        entry("alloc", 512, 1024),
        entry("free_completed", 0, 512),
        segments=[
            segment(
                0,
                1 << 21,
                block(0, 512, "inactive"),
                block(512, 1024),
                block(1536, (1 << 21) - 1536, "inactive"),
            )
        ],
    )
    (device,) = result.memory.devices
    assert (device.peak_allocated_bytes, device.peak_active_bytes) == (1024, 1536)


# --- hostile

EVIL = {
    "called": b"\x80\x04cposix\nsystem\n(S'touch pwned'\ntR.",
    "called and thrown away": b'\x80\x04cbuiltins\neval\n(S\'open("pwned", "w")\'\ntR0}.',
    "named only": b"\x80\x04}X\x01\x00\x00\x00acbuiltins\neval\ns.",
    "named on the stack": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0btouch pwned\x85R.",
}


@pytest.mark.parametrize("name", EVIL)
def test_a_pickle_that_names_code_is_refused_before_any_of_it_runs(tmp_path, name):
    (tmp_path / "s.pickle").write_bytes(EVIL[name])
    command = [sys.executable, "-m", "profkit", "analyze", "s.pickle", "-o", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.strip().splitlines()
    assert "forbidden" in line
    assert [each.name for each in tmp_path.iterdir()] == ["s.pickle"]


HOSTILE = {
    "nesting of lists.json": b'{"traceEvents":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "nesting of arguments.json": b'{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1,"args":' + b'{"a":' * 20_000 + b"1" + b"}" * 20_000 + b"}]}",
    "nesting.pickle": b"\x80\x04" + b"]" * 20_000 + b"a" * 19_999 + b".",
    "memo.pickle": b"\x80\x04}r\xff\xff\xff\xff.",
    "cut.pickle": pickle.dumps({"segments": [segment(0, 512)], "device_traces": [[entry("alloc", 0, 512)]]})[:-40],
    "shape.pickle": pickle.dumps({"segments": 3, "device_traces": {"a": [1]}}),
    "shape.json": b'{"segments": {"x": []}, "device_traces": 7}',
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_deep_cut_and_shapeless_files_are_read_or_one_line_at_once(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    started = time.process_time()
    refusal = ""
    try:
        text = profkit.analyze(path).render("json")
        json.loads(text, parse_constant=pytest.fail)
    except profkit.ReadError as error:
        refusal = str(error)
    assert len(refusal.splitlines()) <= 1
    assert time.process_time() - started < 5
