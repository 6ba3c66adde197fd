"""Which operations an inference engine launched to decode few tokens at once: such products only read their weights."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind, Trace
from profkit.timeline.launches import Launches
from profkit.timeline.range_names import matching
from profkit.timeline.step_names import engine_iteration, kind_of

__all__ = ["decodes_few"]

_FEW_TOKENS: Final = 64
"""A product of so many rows does at most 64 FLOP for each byte of 16-bit weights; the ridge of an A100 is 153."""
_TOKENS: Final = re.compile(
    r"generation_\d+\(sq(\d{1,9})sk|DECODE bs=(\d{1,9})|(\d{1,9}) gen reqs|generation_(\d{1,9})"
)
"""vLLM's count of queries (SGLang may write the same mark), SGLang's batch, TensorRT-LLM's requests."""


def decodes_few(trace: Trace, launches: Launches) -> NDArray[np.bool_]:
    """Of every operation, whether its launch lies in an iteration that decodes at most 64 tokens and prefills none."""
    ranges = trace.ranges
    rows = np.flatnonzero(
        (ranges.kind == RangeKind.ANNOTATION) & matching(trace.strings, ranges.name, _is_small)
    )
    inside = np.zeros(len(trace.operations), bool)
    if not len(rows):
        return inside
    rows = rows[np.argsort(ranges.start_ns[rows], kind="stable")]
    last = np.searchsorted(ranges.start_ns[rows], launches.time_ns, side="right") - 1
    until = np.maximum.accumulate(ranges.end_ns[rows])
    inside |= launches.linked & (last >= 0) & (launches.time_ns < until[last])
    return inside


def _is_small(name: str) -> bool:
    if not engine_iteration(name) or kind_of(name) != "decode":
        return False
    found = _TOKENS.search(name)
    tokens = int(next(filter(None, found.groups()))) if found else 0
    return 0 < tokens <= _FEW_TOKENS
