"""Collecting the study's recordings: each file gets the name of the workload it is of, also when others failed."""

import gzip
import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).parents[2] / "reports" / "calibration"
ROWS = [
    {"name": "first", "started": True},
    {"name": "lacks_its_backend", "started": False, "error": "RuntimeError: no kernel"},
    {"name": "fails_while_recorded", "started": True, "error": "RuntimeError: out of memory"},
    {"name": "last", "started": True},
]


@pytest.fixture
def collect(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    collect = importlib.import_module("collect")
    monkeypatch.setattr(collect, "REFUSED", [])
    return collect


def write_rows(path, rows=ROWS):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_timeline_is_of_the_workload_that_opened_its_range(collect, monkeypatch, tmp_path):
    def export(command, **_):
        Path(command[command.index("-o") + 1]).write_text(Path(command[-1]).name)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(collect.subprocess, "run", export)
    monkeypatch.setattr(collect, "clean", lambda path: None)
    write_rows(tmp_path / "nsys" / "nsys.jsonl")
    collect.timelines(tmp_path, tmp_path / "data", "nsys")
    found = {path.name: gzip.decompress(path.read_bytes()) for path in (tmp_path / "data" / "nsys").iterdir()}
    assert found == {"first.sqlite.gz": b"report.1.nsys-rep", "last.sqlite.gz": b"report.3.nsys-rep"}


def test_counters_are_of_the_workload_behind_their_marker(collect, tmp_path):
    header = ["Kernel Name", "Grid Size", "Block Size", *collect.COUNTERS.values()]
    rows = [["", "", "", *(["%"] * len(collect.COUNTERS))]]
    for number, kernels in enumerate((["a", "b"], ["broken"], ["c"])):
        rows.append([f"at::{collect.MARKER}", "1", "1", *(["1"] * len(collect.COUNTERS))])
        rows += [
            [kernel, "(1, 1, 1)", "(2, 1, 1)", *([str(number)] * len(collect.COUNTERS))] for kernel in kernels
        ]
    table = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [header, *rows])
    write_rows(tmp_path / "ncu" / "cold.jsonl")
    (tmp_path / "ncu" / "cold.csv.gz").write_bytes(gzip.compress(table.encode()))
    collect.counters(tmp_path, tmp_path / "data")
    kept = {
        path.name: gzip.decompress(path.read_bytes()).decode()
        for path in (tmp_path / "data" / "ncu").iterdir()
    }
    assert set(kept) == {"first.csv.gz", "last.csv.gz"}
    assert [line.split(",")[0] for line in kept["first.csv.gz"].splitlines()] == ["kernel", "a", "b"]
    assert [line.split(",")[0] for line in kept["last.csv.gz"].splitlines()] == ["kernel", "c"]


@pytest.mark.torch
def test_only_what_was_recorded_in_every_way_is_listed(collect, capsys, tmp_path):
    pytest.importorskip("torch")
    for folder, kind in (("kineto", "json"), ("nsys", "sqlite"), ("ncu", "csv")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"linear_m2_bf16.{kind}.gz").write_bytes(b"")
    (tmp_path / "nsys" / "linear_m48_bf16.sqlite.gz").write_bytes(b"")
    (tmp_path / "workloads.json").write_text(json.dumps([{"name": "older", "held_out": True}]))
    collect.describe(tmp_path)
    older, row = json.loads((tmp_path / "workloads.json").read_text())
    assert older == {"name": "older", "held_out": True}
    assert (row["name"], row["held_out"], row["truth"]) == ("linear_m2_bf16", None, "memory")
    assert "linear_m48_bf16 is left out: no recording by kineto, ncu" in capsys.readouterr().err


def test_a_stage_that_was_not_run_is_no_fault(collect, tmp_path):
    collect.timelines(tmp_path, tmp_path / "data", "emit")
    assert not (tmp_path / "data").exists()


def test_what_names_the_machine_is_not_stored_and_costs_the_rest_nothing(collect, capsys, tmp_path):
    collect.store(tmp_path / "trace.json.gz", b'{"file": "/home/somebody/train.py"}')
    collect.store(tmp_path / "clean.json.gz", b'{"file": "train.py"}')
    assert [path.name for path in tmp_path.iterdir()] == ["clean.json.gz"]
    assert collect.REFUSED == ["trace.json.gz"]
    assert "must not be stored" in capsys.readouterr().err


def test_a_report_that_cannot_be_exported_costs_the_others_nothing(collect, monkeypatch, tmp_path):
    def export(command, **_):
        if command[-1].endswith("report.1.nsys-rep"):
            return SimpleNamespace(returncode=1, stderr="no such report")
        Path(command[command.index("-o") + 1]).write_text("export")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(collect.subprocess, "run", export)
    monkeypatch.setattr(collect, "clean", lambda path: None)
    write_rows(tmp_path / "nsys" / "nsys.jsonl")
    collect.timelines(tmp_path, tmp_path / "data", "nsys")
    assert [path.name for path in (tmp_path / "data" / "nsys").iterdir()] == ["last.sqlite.gz"]
    assert collect.REFUSED == ["first.sqlite"]


@pytest.mark.torch
def test_what_was_collected_elsewhere_is_added(collect, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    there, data = tmp_path / "there", tmp_path / "data"
    for folder, kind in (("kineto", "json"), ("nsys", "sqlite"), ("ncu", "csv")):
        collect.store(there / folder / f"linear_m2_bf16.{kind}.gz", b"content of " + folder.encode())
    (there / "plain.json").write_text(json.dumps({"linear_m2_bf16": {"step_ms": 0.2}}))
    (there / "workloads.json").write_text("[]")
    data.mkdir()
    (data / "plain.json").write_text(json.dumps({"older": {"step_ms": 1.5}}))
    monkeypatch.setattr(collect.sys, "argv", ["collect.py", str(there), str(data)])
    with pytest.raises(SystemExit, match=r"^0$"):
        collect.main()
    assert gzip.decompress((data / "nsys" / "linear_m2_bf16.sqlite.gz").read_bytes()) == b"content of nsys"
    assert json.loads((data / "plain.json").read_text()) == {
        "older": {"step_ms": 1.5},
        "linear_m2_bf16": {"step_ms": 0.2},
    }
    assert [row["name"] for row in json.loads((data / "workloads.json").read_text())] == ["linear_m2_bf16"]
