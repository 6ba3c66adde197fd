"""The study's plots as small SVG files, with no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from study import KernelRow

_SIDE, _MARGIN = 420, 56
_TONES = {"compute": "#4c72b0", "memory": "#dd8452", "overhead": "#8c8c8c", "unknown": "#c44e52"}


class _Axis:
    def __init__(self, low: float, high: float, *, logarithmic: bool) -> None:
        self.low, self.high, self.logarithmic = low, high, logarithmic

    def place(self, value: float) -> float:
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return (value - low) / (high - low) * _SIDE

    def ticks(self) -> list[tuple[float, str]]:
        if not self.logarithmic:
            return [(t, f"{t:g}") for t in range(int(self.low), int(self.high) + 1, 20)]
        powers = range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)
        return [(10.0**p, f"10^{p}") for p in powers]


def _frame(x: _Axis, y: _Axis, labels: tuple[str, str, str]) -> list[str]:
    size = _SIDE + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" font-family="sans-serif" font-size="11">',
        f'<rect width="{size}" height="{size}" fill="#fff"/><g transform="translate({_MARGIN},{_MARGIN})">',
        f'<rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#999"/>',
        f'<text x="0" y="-34" font-size="13">{escape(labels[0])}</text>',
        f'<text x="{_SIDE / 2}" y="{_SIDE + 40}" text-anchor="middle">{escape(labels[1])}</text>',
        f'<text transform="translate(-42,{_SIDE / 2}) rotate(-90)" text-anchor="middle">{escape(labels[2])}</text>',
    ]
    for value, text in x.ticks():
        parts.append(f'<text x="{x.place(value):.0f}" y="{_SIDE + 16}" text-anchor="middle">{text}</text>')
    for value, text in y.ticks():
        parts.append(f'<text x="-6" y="{_SIDE - y.place(value) + 4:.0f}" text-anchor="end">{text}</text>')
    for index, (bound, tone) in enumerate(_TONES.items()):
        parts.append(
            f'<circle cx="{index * 92 + 6}" cy="-14" r="4" fill="{tone}"/><text x="{index * 92 + 14}" y="-10">{bound}</text>'
        )
    parts.append(f'<text x="{len(_TONES) * 92}" y="-10">hollow: not of the fit</text>')
    return parts


def _dots(rows: Sequence[KernelRow], x: _Axis, y: _Axis, points: Sequence[tuple[float, float]]) -> list[str]:
    dots = []
    for row, (across, up) in zip(rows, points, strict=True):
        tone = _TONES.get(row.bound, "#000")
        style = (
            f'fill="none" stroke="{tone}"'
            if row.workload.split != "fit"
            else f'fill="{tone}" fill-opacity=".6"'
        )
        radius = 1.5 + 1.2 * math.log10(1 + row.time_ns / 1e4)
        dots.append(
            f'<circle cx="{x.place(across):.1f}" cy="{_SIDE - y.place(up):.1f}" r="{radius:.1f}" {style}>'
            f"<title>{escape(row.workload.name)}: {escape(row.name)}</title></circle>"
        )
    return dots


def bytes_plot(rows: Sequence[KernelRow]) -> str:
    """Modelled against measured DRAM bytes of kernels over 10 us."""
    rows = [r for r in rows if r.time_ns > 1e4 and r.bytes == r.bytes]
    axis = _Axis(1e6, 1e10, logarithmic=True)
    labels = ("DRAM bytes of kernels over 10 us (band: 25 %)", "measured by ncu", "profkit's model")
    shift = math.log10(1.25) / 4 * _SIDE
    band = f'<path d="M0 {_SIDE - shift}L{_SIDE - shift} 0H{_SIDE}V{shift}L{shift} {_SIDE}H0Z" fill="#ddd" fill-opacity=".6"/>'
    dots = _dots(rows, axis, axis, [(r.measured_bytes, r.bytes) for r in rows])
    return "\n".join([*_frame(axis, axis, labels), band, *dots, "</g></svg>\n"])


def sides_plot(rows: Sequence[KernelRow]) -> str:
    """SM against DRAM throughput, coloured by profkit's bound."""
    axis = _Axis(0, 100, logarithmic=False)
    labels = (
        "What the counters say, coloured by profkit's bound",
        "DRAM throughput, % of peak",
        "SM throughput, % of peak",
    )
    line = f'<path d="M0 {_SIDE}L{_SIDE} 0" stroke="#999" stroke-dasharray="4"/>'
    dots = _dots(rows, axis, axis, [(r.dram, r.sm) for r in rows])
    return "\n".join([*_frame(axis, axis, labels), line, *dots, "</g></svg>\n"])


def efficiency_plot(rows: Sequence[KernelRow]) -> str:
    """Efficiency against the larger of the two throughputs."""
    rows = [r for r in rows if r.efficiency == r.efficiency]
    axis = _Axis(0, 100, logarithmic=False)
    labels = (
        "Efficiency and the larger throughput",
        "larger of SM and DRAM throughput, %",
        "profkit's efficiency, %",
    )
    cut = f'<path d="M0 {_SIDE * 0.6}H{_SIDE}" stroke="#999" stroke-dasharray="4"/>'
    dots = _dots(rows, axis, axis, [(max(r.sm, r.dram), 100 * r.efficiency) for r in rows])
    return "\n".join([*_frame(axis, axis, labels), cut, *dots, "</g></svg>\n"])
