"""profkit doctor: what is missing, and what mends it."""

import json
import sys

import pytest
from click.testing import CliRunner

from profkit.cli import main
from profkit.recording import doctor


def test_every_lack_names_its_cure():
    for check in doctor.examine():
        assert check.ok or check.fix, check.name


def test_a_missing_torch_and_an_old_nvtx_are_told(monkeypatch):
    find = doctor.importlib.util.find_spec
    monkeypatch.setattr(
        doctor.importlib.util, "find_spec", lambda name: None if name == "torch" else find(name)
    )
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.2.8")
    checks = {check.name: check for check in doctor.examine()}
    assert checks["torch"].fix == "pip install 'torch>=2.4'"
    assert not checks["nvtx"].ok
    assert "0.2.13" in checks["nvtx"].fix
    assert (checks["torch"].broken, checks["nvtx"].broken) == (False, True)


def test_restricted_counters_name_the_drivers_option(monkeypatch):
    class Settings:
        def __init__(self, path): ...
        def read_text(self, **_):
            return "RmProfilingAdminOnly: 1\n"

    monkeypatch.setattr(doctor, "Path", Settings)
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in doctor._counters().fix


def test_the_command_prints_text_and_json(monkeypatch):
    monkeypatch.setenv("PROFKIT_NSYS", "/nowhere/nsys")
    text = CliRunner().invoke(main, ["doctor"])
    assert text.exit_code == 0
    assert "missing  Nsight Systems" in text.output
    lines = CliRunner().invoke(main, ["doctor", "--json"]).output.splitlines()
    assert {json.loads(line)["name"] for line in lines} >= {"torch", "nvtx", "Nsight Systems", "CUPTI"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_without_a_driver_the_container_flag_is_named(monkeypatch):
    monkeypatch.setattr(doctor, "driver_version", lambda: None)
    assert "--gpus all" in doctor._gpu().fix


@pytest.mark.parametrize(("cuda", "fix"), [(None, "a torch with CUDA"), ("13.0", "check the driver")])
def test_a_torch_without_cuda_is_not_the_drivers_fault(monkeypatch, cuda, fix):
    torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.profiler, "supported_activities", set)
    assert fix in doctor._cupti().fix


@pytest.mark.parametrize(("broken", "code", "word"), [(False, 0, "missing"), (True, 1, "broken")])
def test_what_is_not_installed_is_no_fault_and_what_does_not_work_is_one(monkeypatch, broken, code, word):
    def check(name, ok=True):
        return doctor.Check(name=name, ok=ok, found="", needed_for="", broken=broken and not ok)

    everything = [check(n) for n in ("torch", "GPU and driver", "CUPTI", "nvtx", "Nsight Systems")]
    assert doctor.recorders(everything) == ["torch", "nsys", "memory", "numerics"]
    assert doctor.recorders([check("torch"), check("nvtx")]) == ["torch (CPU only)", "numerics"]
    monkeypatch.setattr(doctor, "examine", lambda: [check("torch", ok=False)])
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == code
    assert done.output.startswith(word)
    assert "Recorders that work here: none" in done.output


def test_an_nsys_that_does_not_run_is_broken(monkeypatch, tmp_path):
    monkeypatch.setenv("PROFKIT_NSYS", sys.executable)
    monkeypatch.setattr(doctor, "nsys_version", lambda _: None)
    assert doctor._nsys().broken
    monkeypatch.setenv("PROFKIT_NSYS", str(tmp_path / "nsys"))
    assert not doctor._nsys().broken
