"""Inputs: compression, standard input, limits, and one line for what is no recording."""

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import shutil
import sqlite3
import sys
import threading
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from profkit.errors import ReadError
from profkit.model import Severity
from profkit.model.memory_history import MemoryHistory
from profkit.readers import read
from profkit.readers.sources import open_input
from tests.shared import DATA

TRACE = DATA / "cases" / "06_sub_us_kernels.json"
SNAPSHOT = DATA / "cases" / "50_mem_baseline.pickle"
DATABASE = DATA / "cases" / "30_emit_nvtx_names.sqlite"
COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    stream = io.BufferedReader(io.BytesIO(data))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stream, isatty=lambda: False))


def refused(path: Path | str) -> str:
    with pytest.raises(ReadError) as caught:
        read(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("name", ["trace.json", "wrong.sqlite", "none"])
def test_content_tells_what_a_file_is_and_not_its_name(tmp_path: Path, name: str) -> None:
    shutil.copy(TRACE, tmp_path / name)
    trace = read(tmp_path / name)
    assert (trace.source.format, trace.source.name, len(trace.operations)) == ("kineto", name, 4)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize(("source", "rows"), [(TRACE, 4), (DATABASE, None)])
def test_compressed_files_are_the_same_as_plain_ones(
    tmp_path: Path, suffix: str, source: Path, rows: int | None
) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESS[suffix](source.read_bytes()))
    got, plain = read(path), read(source)
    assert got.source.format == plain.source.format
    assert got.operations.start_ns.tolist() == plain.operations.start_ns.tolist()
    assert rows is None or len(got.operations) == rows
    assert list(got.findings) == list(plain.findings)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_standard_input(monkeypatch: pytest.MonkeyPatch, pack) -> None:
    for source in (TRACE, DATABASE, SNAPSHOT):
        piped(monkeypatch, pack(source.read_bytes()))
        got, plain = read("-"), read(source)
        assert got.source.name == "stdin"
        assert got.source.format == plain.source.format


def test_a_named_pipe_is_read_as_a_stream(tmp_path: Path) -> None:
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    writer = threading.Thread(target=lambda: fifo.write_bytes(TRACE.read_bytes()))
    writer.start()
    trace = read(fifo)
    writer.join()
    assert len(trace.operations) == 4


def test_databases_that_were_compressed_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    packed = tmp_path / "db.gz"
    packed.write_bytes(gzip.compress(DATABASE.read_bytes()))
    with open_input(str(packed)) as opened:
        assert opened.format.name == "nsys"
        with sqlite3.connect(f"file:{opened.content}?mode=ro", uri=True) as database:
            assert database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
        database.close()
    assert [p.name for p in tmp_path.iterdir()] == ["db.gz"]


def test_a_snapshot_is_a_memory_history_also_as_json(tmp_path: Path) -> None:
    history = read(SNAPSHOT)
    assert isinstance(history, MemoryHistory)
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(pickle.loads(SNAPSHOT.read_bytes())))  # our own file
    as_json = read(path)
    assert isinstance(as_json, MemoryHistory)
    assert as_json.source.format == history.source.format == "snapshot"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"   \n ", "white space"),
        (b"PK\x03\x04abcdefgh", "zip"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"<?xml version='1.0'?>", "XML"),
        (b"hello world, step 1 took 3 s\n", "plain text"),
        (b"[INFO] 12:00 starting\n", "plain text"),
        (bytes(range(256)) * 4, "binary"),
        (b"\x7fELF\x02\x01\x01", "program"),
        (b'{"log": {"entries": []}}', "HAR"),
        (b'{"rocprofiler-sdk-tool": []}', "rocprofiler"),
        (b'{"schema": "1.0.2", "nodes": []}', "execution trace"),
        (b'{"workload_graph": []}', "Chakra"),
        (b'{"traceEvents": []}', "no trace events"),
        (b'{"traceEvents": {"a": 1}}', "traceEvents"),
        (b'{"a": 1, "b": 2}', "without traceEvents"),
        (b"[[1, 2], [3, 4]]", "no events"),
        (b'[{"ph": "B", "ts": 1, "pid": 0, "tid": 1, "name": "x"}]', "another program"),
        (b'{"oh no', "damaged at its start"),
        (
            b'{"schemaVersion": 1, "traceEvents": [\n {"ph": "X", "ca',
            "damaged before the end of its first event",
        ),
        (gzip.compress(b"", mtime=0), "nothing is in"),
        (gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), "twice"),
        (b"\x1f\x8b\x08", "nothing is in"),
    ],
)
def test_what_is_no_recording_is_named_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "input.json"
    path.write_bytes(content)
    message = refused(path)
    assert says in message
    assert "input.json" in message


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "missing.json")
    assert "folder" in refused(tmp_path)
    assert "name" in refused("a\x00b")


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.json"
    path.write_bytes(b"{}")
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may read everything

        def denied(*_args: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", denied)
    assert "no permission" in refused(path)


def test_a_compression_that_this_python_lacks(tmp_path: Path) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("this Python has it")
    path = tmp_path / "trace.json.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    assert "zstd -d" in refused(path)


def test_nothing_piped_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(), isatty=lambda: True))
    assert "nothing is piped" in refused("-")


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_what_a_truncated_gzip_file_holds_is_saved(tmp_path: Path, keep: float) -> None:
    whole = (DATA / "kineto" / "big_gemm_bf16.json.gz").read_bytes()
    path = tmp_path / "cut.json.gz"
    path.write_bytes(whole[: int(len(whole) * keep)])
    trace = read(path)
    assert trace.findings[0].code == "truncated"
    assert trace.findings[0].params["compression"] == "gzip"
    assert trace.findings[0].params["error"] is None
    assert all(f.severity >= Severity.WARNING for f in trace.findings)
    assert len(trace.ranges) > 0


def test_a_damaged_gzip_file_is_said(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(TRACE.read_bytes() + b" " * (4 << 20)))
    data[-6] ^= 0xFF  # the check sum
    path = tmp_path / "bad.gz"
    path.write_bytes(data)
    trace = read(path)
    assert any(finding.params.get("error") for finding in trace.findings)


def test_several_gzip_members_and_padding(tmp_path: Path) -> None:
    data = TRACE.read_bytes()
    path = tmp_path / "two.gz"
    path.write_bytes(gzip.compress(data[:500]) + gzip.compress(data[500:]) + b"\x00" * 100)
    assert len(read(path).operations) == 4
    assert not read(path).findings


def test_a_limit_refuses_and_a_larger_one_does_not(tmp_path: Path) -> None:
    bomb = DATA / "cases" / "92_gz_bomb.json.gz"
    with pytest.raises(ReadError, match=r"expands to more than 32\.0 MiB"):
        read(bomb, expand_limit=32 << 20)
    assert len(read(bomb, expand_limit=41943956).operations) == 1


def test_bombs_are_stopped_without_being_asked(tmp_path: Path) -> None:
    block = gzip.compress(b" " * (64 << 20))
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"{") + block * 8)
    tracemalloc.start()
    with pytest.raises(ReadError, match="expands to more than"):
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 700 << 20


def test_utf16_and_byte_order_marks(tmp_path: Path) -> None:
    text = TRACE.read_text()
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le"):
        path = tmp_path / encoding
        path.write_bytes(("\ufeff" + text if encoding == "utf-16-le" else text).encode(encoding))
        assert len(read(path).operations) == 4


def test_inputs_are_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    shutil.copy(TRACE, path)
    before = path.stat().st_mtime_ns
    read(path)
    assert path.stat().st_mtime_ns == before
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]


@pytest.mark.parametrize(
    "encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_json_in_any_encoding_of_unicode(encoding: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    data = f"\n{TRACE.read_text()}".encode(encoding)
    path.write_bytes(gzip.compress(data) if packed else data)
    found = read(path)
    assert len(found.operations) == 4
    assert not found.findings


@pytest.mark.parametrize(
    ("begins", "ends"), [("utf-8", "utf-16-le"), ("utf-16", "utf-8"), ("utf-32", "utf-16-le")]
)
def test_mixed_encodings_are_called_so(begins: str, ends: str, tmp_path: Path) -> None:
    path, text = tmp_path / "trace.json", TRACE.read_text()
    half = text.index("},", len(text) // 2) + 2
    path.write_bytes(text[:half].encode(begins) + text[half:].encode(ends))
    assert "mixed-encodings" in {found.code for found in read(path).findings}


def test_a_file_here_is_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(TRACE, "ab::c.json")
    assert len(read("ab::c.json").operations) == 4
