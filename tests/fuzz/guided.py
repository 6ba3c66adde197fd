"""A run that is led by coverage: ``python -m tests.fuzz.guided kineto -max_total_time=3600 -seed=1 FOLDER``.

The bytes that libFuzzer mutates are the choices of the makers of `inputs`, so that a mutation changes one decision
and what comes of it is still a recording; those that reach new branches of the readers are kept in FOLDER and mutated
further. The properties are the same. It stops at the first failure and writes the choices to a file, which given in
place of FOLDER makes the input again. The arguments after the reader are libFuzzer's. Needs ``pip install atheris``.
"""

from __future__ import annotations

import sys
import tempfile
import zlib
from pathlib import Path
from random import Random

import atheris

with atheris.instrument_imports(include=["profkit.readers"]):
    import profkit.readers.kineto
    import profkit.readers.nsys
    import profkit.readers.snapshot  # noqa: F401 - before anything imports them without instruments
    from tests.fuzz.inputs import READERS, make
    from tests.fuzz.properties import MOST_BYTES, MOST_SECONDS, check
    from tests.fuzz.tape import Tape

_THOROUGH_EVERY = 10
_LIMITS = [
    f"-rss_limit_mb={MOST_BYTES >> 20}",
    f"-timeout={12 * MOST_SECONDS:.0f}",
    "-max_len=4096",
    "-len_control=0",
]


def main() -> None:
    if sys.argv[1:2] == [] or sys.argv[1] not in READERS:
        sys.exit(f"Give one of {', '.join(READERS)}, then libFuzzer's arguments.")
    reader, arguments = sys.argv[1], sys.argv[2:]
    for folder in filter(Path.is_dir, map(Path, arguments)):
        _fill(folder)
    with tempfile.TemporaryDirectory(prefix="profkit-fuzz-") as name:
        folder = Path(name)

        def one(data: bytes) -> None:
            check(make(reader, Tape(data)), folder, thorough=zlib.crc32(data) % _THOROUGH_EVERY == 0)

        one(b"")  # imports what is left, outside of libFuzzer's clock
        atheris.Setup([sys.argv[0], *_LIMITS, *arguments], one)
        atheris.Fuzz()


def _fill(folder: Path) -> None:
    """A few hundred choices to begin with."""
    if not any(folder.iterdir()):
        for number in range(200):
            (folder / f"{number}").write_bytes(Random(number).randbytes(600))


if __name__ == "__main__":
    main()
