"""What a recording was made with: never an environment variable, a host name or a user name."""

from __future__ import annotations

import contextlib
import getpass
import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from profkit.secrets import SECRET_PAIR, SECRET_VALUE, SECRET_WORD

__all__ = ["command_line", "describe", "driver_version", "git_state", "rank_and_world", "versions"]

_SHORT = re.compile(r"-[pPkKtTuU]")
"""Short options that often carry a password, key, token or user; -m, -c and others are shown."""
_TOOL_TIMEOUT_S = 5.0


def describe() -> dict[str, Any]:
    """Everything about the machine and the program that a report's last section may show."""
    return {
        "command": command_line(list(getattr(sys, "argv", None) or [])),
        "git": git_state(Path.cwd()),
        "versions": versions(),
        "driver": driver_version(),
        "gpus": gpus(),
    }


def rank_and_world() -> tuple[int | None, int | None]:
    """This process' rank and the number of processes; None when it is the only one or nothing says."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    for rank, world in (
        ("RANK", "WORLD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ):
        given, of = os.environ.get(rank, ""), os.environ.get(world, "")
        if given.isdecimal() and of.isdecimal() and int(of) > 1:
            return int(given), int(of)
    spawned = re.fullmatch(r"(\d+)/(\d+)", os.environ.get("PROFKIT_RANK", ""))
    return (int(spawned[1]), int(spawned[2])) if spawned and int(spawned[2]) > 1 else (None, None)


def versions() -> dict[str, str | None]:
    """Versions of what the times depend on."""
    found: dict[str, str | None] = {"python": platform.python_version(), "system": platform.system()}
    for package in ("profkit", "nvtx"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    torch = sys.modules.get("torch")
    if torch is not None:
        found |= {"torch": str(torch.__version__), "cuda": torch.version.cuda}
        if torch.backends.cudnn.is_available():
            found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def gpus() -> list[dict[str, Any]]:
    """The GPUs that the program can see, if it uses CUDA; asking does not start it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        gpu = torch.cuda.get_device_properties(index)
        found.append(
            {
                "name": gpu.name,
                "memory_bytes": gpu.total_memory,
                "multiprocessors": gpu.multi_processor_count,
                "compute_capability": f"{gpu.major}.{gpu.minor}",
            }
        )
    return found


def driver_version() -> str | None:
    """The NVIDIA driver's version, e.g. ``580.95.05``; None without a driver."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="ascii", errors="replace")
    except OSError:
        text = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]) or ""
    found = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", text)
    return found[1] if found else None


def git_state(folder: Path) -> dict[str, Any] | None:
    """The revision that runs and whether files differ from it; None outside a repository."""
    revision = output_of(["git", "-C", str(folder), "rev-parse", "HEAD"])
    if not revision:
        return None
    status = output_of(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return {"revision": revision.strip(), "dirty": None if status is None else bool(status.strip())}


def command_line(arguments: list[str], *, with_places: bool = False) -> list[str]:
    """The program's arguments without secrets, and without folders and names of people and machines.

    Args:
        arguments: Those of the program.
        with_places: Leave folders and names as they are.
    """
    without = _without_secrets if with_places else _without_places
    shown: list[str] = []
    hide_next = False
    for argument in map(str, arguments):
        option, _, value = argument.partition("=")
        short = _SHORT.match(argument) if argument[1:2] != "-" else None
        if hide_next and not argument.startswith("-"):
            shown.append("***")
        elif short and len(argument) > 2:
            shown.append(f"{short[0]}***")
        elif value and SECRET_WORD.search(option) and not re.search(r"[{\[:\s]", option):
            shown.append(f"{option}=***")
        elif value and not re.search(r"[{\[\s]", option):
            shown.append(f"{option}={without(value)}")
        else:
            shown.append(without(argument))
        named = argument.startswith("-") and not value and bool(SECRET_WORD.search(option))
        hide_next = named or (short is not None and len(argument) == 2)
    return shown


def output_of(command: list[str]) -> str | None:
    """What a tool prints; None if it is missing, fails or takes too long."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _without_secrets(text: str) -> str:
    return SECRET_VALUE.sub("***", SECRET_PAIR.sub(r"\1***", text))


def _without_places(text: str) -> str:
    text = _without_secrets(text)
    if "://" in text:
        return f"{text.split('://', 1)[0]}://***"
    if "/" in text or "\\" in text:
        return re.split(r"[/\\]", text.rstrip("/\\"))[-1] or text
    return "***" if text in _personal_names() else text


def _personal_names() -> set[str]:
    names = {socket.gethostname(), socket.gethostname().split(".")[0]}
    with contextlib.suppress(OSError, KeyError):  # a container without a user database
        names.add(getpass.getuser())
    return names
