"""Fix the blind workloads before anything of them is measured: ``python reports/calibration/blind.py``.

Writes `data/blind.json`: their names, the day, the git revision whose models they are to judge, and the SHA-256 of the
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
FILES = ("blind_workloads.py", "blind_memory_workloads.py")


def hashes() -> dict[str, str]:
    return {name: hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in FILES}


def main() -> None:
    from record import REGISTRY  # it needs torch, the test of the hashes does not

    names = [work.name for work in REGISTRY.values() if work.blind]
    recorded = [n for n in names if list(DATA.glob(f"*/{n}.*.gz"))]
    if recorded:
        sys.exit(f"{recorded[0]} is recorded already: the blind workloads stay as they are")
    git = ["git", "-C", str(HERE), "log", "-1", "--format=%H", "--", "../../profkit"]
    revision = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    fixed = {
        "fixed_on": datetime.now(UTC).date().isoformat(),
        "models_at_revision": revision,
        "sha256": hashes(),
        "names": names,
    }
    (DATA / "blind.json").write_text(json.dumps(fixed, indent=1) + "\n")
    print(f"{len(names)} blind workloads, models at {revision[:12]}")


if __name__ == "__main__":
    main()
