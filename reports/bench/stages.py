"""Analyse one file stage by stage and print, as JSON, the CPU seconds of each and the peak memory after it.

stages.py FILE
"""

from __future__ import annotations

import json
import resource
import sys
import time


def main() -> None:
    laps: dict[str, dict[str, float]] = {}
    before = 0.0

    def lap(stage: str) -> None:
        nonlocal before
        now = time.process_time()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        laps[stage] = {"cpu_s": round(now - before, 3), "peak_mb": round(peak)}
        before = now

    from profkit.readers import read
    from profkit.rendering import RENDERERS
    from profkit.report.assembly import summarise

    lap("start")
    trace = read(sys.argv[1])
    lap("read")
    result = summarise([trace])
    lap("analyse")
    RENDERERS["html"](result)
    lap("render")
    print(json.dumps(laps))


if __name__ == "__main__":
    main()
