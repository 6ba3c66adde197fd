"""Refactor without fear: write every report before a change and after it, and say what differs.

    python docs/dev/same_reports.py write before/          # on the old revision
    python docs/dev/same_reports.py write after/           # on the new one
    python docs/dev/same_reports.py compare before/ after/

`write` analyses every recording, case and published file in reach, in the process's own profkit, and leaves a
report in JSON, text and HTML for each, or the error. `compare` prints each path of the JSON whose value differs,
with the number of files, and the text and pages that differ. Renames are given as ``--rename old=new`` on the last
component of a path, expected differences as ``--ignore PATTERN`` on the whole path.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
SUFFIXES = (".json", ".json.gz", ".sqlite", ".sqlite.gz", ".pickle", ".pickle.gz", ".pkl", ".pkl.gz")
FORMATS = ("json", "text", "html")


def inputs() -> list[Path]:
    """Every file that may be a recording, and every folder of several that are one."""
    places = [ROOT / "tests/data", *(SHARED / p for p in ("recordings", "cases", "cases2", "corpus"))]
    files = [f for place in places for f in sorted(place.rglob("*")) if f.name.endswith(SUFFIXES)]
    folders = sorted(
        {f.parent for f in files if (f.parent / "run.json").exists() or f.name.startswith("rank")}
    )
    return [*(f for f in files if not f.name.endswith(".expect.json")), *folders]


def write_one(source: Path, out: Path) -> None:
    """One report in all formats, or its error."""
    import profkit

    name = str(source.relative_to(ROOT.parent)).replace("/", "__")
    name = name.removeprefix(ROOT.name + "__")
    try:
        report = profkit.analyze(source)
        for form in FORMATS:
            (out / f"{name}.{form}").write_text(
                report.render(form), encoding="utf-8", errors="surrogateescape"
            )
    except Exception as error:  # noqa: BLE001 - also a crash is something that may differ
        (out / f"{name}.error").write_text(f"{type(error).__name__}: {error}\n")


def write(out: Path, only: str) -> None:
    """All reports, two at a time."""
    out.mkdir(parents=True, exist_ok=True)
    chosen = [f for f in inputs() if fnmatch.fnmatch(str(f), f"*{only}*")]
    with ProcessPoolExecutor(2) as pool:
        for done, future in enumerate([pool.submit(write_one, f, out) for f in chosen], 1):
            future.result()
            if done % 50 == 0:
                print(f"{done} of {len(chosen)}", file=sys.stderr, flush=True)


def differences(one: Any, other: Any, path: str, renames: dict[str, str]) -> Iterator[str]:
    """The paths at which two documents differ; places in lists are not told apart."""
    if isinstance(one, dict) and isinstance(other, dict):
        one = {renames.get(k, k): v for k, v in one.items()}
        for key in one.keys() | other.keys():
            if key not in other:
                yield f"{path}.{key} (gone)"
            elif key not in one:
                yield f"{path}.{key} (new)"
            else:
                yield from differences(one[key], other[key], f"{path}.{key}", renames)
    elif isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            yield f"{path}[] (length)"
        for each, its in zip(one, other, strict=False):
            yield from differences(each, its, f"{path}[]", renames)
    elif one != other and not (isinstance(one, float) and abs(one - (other or 0)) <= 1e-9 * abs(one)):
        yield path


def compare(before: Path, after: Path, ignore: list[str], renames: dict[str, str]) -> int:
    """Print what differs; the number of differing paths."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    names = sorted({f.name for f in before.iterdir()} | {f.name for f in after.iterdir()})
    for name in names:
        one, other = before / name, after / name
        if not one.exists() or not other.exists():
            found[f"{Path(name).suffix}: only {'after' if other.exists() else 'before'}"][name] += 1
        elif name.endswith(".json"):
            for path in set(
                differences(json.loads(one.read_text()), json.loads(other.read_text()), "", renames)
            ):
                if not any(fnmatch.fnmatch(path, pattern) for pattern in ignore):
                    found[path][name] += 1
        elif one.read_bytes() != other.read_bytes():
            found[Path(name).suffix][name] += 1
    for path, files in sorted(found.items()):
        print(f"{len(files):5}  {path}   e.g. {next(iter(files))}")
    print(f"{len(names)} files, {len(found)} kinds of difference")
    return len(found)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("out", type=Path)
    writing.add_argument("--only", default="", help="part of a path")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--ignore", action="append", default=[])
    comparing.add_argument("--rename", action="append", default=[])
    asked = parser.parse_args()
    if asked.command == "write":
        write(asked.out, asked.only)
    else:
        renames = dict(each.split("=", 1) for each in asked.rename)
        sys.exit(compare(asked.before, asked.after, asked.ignore, renames) > 0)


if __name__ == "__main__":
    main()
