"""nsys' own report files, exported through an nsys that is or is not there."""

from pathlib import Path

import pytest

from profkit.errors import ReadError
from profkit.readers.nsys import exported, read_nsys_report
from tests.shared import DATA

CASES = DATA / "cases"


def test_a_report_without_nsys_names_the_command(tmp_path, monkeypatch):
    report = tmp_path / "report.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ReadError, match=r"nsys export --type sqlite --lazy=false -o report\.sqlite report\.nsys-rep"
    ):
        read_nsys_report(report, "report.nsys-rep")


def fake_nsys(folder: Path, script: str) -> None:
    tool = folder / "nsys"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


def test_a_report_goes_through_nsys_into_a_temporary_file(tmp_path, monkeypatch):
    inputs, tools = tmp_path / "in", tmp_path / "bin"
    inputs.mkdir()
    tools.mkdir()
    report = inputs / "x.qdrep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report")
    source = CASES / "39_negative_timestamps.sqlite"
    fake_nsys(
        tools,
        f'while [ "$1" != --output ]; do shift; done; /bin/cp "{source.absolute()}" "$2"; /bin/chmod +w "$2"',
    )
    monkeypatch.setenv("PATH", str(tools))
    assert len(read_nsys_report(report, "x.qdrep").operations) == 2
    with exported(report, "x.qdrep") as export:
        assert export.is_file()
    assert not export.exists()
    assert [each.name for each in inputs.iterdir()] == ["x.qdrep"]


def test_a_report_that_nsys_refuses_says_what_nsys_said(tmp_path, monkeypatch):
    report = tmp_path / "x.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report")
    fake_nsys(tmp_path, "echo 'Processing 1 events'; echo 'report is from a newer version' >&2; exit 3")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReadError, match="from a newer version"):
        read_nsys_report(report, "x.nsys-rep")
