"""Damaged traces: what can be saved is, what was mended or lost is said, and nothing ends in a traceback."""

import gzip
import json
import random
import time
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.errors import ReadError
from profkit.model import CopyKind, RangeKind, Trace
from profkit.readers.kineto import read_kineto, text
from tests.shared import DATA

WHOLE = gzip.decompress((DATA / "kineto" / "convnet_fp16_channels_last.json.gz").read_bytes())
SMALL = gzip.decompress((DATA / "kineto" / "big_gemm_bf16.json.gz").read_bytes())


def rows(trace: Trace) -> tuple[int, int, int]:
    return len(trace.operations), len(trace.calls), len(trace.ranges)


def codes(trace: Trace) -> dict[str, int]:
    return {finding.code: finding.count for finding in trace.findings}


MENDED = [
    ("bare-quotes", b'"name": "aten::conv2d"', b'"name": "aten::"conv"2d"'),
    ("control-characters", b'"name": "aten::conv2d"', b'"name": "aten::\nconv2d"'),
    ("invalid-utf8", b'"name": "aten::conv2d"', b'"name": "aten::\xffconv2d"'),
    ("invalid-escapes", b'"name": "aten::conv2d"', b'"name": "C:\\users\\conv2d"'),
    ("lone-surrogates", b'"name": "aten::conv2d"', b'"name": "\\ud800conv2d"'),
    ("bare-numbers", b'"External id": ', b'"x": -nan, "y": inf, "External id": '),
    ("trailing-commas", b"\n    }\n  },\n", b",\n    }\n  },\n"),
]


@pytest.mark.parametrize(("code", "good", "bad"), MENDED, ids=[m[0] for m in MENDED])
@pytest.mark.parametrize("piece", [1 << 12, 8 << 20])
def test_known_damage_is_mended_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, code: str, good: bytes, bad: bytes, piece: int
) -> None:
    monkeypatch.setattr(text, "_PIECE", piece)
    assert good in WHOLE
    damaged = WHOLE.replace(good, bad)
    if code != "lone-surrogates":  # legal JSON, and no text
        with pytest.raises(ValueError):  # noqa: PT011  # JSON or UTF-8, both are ValueErrors
            json.loads(damaged.decode())
    trace = read_kineto(damaged, "x")
    assert rows(trace) == rows(read_kineto(WHOLE, "x"))
    assert set(codes(trace)) == {code}
    assert trace.dropped == {}


def test_mended_names_keep_their_text() -> None:
    event = '{"ph": "X", "cat": "cpu_op", "name": "%s", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": {}}'
    for written, meant in (
        ('say "hi"', 'say "hi"'),
        ("C:\\users\\x", "C:\\users\\x"),
        ("a\tb", "a b"),
        ("nan inf, }", "nan inf, }"),
    ):
        trace = read_kineto(f"[{event % written}, {event % 'other'},]".encode(), "x")
        assert sorted(trace.names(trace.ranges.name)) == sorted([meant, "other"])


@given(st.integers(200, len(SMALL)))
@settings(max_examples=60, deadline=None)
def test_a_file_cut_anywhere_gives_its_whole_events(length: int) -> None:
    part = SMALL[:length]
    whole = part.count(b"\n  },\n  {\n") if b'"traceEvents": [' in part else 0
    try:
        trace = read_kineto(part, "x")
    except ReadError:
        assert whole == 0
        return
    if length < len(SMALL) - 4:
        assert "truncated" in codes(trace)
    full = read_kineto(SMALL, "x")
    assert all(got <= there for got, there in zip(rows(trace), rows(full), strict=True))
    in_part = part[part.index(b"traceEvents") :]
    last_end = max(in_part.rfind(b"\n  },"), in_part.rfind(b"\n  }\n  ]"))
    complete = (
        json.loads(b"[" + in_part[in_part.index(b"[") + 1 : last_end + 4] + b"]") if last_end > 0 else []
    )
    assert len(trace.operations) >= sum(
        e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") for e in complete
    )


@pytest.mark.slow
def test_pieces_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    want = read_kineto(WHOLE, "x")
    compact = json.dumps(json.loads(WHOLE)).encode()
    for piece in (1, 1000, 100_000):
        monkeypatch.setattr(text, "_PIECE", piece)
        for data in (WHOLE, compact):
            got = read_kineto(data, "x")
            assert rows(got) == rows(want)
            assert np.array_equal(np.sort(got.operations.start_ns), np.sort(want.operations.start_ns))
            assert not got.findings


def test_a_cut_never_falls_into_a_nested_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_PIECE", 1)
    nested = {"occupancy": [{"a": 1}, {"ph": "X", "cat": "kernel", "ts": 5, "dur": 5}, {"b": '}, {"ph'}]}
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": at, "dur": 1, "args": nested}
        for at in range(20)
    ]
    trace = read_kineto(json.dumps({"traceEvents": events}).encode(), "x")
    assert trace.names(trace.operations.name).tolist() == ["k"] * 20
    assert (trace.dropped, list(trace.findings)) == ({}, [])


def test_what_one_event_lacks_is_lost_alone() -> None:
    broken = SMALL.replace(b'"Ev Idx": 3', b'"Ev Idx": }', 1)
    trace = read_kineto(broken, "x")
    assert trace.dropped == {"unreadable": 1}
    assert codes(trace) == {"unreadable-events": 1}
    assert sum(rows(trace)) == sum(rows(read_kineto(SMALL, "x"))) - 1


@pytest.mark.slow
def test_a_file_that_is_all_damage_takes_no_hours() -> None:
    started = time.process_time()
    trace = read_kineto(WHOLE.replace(b'"args": {', b'"args": ['), "x")
    assert trace.dropped["unreadable"] > 1000
    assert time.process_time() - started < 20


def test_deep_nesting_is_no_crash() -> None:
    deep = b"[" * 100_000
    with pytest.raises(ReadError):
        read_kineto(b'{"traceEvents": ' + deep, "x")
    ok = b'{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 1, "ts": 1, "dur": 1}'
    trace = read_kineto(b'{"traceEvents": [{"args": ' + deep + b"]" * 100_000 + b"}, " + ok + b"]}", "x")
    assert len(trace.operations) == 1


def test_wrong_types_are_unknown_and_not_fatal() -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1}
    args = {
        "device": [1],
        "stream": {"a": 1},
        "correlation": "x9",
        "grid": "big",
        "block": [1, 2],
        "registers per thread": "many",
    }
    odd = [
        event | {"args": args},
        event | {"args": 5},
        event | {"args": None},
        event | {"name": 7},
        event | {"name": None},
        event | {"pid": [1]},
        event | {"cat": 3},
    ]
    trace = read_kineto(json.dumps(odd).encode(), "x")
    assert len(trace.operations) == 6
    assert set(trace.operations.grid_x.tolist()) == {-1}


def test_old_categories_and_marks() -> None:
    def event(cat: str, name: str, tid: object = 5, **args: object) -> dict:
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": 10, "dur": 5, "args": args}

    events = [
        event("Operator", "aten::add", **{"Input dims": [[2, 3]], "Input type": ["float"]}),
        event("Operator", "ProfilerStep#3"),
        event("User", "forward"),
        event("User", "forward", "stream 7 user"),
        event("gpu_user_Annotation", "forward", 7),
        event("user_annotation", "profkit::backward"),
        event("cpu_op", "profkit::loss"),
        event("cpu_op", "## Call CompiledFxGraph abc ##"),
        event("Runtime", "cudaMemcpyAsync_v3020", correlation=4),
        event("Memcpy", "Memcpy DtoH (Device -> Pageable)", "stream 7", bytes=8, correlation=4),
        event("Memcpy", "Memcpy HtoD (Pinned -> Device)", "stream 7", bytes=8),
        event("Memcpy", "Memcpy HtoH (Pageable -> Pageable)", "stream 7", bytes=8),
        event("gpu_memcpy", "CopyDeviceToHost", 0),
        event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 0, fromDevice=1, inDevice=1, toDevice=0),
        event("nonsense", "x"),
    ]
    trace = read_kineto(json.dumps(events).encode(), "x")
    by_kind = {
        kind: sorted(trace.names(trace.ranges.name[trace.ranges.kind == kind]))
        for kind in (RangeKind.ANNOTATION, RangeKind.OPERATOR)
    }
    assert by_kind[RangeKind.ANNOTATION] == ["ProfilerStep#3", "backward", "forward", "loss"]
    assert by_kind[RangeKind.OPERATOR] == ["## Call CompiledFxGraph abc ##", "aten::add"]
    marked = trace.names(trace.ranges.name[trace.names(trace.ranges.domain) == "profkit"])
    assert sorted(marked) == ["backward", "loss"]
    assert set(trace.names(trace.calls.name)) == {"cudaMemcpyAsync"}
    copies = sorted(zip(trace.operations.copy_kind.tolist(), trace.operations.pageable.tolist(), strict=True))
    assert copies == sorted(
        [(CopyKind.DTOH, 1), (CopyKind.HTOD, 0), (CopyKind.DTOH, -1), (CopyKind.PTOP, -1)]
    )
    peer = trace.operations.take(trace.operations.copy_kind == CopyKind.PTOP)
    assert (peer.source_device[0], peer.target_device[0]) == (1, 0)
    assert "[[2, 3]]" in trace.names(trace.ranges.shapes)
    assert codes(trace) == {"unknown-categories": 1}


@pytest.mark.slow
def test_random_damage_is_never_a_traceback() -> None:
    rng = random.Random(7)
    tokens = [
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"nan",
        b"1e999",
        b"\xff",
        b"\n",
        b"9" * 30,
        b"[[[[",
    ]
    cases = [p.read_bytes() for p in sorted((DATA / "cases").glob("*.json")) if p.stat().st_size]
    for _ in range(600):
        data = bytearray(rng.choice(cases))
        for _ in range(rng.choice((1, 2, 8))):
            at = rng.randrange(len(data))
            if rng.random() < 0.5:
                data[at:at] = rng.choice(tokens)
            else:
                del data[at : at + rng.choice((1, 3, 60))]
        with suppress(ReadError):
            trace = read_kineto(bytes(data), "x")
            assert np.all(trace.operations.end_ns >= trace.operations.start_ns)
