"""Programs of strangers' libraries under `profkit try`: ``python reports/trial/study.py OUT BUDGET_S [NAMES]``.

On a GPU, with transformers, torchvision, timm, torch_geometric, torchaudio, lightning, gpytorch and torchdiffeq::

    PYTHONPATH=$PWD python3 reports/trial/study.py $OUT 570
    PYTHONPATH=$PWD python3 reports/trial/study.py $OUT 570 t5,swin

Each of ``programs`` is written to a folder of its own and passes three stages, each with a file in OUT, written at once:

- ``NAME.trial.json``: `profkit try` with ``--budget`` of 90 s (``--trial-s``), on the script as it is;
- ``NAME.later.json``: step times of fresh processes, with a clock that is not the trial's: the bare script, the script
  with what the trial kept, the script as an expert would edit it (`expert`), and the first two again where they are close;
- ``NAME.overhead.json``: the bare step beside one that is heard as in a trial;
- ``NAME.predicted.json``: what a replay of a recording of the bare script promises of what was kept.

The processes of the last three start side by side, those of two programs at once, and are then timed one by one.

A stage that has a file is not run again, so that the same OUT goes on (one that failed leaves ``.failed`` instead, and
the others are run all the same); NAMES (joined with commas) choose, in their order. With several GPUs each takes the next program. No stage begins that the budget does not hold, and each is killed
when its time is over. `score.py` reads OUT. ``--tiny`` makes all sizes small, for a try on a CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from expert import EXPERT, edited, resized
from waiting import Waiting

from profkit import ProfkitError, what_if
from profkit.simulation import CHANGES as PRICED

HERE = Path(__file__).resolve().parent
TINY: dict[str, int | str] = {
    "BATCH": 2, "LENGTH": 16, "LAYERS": 1, "SIDE": 32, "IMAGES": 64, "NODES": 100, "EDGES": 400, "WIDTH": 16,
    "FRAMES": 20, "POINTS": 20, "WORDS": 100, "NAME": "",
}  # fmt: skip
TINY_NAMES = {
    "convnext_timm": "convnext_atto",
    "efficientnet_fp16": "mobilenetv3_small_050",
    "swin": "swin_t",
}
CLOSE = 0.85
LATER_S = 45
"""What a later measurement takes at least."""
TURN_S = 5
LONGEST_TURN_S = 60
Way = tuple[str, str, str]
"""Its name, what `timing.py` is told, and the script."""
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}


class Study:
    """The stages of programs, within a budget."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = Path(options.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.end = time.monotonic() + options.budget_s
        self.scratch = Path(tempfile.mkdtemp())
        """For recordings, which are large."""

    def left_s(self) -> float:
        return self.end - time.monotonic()

    def programs(self, names: list[str], gpu: int | None) -> None:
        """All stages of some programs: their trials, then what is measured later of all of them."""
        for name in names:
            self.write_scripts(name)
            if "trial" in self.options.stages and not self.path(name, "trial").exists():
                if self.left_s() < self.options.trial_s + 15:
                    print(f"{name}: no time left for trial", flush=True)
                    continue
                begun = time.monotonic()
                found = self.trial(name, gpu)
                if found is None:
                    return
                self.keep(name, "trial", found, begun)
                self.forget_other_later(name, found["try"])
        known = [name for name in names if list(self.out.glob(f"{name}.trial.*[dn]"))]
        if known and self.left_s() > LATER_S:
            self.later(known, gpu)

    def folder(self, name: str) -> Path:
        return self.out / "programs" / name

    def path(self, name: str, stage: str) -> Path:
        return self.out / f"{name}.{stage}.json"

    def write_scripts(self, name: str) -> None:
        """The program as it is, and as an expert would write it."""
        source = (HERE / "programs" / f"{name}.py").read_text()
        if self.options.tiny:
            source = resized(source, TINY | {"NAME": TINY_NAMES.get(name, "")})
        self.folder(name).mkdir(parents=True, exist_ok=True)
        (self.folder(name) / "train.py").write_text(source)
        for way in EXPERT[name]:
            (self.folder(name) / script_of(way)).write_text(edited(source, way))

    def keep(self, name: str, stage: str, found: dict[str, Any], begun: float) -> None:
        """Write what a stage has found."""
        found["took_s"] = time.monotonic() - begun
        failed = "code" in found
        path = self.path(name, stage)
        path.with_suffix(".part").write_text(json.dumps(found, indent=1))
        path.with_suffix(".part").rename(path.with_suffix(".failed") if failed else path)
        print(f"{name}: {stage} {'failed' if failed else 'done'} in {found['took_s']:.0f} s", flush=True)

    def forget_other_later(self, name: str, found: dict[str, Any] | None) -> None:
        """Of a trial that was made again and keeps something else, the later measurement is made again too."""
        later = self.out / f"{name}.later.json"
        if later.exists() and json.loads(later.read_text())["kept"] != kept_names(found):
            later.unlink()

    def trial(self, name: str, gpu: int | None) -> dict[str, Any] | None:
        """The trial itself; what went wrong where it gave nothing."""
        result = self.out / f"{name}.try.json"
        command = [
            sys.executable, "-m", "profkit", "try", "--budget", f"{self.options.trial_s:g}s", "--keep-going",
            "-o", str(result), *self.options.trial_options.split(), "--", sys.executable, "train.py",
        ]  # fmt: skip
        limit_s = self.options.trial_s * 1.5 + 30
        code, text = self.run(command, self.folder(name), gpu, limit_s, f"{name}.trial.log")
        if code is None and self.left_s() <= 5:
            return None  # the window closed: it is made again in the next
        if result.exists():
            return {"try": json.loads(result.read_text())}
        return {"try": None, "code": code, "said": text[-2000:]}

    def ways(self, name: str) -> tuple[str, list[Way]]:
        """What is kept, and what is measured later."""
        trial = self.path(name, "trial")
        kept = kept_names(json.loads(trial.read_text())["try"] if trial.exists() else None)
        ways = []
        if "later" in self.options.stages and not self.path(name, "later").exists():
            ways += [("bare", "-", "train.py")]
            ways += [("kept", kept, "train.py")] if kept else []
            ways += [(f"expert: {way}", "-", script_of(way)) for way in EXPERT[name]]
        if "overhead" in self.options.stages and not self.path(name, "overhead").exists():
            ways += [("overhead", "overhead", "train.py")]
        if "predicted" in self.options.stages and not self.path(name, "predicted").exists():
            ways += [("recorded", f"record:{self.recording(name)}", "train.py")]
        return kept, ways

    def later(self, names: list[str], gpu: int | None) -> None:
        """Step times of fresh processes, which start side by side and are timed one by one."""
        begun = time.monotonic()
        asked = {name: self.ways(name) for name in names}
        sides: dict[tuple[str, str], Waiting] = {}
        try:
            for name, (_, ways) in asked.items():
                sides |= {(name, way[0]): self.waiting(name, way, gpu) for way in ways}
            until = time.monotonic() + self.left_s() - TURN_S * len(sides)
            for side in sides.values():
                side.is_ready(until)
            for measure in (self.measure, self.overhead, self.recorded):
                for name, (kept, ways) in asked.items():
                    measure(name, kept, {way: sides[name, way] for way, _, _ in ways}, begun)
        finally:
            for side in sides.values():
                side.end()

    def measure(self, name: str, kept: str, sides: dict[str, Waiting], begun: float) -> None:
        """One by one, and the first two again where they are close."""
        runs = []
        ways = [way for way in sides if way not in ("overhead", "recorded")]
        for way in ways:
            runs.append({"way": way, **self.turn(sides[way])})
        if kept and runs and is_close(runs):
            runs += [{"way": way, **self.turn(sides[way])} for way in ways[:2]]
        if any("step_ms" in run for run in runs):
            self.keep(name, "later", {"kept": kept, "runs": runs}, begun)

    def overhead(self, name: str, kept: str, sides: dict[str, Waiting], begun: float) -> None:
        """What a trial's ears cost."""
        if "overhead" in sides and self.left_s() > TURN_S:
            self.keep(name, "overhead", self.turn(sides["overhead"]), begun)

    def recorded(self, name: str, kept: str, sides: dict[str, Waiting], begun: float) -> None:
        """What a replay of a recording promises."""
        if "recorded" in sides and self.left_s() > TURN_S:
            found = self.turn(sides["recorded"])
            self.keep(name, "predicted", self.predicted(name, kept) | found, begun)

    def turn(self, side: Waiting) -> dict[str, Any]:
        return side.turn(min(time.monotonic() + LONGEST_TURN_S, self.end))

    def recording(self, name: str) -> Path:
        return self.scratch / name

    def predicted(self, name: str, kept: str) -> dict[str, Any]:
        """What a replay of the recording promises of what was kept, each change alone and all together."""
        priced = [each for each in kept.split(",") if each in PRICED]
        workers = 8 if "loader-workers" in kept.split(",") else None
        try:
            found = what_if(self.recording(name), priced, loader_workers=workers)
        except ProfkitError as error:
            return {"code": None, "said": str(error)}
        return {"kept": kept, "what_if": msgspec.to_builtins(found)}

    def waiting(self, name: str, way: Way, gpu: int | None) -> Waiting:
        """A process that times a way when it is told to."""
        named, what, script = way
        seconds = "0.5" if self.options.tiny else "2"
        command = [sys.executable, str(HERE / "timing.py"), seconds, what, script]
        log = self.out / f"{name}.{script_of(named.replace(': ', '_'))[:-3]}.log"
        return Waiting(command, self.folder(name), environment_of(gpu), log)

    def run(
        self, command: list[str], folder: Path, gpu: int | None, limit_s: float, log: str
    ) -> tuple[int | None, str]:
        """The exit code of a process, None where it was killed, and what it said."""
        path = self.out / log
        with path.open("ab") as said:
            start = said.tell()
            process = subprocess.Popen(
                command, cwd=folder, env=environment_of(gpu), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(max(min(limit_s, self.left_s()), 1))
            except subprocess.TimeoutExpired:
                code = None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return code, path.read_bytes()[start:].decode("utf-8", "replace")


def environment_of(gpu: int | None) -> dict[str, str]:
    """Of a process on one GPU."""
    own = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)}
    return {**os.environ, **ENVIRONMENT, **own}


def script_of(way: str) -> str:
    """The script of an expert's way."""
    return f"{way.replace(' ', '_')}.py"


def kept_names(found: dict[str, Any] | None) -> str:
    """What a trial kept; nothing where it failed."""
    return ",".join(found["final"]["changes"]) if found else ""


def is_close(runs: list[dict[str, Any]]) -> bool:
    """Whether one measurement of each leaves a doubt of which is faster, the bare program or what is kept."""
    bare_ms, kept_ms = (run.get("step_ms") for run in runs[:2])
    return bare_ms is not None and kept_ms is not None and kept_ms > CLOSE * bare_ms


def gpus() -> list[int | None]:
    """The GPUs; one None without any."""
    try:
        text = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return [None]
    count = sum(line.startswith("GPU ") for line in text.splitlines())
    return list(range(count)) or [None]


def next_of(waiting: queue.SimpleQueue[str]) -> list[str]:
    """The next one; nothing where there is none."""
    try:
        return [waiting.get_nowait()]
    except queue.Empty:
        return []


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out")
    parser.add_argument("budget_s", type=float)
    parser.add_argument("names", nargs="?", default=",".join(EXPERT))
    parser.add_argument("--trial-s", type=float, default=90.0)
    parser.add_argument("--trial-options", default="", help="More options of profkit try.")
    parser.add_argument("--stages", default="trial,later,overhead,predicted")
    parser.add_argument("--tiny", action="store_true")
    study = Study(parser.parse_args())
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in study.options.names.split(","):
        waiting.put(name)
    places = gpus()
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // len(places))

    def work(at: int, gpu: int | None) -> None:
        os.sched_setaffinity(0, cores[at * share : (at + 1) * share])  # of this thread, and of what it starts
        while study.left_s() > 20:
            names = [*next_of(waiting), *next_of(waiting)]
            if not names:
                return
            try:
                study.programs(names, gpu)
            except Exception as error:  # noqa: BLE001 - the next programs shall have their turn
                print(f"{', '.join(names)}: {error!r}", flush=True)

    workers = [threading.Thread(target=work, args=place) for place in enumerate(places)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
