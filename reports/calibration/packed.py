"""The study's recordings in one archive, which is a quarter of their size: ``python reports/calibration/packed.py``.

The command adds what `collect.py` left in the folders of `data/` to `data/recordings.tar.xz`, and removes it there.
"""

from __future__ import annotations

import atexit
import gzip
import io
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"


@cache
def unpacked(data: Path = DATA) -> Path:
    """A folder, as long as the process lives, with a folder for each recorder and files ``NAME.KIND.gz``, as `collect.py` writes them."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, content in _contents(data).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, 1))
    return folder


def pack(data: Path) -> int:
    """Move loose recordings into the archive; returns how many it holds then."""
    contents = _contents(data)
    with tarfile.open(data / "recordings.tar.xz", "w:xz", preset=9) as archive:
        for name in sorted(contents, key=lambda name: (name.rpartition(".")[2], name)):
            entry = tarfile.TarInfo(name)
            entry.size = len(contents[name])
            archive.addfile(entry, io.BytesIO(contents[name]))
    for path in data.glob("*/*.gz"):
        path.unlink()
    return len(contents)


def _contents(data: Path) -> dict[str, bytes]:
    """Every recording by its path, without ``.gz``; a loose one wins over one in the archive."""
    found = {}
    if (data / "recordings.tar.xz").exists():
        with tarfile.open(data / "recordings.tar.xz") as archive:
            for entry in archive:
                file = archive.extractfile(entry)
                assert file
                found[entry.name] = file.read()
    for path in sorted(data.glob("*/*.gz")):
        found[path.relative_to(data).as_posix().removesuffix(".gz")] = gzip.decompress(path.read_bytes())
    return found


if __name__ == "__main__":
    print(f"{pack(DATA)} recordings")
