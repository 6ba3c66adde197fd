"""Pack what `record_all.sh` recorded: ``pack.py OUT`` writes OUT/results.tar.gz, with nothing in it about the machine.

A file that names a folder, the host or the user is left out, and the exit code is then 1.
"""

from __future__ import annotations

import getpass
import gzip
import io
import json
import lzma
import re
import socket
import sys
import tarfile
from pathlib import Path

KEPT = ("advice/*.json", "comparison/*.xz", "comparison/traces/*.gz", "ranks/*/*.gz", "recorder.json", "card.json",
        "blind/ncu/cold.*z", "blind/ncu/cold.jsonl", "collected/*.json", "collected/*/*.gz")  # fmt: skip
FOLDERS = re.compile(rb"/(?:tmp|root|home|work|opt|usr|mnt)/[\w.]|HOME=|PATH=")
LARGEST = 15 << 20
"""Bytes that the archive may have."""


def names_of_the_machine() -> list[bytes]:
    """The host's and the user's names, where they are long enough to mean anything."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], user}
    return [name.encode() for name in names - {"root", "localhost"} if len(name) > 4]


def content(path: Path) -> bytes:
    """A file without its compression."""
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix)
    if opened is None:
        return path.read_bytes()
    with opened(path, "rb") as file:
        return bytes(file.read())


def leak(path: Path, names: list[bytes]) -> str | None:
    """What a file says about the machine, or None."""
    text = content(path)
    found = FOLDERS.search(text)
    if found:
        return repr(text[max(0, found.start() - 30) : found.end() + 30])
    return next((f"the name {name!r}" for name in names if name in text), None)


def main(out: Path) -> int:
    names, refused, size = names_of_the_machine(), 0, 0
    stages = {p.name: p.read_text().split() for p in sorted((out / "done").iterdir())}
    summary = {name: {"exit": int(rc), "seconds": int(seconds)} for name, (rc, seconds) in stages.items()}
    with tarfile.open(out / "results.tar.gz", "w:gz", compresslevel=9) as archive:
        add(archive, "stages.json", (json.dumps(summary, indent=1) + "\n").encode())
        for pattern in KEPT:
            for path in sorted(out.glob(pattern)):
                found = leak(path, names)
                if found:
                    print(f"REFUSED {path.relative_to(out)}: it holds {found}")
                    refused += 1
                else:
                    add(archive, str(path.relative_to(out)), path.read_bytes())
    size = (out / "results.tar.gz").stat().st_size
    if size > LARGEST:
        print(f"LARGE   results.tar.gz has {size >> 20} MiB: leave out comparison/traces or ranks")
    return 1 if refused else 0


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """A member without owner, mode or time."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
