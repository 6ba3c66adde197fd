"""Fix the blind workloads before anything of them is measured: ``python reports/calibration/blind.py [again]``.

Writes `data/blind.json` (of the second round `data/blind_again.json`): their names, the day, the git revision whose models they are to judge, and the SHA-256 of the
files that define them, so that nobody edits them after the measurement unnoticed. Before the measurement it may be run
again, for newer models; once one of them is recorded it refuses.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
FILES = {
    "blind": ("blind_workloads.py", "blind_memory_workloads.py"),
    "blind_again": ("blind_again_workloads.py",),
}


def hashes(fixed: str) -> dict[str, str]:
    return {name: hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in FILES[fixed]}


def main() -> None:
    from record import REGISTRY  # it needs torch, the test of the hashes does not

    again = sys.argv[1:] == ["again"]
    file = "blind_again" if again else "blind"
    names = [work.name for work in REGISTRY.values() if work.blind == 1 + again]
    known = {row["name"] for row in json.loads((DATA / "workloads.json").read_text())}
    recorded = [name for name in names if name in known]
    if recorded:
        sys.exit(f"{recorded[0]} is recorded already: the blind workloads stay as they are")
    git = ["git", "-C", str(HERE), "log", "-1", "--format=%H", "--", "../../profkit"]
    revision = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    content = {
        "fixed_on": datetime.now(UTC).date().isoformat(),
        "models_at_revision": revision,
        "sha256": hashes(file),
        "names": names,
    }
    (DATA / f"{file}.json").write_text(json.dumps(content, indent=1) + "\n")
    print(f"{len(names)} blind workloads, models at {revision[:12]}")


if __name__ == "__main__":
    main()
