"""Does the precision map's type of each product agree with the types that its operator took?

    python product_types.py FOLDER...

Reads every recording below the folders, those in `.tar.xz` too; one that lies there twice counts once. Counted are the
launches of products (convolutions and attention among them) whose operator's types the recording has. Of each operator
the types of the tensors that are multiplied are taken, by their position in the record. Prints files, products,
those that agree, and each other kind with its reason.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from profkit.errors import ReadError
from profkit.model import OperationKind
from profkit.readers import read
from profkit.report.views import Options, analysed_views
from profkit.roofline.operator_shapes import tensor_types
from profkit.timeline.view import TraceView

AFTER_A_SUM = ("addmm", "baddbmm", "addmv", "addbmm", "addr")
"""Operators whose first tensor is added, not multiplied."""
FLOATING = ("fp", "bf", "complex", "int8")
REASONS = (
    ("fp32", re.compile(r"(?:half|Half|bfloat16|BFloat16)\b"), "multiplies 16 bits in fp32 on CUDA cores, as its name says"),
    ("complex64", re.compile("complex"), "convolves fp32 by Fourier transform: multiplies complex numbers"),
)  # fmt: skip
"""Of kernels whose arithmetic is in another type than their inputs: computed type, name, why."""


class Product(NamedTuple):
    """The launches of a product that are alike."""

    kernel: str
    operator: str
    taken: tuple[str, ...]
    """The types of what is multiplied."""
    computes: str | None
    """What the map says."""


def recordings(folders: list[Path], unpacked: Path) -> Iterator[tuple[Path, list[TraceView]]]:
    """What can be read of the folders, each content once."""
    seen: set[str] = set()
    for folder in folders:
        for number, archive in enumerate(sorted(folder.rglob("*.tar.xz"))):
            with tarfile.open(archive) as source:
                source.extractall(unpacked / f"{folder.name}_{number}", filter="data")
    for path in sorted(p for folder in [*folders, unpacked] for p in folder.rglob("*.json*")):
        content = path.read_bytes()
        try:
            content = gzip.decompress(content) if path.suffix == ".gz" and len(content) < 2**24 else content
            known = hashlib.sha256(content).hexdigest() in seen
            seen.add(hashlib.sha256(content).hexdigest())
            if not known and b"Input type" in content:
                yield path, analysed_views([read(path)], Options())
        except (ReadError, OSError, EOFError) as error:
            print(f"not read: {path.name}: {str(error).splitlines()[0][:80]}", file=sys.stderr)


def products(view: TraceView) -> Counter[Product]:
    """The products of a recording whose operator's types are known."""
    trace, found = view.trace, Counter[Product]()
    for row in np.flatnonzero(trace.operations.kind == OperationKind.KERNEL).tolist():
        operator, name = int(view.launches.operator[row]), int(trace.operations.name[row])
        types = int(trace.ranges.dtypes[operator]) if operator >= 0 else -1
        if types < 0 or not view.work.class_of_name[name].is_product:
            continue
        called, code = trace.strings[trace.ranges.name[operator]], int(view.work.dtype[row])
        if taken := multiplied(called, trace.strings[types]):
            computes = view.work.dtypes[code] if code >= 0 else None
            found[Product(trace.strings[name], called, taken, computes)] += 1
    return found


def multiplied(operator: str, types: str) -> tuple[str, ...]:
    """The types of the first two tensors that an operator multiplies."""
    written = [
        t for item in json.loads(types) if isinstance(item, str) for t in tensor_types(json.dumps([item]))
    ]
    floating = [t for t in written if t.startswith(FLOATING)]
    begin = operator.removeprefix("aten::").rstrip("_") in AFTER_A_SUM
    return tuple(floating[begin : begin + 2])


def reason(product: Product) -> str | None:
    """Why a product computes in another type than it takes; "" where it does not, None where nothing explains it."""
    if set(product.taken) == {product.computes} or (
        set(product.taken) == {"fp32"} and product.computes == "tf32"
    ):
        return ""
    fits = (
        why for computes, name, why in REASONS if product.computes == computes and name.search(product.kernel)
    )
    return next(fits, None)


def main(folders: list[str]) -> int:
    """Count; 1 where a product's type is not explained."""
    files, total = 0, Counter[Product]()
    with tempfile.TemporaryDirectory() as unpacked:
        for path, views in recordings([Path(folder) for folder in folders], Path(unpacked)):
            here = sum((products(view) for view in views), Counter[Product]())
            files += bool(here)
            total += here
            for product, count in here.items():
                if reason(product) != "":
                    print(f"{count:6} {path.name}: {product} {reason(product)}")
    kinds = Counter[str | None]()
    for product, count in total.items():
        kinds[reason(product)] += count
    print(f"{files} files, {total.total()} products, {kinds.pop('', 0)} in the type of their inputs")
    for why, count in kinds.items():
        print(f"{count:6} {why or 'unexplained'}")
    return int(None in kinds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
