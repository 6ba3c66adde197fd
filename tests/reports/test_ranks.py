"""The script that records cases of several ranks: what it keeps of a trace, and what it must not."""

import gzip
import importlib.util
import json
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "reports" / "ranks" / "record.py"


@pytest.fixture(scope="module")
def record():
    """The script as a module; it imports torch only in the processes that record."""
    spec = importlib.util.spec_from_file_location("record_ranks", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_trace_keeps_no_host_no_path_and_no_environment(record, tmp_path):
    path = tmp_path / "case_rank0.json"
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "args": {"correlation": 7}}
    path.write_text(
        json.dumps(
            {
                "schemaVersion": 1,
                "distributedInfo": {"rank": 0},
                "traceName": "/home/somebody/run/case_rank0.json",
                "host_name": "node17",
                "env": {"TOKEN": "secret"},
                "traceEvents": [event, {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 7, "ts": 1}],
            }
        )
    )
    record.scrub(path)
    assert not path.exists()
    kept = json.loads(gzip.decompress(path.with_suffix(".json.gz").read_bytes()))
    assert kept == {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": [event]}


def _event(category, name, ts, dur, **args):
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "args": args}


def test_trimming_cuts_what_no_reader_looks_at_and_late_steps_of_long_cases(record, tmp_path):
    launched = [
        _event("cuda_runtime", "cudaLaunchKernel", at, 2, correlation=at, cbid=211) for at in (5, 15, 25)
    ]
    kernels = [_event("kernel", "k", at + 20, 2, correlation=at, queued=0, device=0) for at in (5, 15, 25)]
    steps = [_event("user_annotation", f"ProfilerStep#{n}", 10 * n, 9) for n in range(3)]
    on_gpu = [_event("gpu_user_annotation", "ProfilerStep#0", 20, 9)]
    trace = {"schemaVersion": 1, "traceEvents": [*steps, *launched, *kernels, *on_gpu]}
    kept = {}
    for case in ("buckets", "ddp"):
        path = tmp_path / f"{case}_rank0.json.gz"
        record.write(json.loads(json.dumps(trace)), path)
        kept[case] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    of_all = [e["name"] for e in kept["ddp"]]
    assert of_all == [f"ProfilerStep#{n}" for n in range(3)] + ["cudaLaunchKernel"] * 3 + ["k"] * 3
    assert [e["args"].get("correlation") for e in kept["buckets"]] == [None, None, 5, 15, 5, 15]
    assert {key for e in kept["ddp"] for key in e["args"]} == {"correlation", "device"}


def test_the_kept_recordings_are_what_the_script_would_keep(record, tmp_path):
    for folder in ("2_gpus", "4_gpus"):
        for file in (SCRIPT.parents[2] / "tests" / "data" / "ranks" / folder).glob("messages_*.gz"):
            kept = gzip.decompress(file.read_bytes())
            record.write(json.loads(kept), tmp_path / file.name)
            assert gzip.decompress((tmp_path / file.name).read_bytes()) == kept


def test_the_same_trace_packs_to_the_same_bytes(record, tmp_path):
    packed = []
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text('{"traceEvents": []}')
        record.scrub(tmp_path / name)
        packed.append((tmp_path / name).with_suffix(".json.gz").read_bytes())
    assert packed[0] == packed[1]


def test_an_archive_has_the_traces_and_nothing_of_who_packed_it(record, tmp_path):
    for name in ("2_gpus/ddp_rank0.json.gz", "4_gpus/ddp_rank3.json.gz", "gloo_ddp_rank0.json.gz"):
        (tmp_path / "ranks" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ranks" / name).write_bytes(b"a trace")
    record.pack(tmp_path / "ranks", tmp_path / "out" / "ranks.tar")
    with tarfile.open(tmp_path / "out" / "ranks.tar") as packed:
        entries = packed.getmembers()
    assert [entry.name for entry in entries] == ["2_gpus/ddp_rank0.json.gz", "4_gpus/ddp_rank3.json.gz"]
    assert {(entry.uid, entry.gid, entry.mtime, entry.uname) for entry in entries} == {(0, 0, 0, "")}


def test_a_job_that_cannot_start_is_told_and_costs_no_other(record, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(record, "run", lambda case, *_: "no GPU" if case == "ddp" else "")
    monkeypatch.setattr(record, "say", lambda case, _: print(f"said {case}"))
    arguments = ["record.py", "--device", "cpu", "--out", str(tmp_path), "--cases", "ddp", "slow"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as ended:
        record.main()
    assert ended.value.code == 1
    told = capsys.readouterr().out
    assert "ddp          FAILED: no GPU" in told
    assert "said slow" in told
