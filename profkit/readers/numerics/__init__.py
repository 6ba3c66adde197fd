"""``numerics.json``, which `profkit.numerics` writes: what a program's tensors held in sampled steps."""

from __future__ import annotations

from typing import Final

import msgspec

from profkit.errors import ReadError
from profkit.model import Source, Trace
from profkit.model.report_numerics import Numerics, NumericsFile

__all__ = ["read_numerics"]

_EXPONENTS: Final = 256
_AGAIN: Final = "Record it again: profkit record numerics -- python train.py"


def read_numerics(data: bytes | bytearray | memoryview, name: str) -> Trace:
    """Read a recording of numerics.

    Args:
        data: The text, UTF-8.
        name: The base name to show.

    Raises:
        ReadError: It is damaged, or of another version.
    """
    try:
        made = msgspec.json.decode(data, type=NumericsFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReadError(name, f"it is a damaged recording of numerics: {error}", _AGAIN) from error
    if not _is_whole(made):
        raise ReadError(name, "it is a damaged recording of numerics: columns differ in length", _AGAIN)
    fields = {field: getattr(made, field) for field in Numerics.__struct_fields__}
    return Trace(
        source=Source(
            name=name, format="numerics", tool="profkit", tool_version=made.tool_version, rank=made.rank,
            facts=made.facts,
        ),
        strings=(),
        numerics=Numerics(**fields | {"path": name, "findings": ()}),
    )  # fmt: skip


def _is_whole(made: NumericsFile) -> bool:
    """Whether columns of one table are of one length, and parts no larger than the whole."""
    tensors = all(
        len(row.steps) == len(row.norms) == len(row.largest)
        and len(row.exponents) == _EXPONENTS
        and row.zeros + row.below + row.infinite + row.nan <= row.values
        for row in made.tensors
    )
    scale = made.loss_scale
    return (
        tensors
        and all(len(row.steps) == len(row.ratios) and row.swallowed <= row.values for row in made.updates)
        and (scale is None or len(scale.steps) == len(scale.scales))
        and made.every > 0
    )
