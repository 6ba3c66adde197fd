"""A kernel's demangled name taken apart: its function, template arguments and types, in linear time."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Signature", "element_type", "split_name"]

_LONGEST = 6000
_NESTED = re.compile(r"_ZN[rVK]*")
_LENGTH = re.compile(r"[1-9]\d{0,3}")
_NOISE = re.compile(
    r"\(anonymous namespace\)::|<unnamed>::|\((?:(?:unsigned )?(?:int|bool|long|char)|\w+(?:::\w+)+)\)(?=\d)"
)
_TYPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (dtype, re.compile(pattern))
    for dtype, pattern in (
        ("bf16", r"bfloat16|BFloat16|hip_bfloat16|\bDF16b"),
        ("fp8", r"[Ff]loat8|fp8|e4m3|e5m2"),
        ("fp4", r"[Ff]loat4_e2m1|fp4|e2m1"),
        ("fp16", r"c10::Half|\b__half2?\b|half_t\b|\bhalf2?\b|_Float16"),
        ("complex128", r"complex<double>"),
        ("complex64", r"complex<float>|float2\b"),
        ("fp64", r"\bdouble\b"),
        ("fp32", r"\bfloat4?\b|tf32"),
        ("uint8", r"\bunsigned char\b|\buint8_t\b"),
        ("int8", r"\bsigned char\b|\bint8_t\b"),
        ("bool", r"\bbool\b"),
        ("int16", r"\bshort\b|\bint16_t\b"),
        ("int64", r"\blong\b|\bint64_t\b"),
        ("int32", r"\bint\b|\bint32_t\b"),
    )
)


@dataclass(frozen=True)
class Signature:
    """The parts of a demangled kernel name."""

    function: str
    """The qualified function name without ``void`` and anonymous namespaces, e.g. ``at::native::reduce_kernel``."""
    arguments: tuple[str, ...]
    """Its template arguments, outermost level."""
    parameters: tuple[str, ...]
    """The types of its parameters; ``T1 *`` and the like where the tool does not resolve them."""
    text: str
    """The whole name as far as it is looked at."""

    @property
    def base(self) -> str:
        """The function's own name, without namespaces."""
        return self.function.rpartition("::")[2]


def split_name(name: str) -> Signature:
    """Take a kernel name apart. Anything is accepted; only the first 6000 characters are looked at."""
    text = _NOISE.sub("", name[:_LONGEST]).strip()
    if text.startswith("std::enable_if<"):
        text = text.partition(">::type ")[2] or text
    text = text.removeprefix("void ")
    head = re.match(r"[^<(]*", text)
    function = head[0].strip() if head else ""
    if function.startswith("_Z"):
        function = _qualified(function) or function
    rest = text[len(head[0]) if head else 0 :]
    arguments: tuple[str, ...] = ()
    if rest.startswith("<"):
        arguments, used = _split_group(rest)
        rest = rest[used:]
    parameters = _split_group(rest)[0] if rest.startswith("(") else ()
    return Signature(function, arguments, parameters, text)


def _qualified(mangled: str) -> str:
    """The function's name, without template arguments, in a symbol of the Itanium ABI; "" where it is another kind.

    Example: ``_ZN5aiter10add_kernelIfEvPT_`` is ``aiter::add_kernel``.
    """
    nested = _NESTED.match(mangled)
    at, parts = nested.end() if nested else 2, []
    while length := _LENGTH.match(mangled, at):
        at = length.end() + int(length[0])
        parts.append(mangled[length.end() : at])
        if nested is None:
            break
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N_"))


def element_type(text: str) -> str | None:
    """The first element type that a piece of C++ names, e.g. ``bf16`` for ``c10::BFloat16 const*``."""
    best: tuple[int, str] | None = None
    for dtype, pattern in _TYPES:
        found = pattern.search(text)
        if found and (best is None or found.start() < best[0]):
            best = (found.start(), dtype)
    return best[1] if best else None


def _split_group(text: str) -> tuple[tuple[str, ...], int]:
    """The comma-separated parts of the bracket that ``text`` starts with, and its length."""
    parts: list[str] = []
    depth, begin = 0, 1
    for index, character in enumerate(text):
        if character in "<({[":
            depth += 1
        elif character in ">)}]" and text[index - 1] != "-":
            depth -= 1
            if depth == 0:
                parts.append(text[begin:index].strip())
                return tuple(part for part in parts if part), index + 1
        elif character == "," and depth == 1:
            parts.append(text[begin:index].strip())
            begin = index + 1
    return (*parts, text[begin:].strip()), len(text)
