"""Recordings in one archive: what goes in comes out, and what comes later is added."""

import gzip
import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "reports" / "calibration"


@pytest.fixture
def packed(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("packed")


def loose(data, name, content):
    path = data / f"{name}.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(content))


def test_what_is_packed_comes_out_and_later_files_are_added(packed, tmp_path):
    loose(tmp_path, "nsys/a.sqlite", b"first")
    loose(tmp_path, "ncu/a.csv", b"counters")
    assert packed.pack(tmp_path) == 2
    assert not list(tmp_path.glob("*/*.gz"))
    loose(tmp_path, "nsys/a.sqlite", b"second")
    loose(tmp_path, "kineto/b.json", b"{}")
    assert packed.pack(tmp_path) == 3
    folder = packed.unpacked(tmp_path)
    found = {p.relative_to(folder).as_posix(): gzip.decompress(p.read_bytes()) for p in folder.glob("*/*")}
    assert found == {"nsys/a.sqlite.gz": b"second", "ncu/a.csv.gz": b"counters", "kineto/b.json.gz": b"{}"}


def test_the_archive_says_nothing_of_who_packed_it(packed, tmp_path):
    loose(tmp_path, "ncu/a.csv", b"counters")
    packed.pack(tmp_path)
    first = (tmp_path / "recordings.tar.xz").read_bytes()
    packed.pack(tmp_path)
    assert (tmp_path / "recordings.tar.xz").read_bytes() == first
