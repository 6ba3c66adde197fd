"""What is carried home from a GPU machine says nothing about it."""

import gzip
import importlib
import lzma
import tarfile
from pathlib import Path

import pytest

REPORTS = Path(__file__).parents[2] / "reports"


@pytest.fixture
def pack(monkeypatch):
    monkeypatch.syspath_prepend(str(REPORTS))
    return importlib.import_module("pack")


@pytest.fixture
def out(tmp_path):
    for folder in ("done", "collected/kineto", "comparison", "logs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "done" / "kineto").write_text("0 71\n")
    (tmp_path / "done" / "cold").write_text("124 240\n")
    (tmp_path / "collected" / "kineto" / "a.json.gz").write_bytes(gzip.compress(b'{"name": "aten::mm"}'))
    (tmp_path / "comparison" / "reports.jsonl.xz").write_bytes(lzma.compress(b'{"name": "gpt_none"}'))
    (tmp_path / "logs" / "kineto.log").write_text("/home/somebody")
    return tmp_path


def members(out):
    with tarfile.open(out / "results.tar.gz") as archive:
        return {m.name: (m.uid, m.uname, m.mtime) for m in archive}


def test_what_is_clean_is_packed_without_owner_and_time(pack, out):
    assert pack.main(out) == 0
    assert members(out) == dict.fromkeys(
        ["stages.json", "comparison/reports.jsonl.xz", "collected/kineto/a.json.gz"], (0, "", 0)
    )
    with tarfile.open(out / "results.tar.gz") as archive:
        assert b'"cold": {\n  "exit": 124,\n  "seconds": 240' in archive.extractfile("stages.json").read()


@pytest.mark.parametrize("said", ["/tmp/torchinductor_x/k.py", "HOME=/x", "on the-gpu-host.example"])
def test_a_file_that_names_the_machine_is_left_out_and_told(pack, out, monkeypatch, capsys, said):
    monkeypatch.setattr(pack.socket, "gethostname", lambda: "the-gpu-host.example")
    (out / "comparison" / "reports.jsonl.xz").write_bytes(lzma.compress(f'{{"name": "{said}"}}'.encode()))
    assert pack.main(out) == 1
    assert "comparison/reports.jsonl.xz" not in members(out)
    assert "REFUSED comparison/reports.jsonl.xz" in capsys.readouterr().out
