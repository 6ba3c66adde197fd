"""`examine`: which recorders work on this machine, and how to fix the rest."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from profkit.errors import RecordingError
from profkit.recording.environment import driver_version, output_of
from profkit.recording.nsys_command import find_nsys, nsys_version

__all__ = ["Check", "examine", "recorders"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that recording needs."""

    name: str
    ok: bool
    found: str
    """What is there, or what is missing."""
    needed_for: str
    fix: str = ""
    """The command or flag that fixes it; empty when nothing is wrong."""
    broken: bool = False
    """Whether it is there and does not work; what is not installed may not be wanted."""


@dataclass(frozen=True)
class _Need:
    """What is looked for, and what it is needed for."""

    name: str
    needed_for: str

    def met(self, found: str) -> Check:
        return Check(name=self.name, ok=True, found=found, needed_for=self.needed_for)

    def unmet(self, found: str, fix: str, *, broken: bool = False) -> Check:
        needed_for = self.needed_for
        return Check(name=self.name, ok=False, found=found, needed_for=needed_for, fix=fix, broken=broken)


def examine() -> list[Check]:
    """Look at everything that recording needs; nothing is changed, and no GPU work is started."""
    return [_torch(), _gpu(), _cupti(), _nvtx(), _nsys(), _counters(), _container(), _disk()]


def recorders(checks: list[Check]) -> list[str]:
    """The modes of ``profkit record`` that work here, given what `examine` found."""
    ok = {check.name for check in checks if check.ok}
    found = []
    if "torch" in ok:
        found.append("torch" if {"GPU and driver", "CUPTI"} <= ok else "torch (CPU only)")
    if {"Nsight Systems", "nvtx"} <= ok:
        found.append("nsys" if "GPU and driver" in ok else "nsys (no kernels)")
    if {"torch", "GPU and driver"} <= ok:
        found.append("memory")
    if "torch" in ok:
        found.append("numerics")
    return found


def _torch() -> Check:
    need = _Need("torch", "torch.profiler, memory history")
    if importlib.util.find_spec("torch") is None:
        return need.unmet("not installed", "pip install 'torch>=2.4'")
    try:
        import torch
    except (ImportError, OSError) as error:
        return need.unmet(f"does not load: {error}", "pip install --force-reinstall torch", broken=True)
    version = tuple(int(part) for part in str(torch.__version__).split("+")[0].split(".")[:2])
    if version < (2, 4):
        return need.unmet(
            f"{torch.__version__} is older than 2.4", "pip install -U 'torch>=2.4'", broken=True
        )
    cuda = f"CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    return need.met(f"{torch.__version__}, {cuda}")


def _gpu() -> Check:
    need = _Need("GPU and driver", "kernels in any recording, memory history")
    driver = driver_version()
    if driver is None:
        fix = "install the NVIDIA driver; in a container: docker run --gpus all ..."
        return need.unmet("no NVIDIA driver", fix)
    if importlib.util.find_spec("torch") is None:
        return need.met(f"driver {driver}")
    import torch

    if not torch.cuda.is_available():
        wheel = (
            "pip install a torch with CUDA: https://pytorch.org"
            if not torch.version.cuda
            else "check CUDA_VISIBLE_DEVICES and that the driver is new enough: nvidia-smi"
        )
        return need.unmet(f"driver {driver}, but torch sees no GPU", wheel)
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return need.met(f"driver {driver}: {names}")


def _cupti() -> Check:
    need = _Need("CUPTI", "kernels in torch.profiler traces")
    if importlib.util.find_spec("torch") is None:
        return need.unmet("torch is missing", "pip install 'torch>=2.4'")
    import torch

    activities = {activity.name for activity in torch.profiler.supported_activities()}
    if "CUDA" in activities:
        return need.met("in this torch")
    found = "this torch has no CUDA activity"
    fix = (
        "pip install a torch with CUDA: https://pytorch.org" if not torch.version.cuda else "check the driver"
    )
    return need.unmet(found, fix)


def _nvtx() -> Check:
    need = _Need("nvtx", "phases under nsys")
    version = None
    if importlib.util.find_spec("nvtx") is not None:
        from importlib.metadata import version as version_of

        version = version_of("nvtx")
    if version is None:
        return need.unmet("not installed", "pip install 'nvtx>=0.2.13'")
    if tuple(int(part) for part in version.split(".")[:3] if part.isdecimal()) < (0, 2, 13):
        return need.unmet(f"{version} is too old", "pip install -U 'nvtx>=0.2.13'", broken=True)
    return need.met(version)


def _nsys() -> Check:
    need = _Need("Nsight Systems", "profkit record nsys")
    try:
        binary = find_nsys()
    except RecordingError as error:
        fix = "install it (https://developer.nvidia.com/nsight-systems), or set PROFKIT_NSYS to the binary"
        return need.unmet(error.problem, fix)
    version = nsys_version(binary)
    if version is None:
        return need.unmet(f"{binary} does not run", f"{binary} --version", broken=True)
    return need.met(version)


def _counters() -> Check:
    """Whether the driver lets this user read the GPU's counters (NVIDIA's ERR_NVGPUCTRPERM page)."""
    need = _Need("GPU counters", "--gpu-metrics")
    try:
        settings = Path("/proc/driver/nvidia/params").read_text(encoding="ascii", errors="replace")
    except OSError:
        return need.unmet("no NVIDIA driver", "see GPU and driver")
    restricted = "RmProfilingAdminOnly: 1" in settings
    if restricted and os.geteuid() != 0:
        fix = "as root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > /etc/modprobe.d/profiling.conf, then reboot; in a container: --cap-add=SYS_ADMIN"
        return need.unmet("for administrators only", fix)
    return need.met("readable")


def _container() -> Check:
    need = _Need("container", "nsys' CPU samples (profkit does not use them)")
    inside = Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
    if not inside:
        return need.met("none found")
    paranoid = (output_of(["cat", "/proc/sys/kernel/perf_event_paranoid"]) or "").strip()
    if paranoid.lstrip("-").isdecimal() and int(paranoid) > 2:
        fix = "start it with --cap-add=SYS_ADMIN, or on the host: sysctl kernel.perf_event_paranoid=2"
        return need.unmet(f"perf_event_paranoid is {paranoid}", fix)
    return need.met("in a container")


def _disk() -> Check:
    import shutil

    need = _Need("disk", "traces (about 10 MB a recorded step, before compression)")
    free = shutil.disk_usage(Path.cwd()).free
    found = f"{free / 2**30:.0f} GiB free here"
    if free < 1 << 30:
        return need.unmet(found, "free some space, or record elsewhere: -o FOLDER")
    return need.met(found)
