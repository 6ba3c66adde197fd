"""Which lines of the program a compiled kernel comes from: Inductor's debug folder (``TORCH_COMPILE_DEBUG=1``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["DEBUG_FOLDER", "lines_of_kernels"]

DEBUG_FOLDER: Final = "torch_compile_debug"
"""What PyTorch calls the folder, in the working folder or in ``TORCH_COMPILE_DEBUG_DIR``."""

_GRAPHS: Final = ("fx_graph_transformed.py", "fx_graph_readable.py")
_MAPPING: Final = "inductor_provenance_tracking_node_mappings.json"
_LARGEST: Final = 64_000_000
_MOST_GRAPHS: Final = 4_096

_FILE: Final = re.compile(
    r"\s*# File: (?P<file>[^\n]{1,1000}?):(?P<line>\d{1,9}) in (?P<function>[^\n,]{1,300}), code:"
)
_NODE: Final = re.compile(r"\s*(?P<node>[A-Za-z_]\w{0,200})(?:\s*:\s*\"[^\"\n]{0,300}\")? = ")
_OF_SOURCE: Final = re.compile(r"#   [^\n]{1,300}? => (?P<nodes>[\w, ]{1,100000})\Z")
_KERNEL: Final = re.compile(r"(?P<name>[A-Za-z_]\w{0,500}) = async_compile\.\w+\(")
_BEGIN: Final = "# kernel path:"


def lines_of_kernels(folder: Path) -> dict[str, tuple[str, ...]]:
    """By the name of each compiled kernel: the frames that its operators come from, as ``model.py(12): forward``.

    Kernels of two graphs may have one name: then the lines are those of both. A file that is damaged, or that an older
    version wrote otherwise, tells nothing.
    """
    found: dict[str, dict[str, None]] = {}
    try:
        codes = sorted(folder.rglob("output_code.py"))[:_MOST_GRAPHS]
    except OSError:
        return {}
    for code in codes:
        frames: dict[str, str] = {}
        for name in _GRAPHS:
            frames |= dict(_frames_of_nodes(_lines(code.with_name(name))))
        for kernel, nodes in (*_nodes_in_code(_lines(code)), *_nodes_in_mapping(code.with_name(_MAPPING))):
            told = found.setdefault(kernel, {})
            told.update((frames[node], None) for node in nodes if node in frames)
    return {kernel: tuple(frames) for kernel, frames in found.items() if frames}


def _frames_of_nodes(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Nodes of a printed graph, each with the frame of the comment above it."""
    frame = None
    for line in lines:
        if comment := _FILE.match(line):
            frame = f"{comment['file']}({comment['line']}): {comment['function']}"
        elif frame is not None and (node := _NODE.match(line)):
            yield node["node"], frame


def _nodes_in_code(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Kernels of generated code, with the nodes that the comment above each lists."""
    nodes: list[str] = []
    for line in lines:
        if line.startswith(_BEGIN):
            nodes = []
        elif source := _OF_SOURCE.match(line):
            nodes += source["nodes"].replace(" ", "").split(",")
        elif kernel := _KERNEL.match(line):
            yield kernel["name"], nodes
            nodes = []


def _nodes_in_mapping(file: Path) -> Iterator[tuple[str, list[str]]]:
    """The same as newer versions write it: ``name:handle`` for each launch in the generated code."""
    try:
        told: Any = json.loads("\n".join(_lines(file)) or "null")
    except (ValueError, RecursionError):
        return
    kernels = told.get("cppCodeToPost") if isinstance(told, Mapping) else None
    for name, nodes in kernels.items() if isinstance(kernels, Mapping) else ():
        if isinstance(nodes, list):
            yield str(name).partition(":")[0], [node for node in nodes if isinstance(node, str)]


def _lines(file: Path) -> list[str]:
    """The lines of a text; none where it cannot be read, or is too large."""
    try:
        if not file.is_file() or file.stat().st_size > _LARGEST:
            return []
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
