"""Programs of strangers' libraries under `profkit try`: ``python reports/trial/study.py OUT BUDGET_S [NAMES]``.

On a GPU, with transformers, torchvision, timm, torch_geometric, torchaudio, lightning, gpytorch and torchdiffeq::

    PYTHONPATH=$PWD python3 reports/trial/study.py $OUT 570
    PYTHONPATH=$PWD python3 reports/trial/study.py $OUT 570 t5,swin

Each of ``programs`` is written to a folder of its own and passes three stages, each with a file in OUT, written at once:

- ``NAME.trial.json``: `profkit try` with ``--budget`` of 90 s (``--trial-s``), on the script as it is;
- ``NAME.later.json``: step times of fresh processes, with a clock that is not the trial's: the bare script, the script
  with what the trial kept, the script as an expert would edit it (`expert`), and the first two again;
- ``NAME.overhead.json``: the bare step beside one that is heard as in a trial.

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
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from expert import EXPERT, edited, resized

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
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}


TIMING = [sys.executable, str(HERE / "timing.py")]
LATER_S = 200.0
"""Of all fresh processes of a program together."""


def environment_of(gpu: int | None) -> dict[str, str]:
    """The environment of a program on a GPU."""
    return {**os.environ, **ENVIRONMENT, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)})}


class Turn:
    """A process of `timing` that starts beside others and is timed when its turn comes."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str], said: BinaryIO) -> None:
        self.process = subprocess.Popen(
            command, cwd=folder, env={**environment, "TAKES_TURNS": "1"}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=said, start_new_session=True,
        )  # fmt: skip
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.decode("utf-8", "replace"))
        self.lines.put("")

    def _line(self, start: str, limit: float) -> str | None:
        """The next line with that start; None where the process or its time ends before."""
        with contextlib.suppress(queue.Empty):
            while line := self.lines.get(timeout=max(limit - time.monotonic(), 0.01)):
                if line.startswith(start):
                    return line
            self.lines.put("")  # it has ended, for whoever asks next too
        return None

    def await_ready(self, limit: float) -> None:
        self._line("ready", limit)

    def timed(self, limit: float) -> dict[str, Any] | None:
        """What it measured, alone on its GPU; None where it failed."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        line = self._line("{", limit)
        self.end()
        found: dict[str, Any] | None = json.loads(line) if line else None
        return found

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Study:
    """The stages of programs, within a budget."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = Path(options.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.end = time.monotonic() + options.budget_s
        self.timed_s = "0.5" if options.tiny else "3"

    def left_s(self) -> float:
        return self.end - time.monotonic()

    def program(self, name: str, gpu: int | None) -> None:
        """All stages of a program."""
        source = (HERE / "programs" / f"{name}.py").read_text()
        if self.options.tiny:
            source = resized(source, TINY | {"NAME": TINY_NAMES.get(name, "")})
        folder = self.out / "programs" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.py").write_text(source)
        for way in EXPERT[name]:
            (folder / f"{way.replace(' ', '_')}.py").write_text(edited(source, way))
        stages = (
            ("trial", self.options.trial_s + 15, self.trial),
            ("later", 40, self.later),
            ("overhead", 20, self.overhead),
        )
        for stage, least_s, run in stages:
            path = self.out / f"{name}.{stage}.json"
            if stage not in self.options.stages or path.exists():
                continue
            if self.left_s() < least_s:
                print(f"{name}: no time left for {stage}", flush=True)
                return
            begun = time.monotonic()
            found = run(name, folder, gpu)
            if found is None:
                return
            found["took_s"] = time.monotonic() - begun
            failed = "code" in found
            path.with_suffix(".part").write_text(json.dumps(found, indent=1))
            path.with_suffix(".part").rename(path.with_suffix(".failed") if failed else path)
            print(f"{name}: {stage} {'failed' if failed else 'done'} in {found['took_s']:.0f} s", flush=True)
            if stage == "trial":
                self.forget_other_later(name, found["try"])

    def forget_other_later(self, name: str, found: dict[str, Any] | None) -> None:
        """Of a trial that was made again and keeps something else, the later measurement is made again too."""
        later = self.out / f"{name}.later.json"
        if later.exists() and json.loads(later.read_text())["kept"] != kept_names(found):
            later.unlink()

    def trial(self, name: str, folder: Path, gpu: int | None) -> dict[str, Any] | None:
        """The trial itself; what went wrong where it gave nothing."""
        result = self.out / f"{name}.try.json"
        command = [
            sys.executable, "-m", "profkit", "try", "--budget", f"{self.options.trial_s:g}s", "--keep-going",
            "-o", str(result), *self.options.trial_options.split(), "--", sys.executable, "train.py",
        ]  # fmt: skip
        code, text = self.run(command, folder, gpu, self.options.trial_s * 1.5 + 30, f"{name}.trial.log")
        if code is None and self.left_s() <= 5:
            return None  # the window closed: it is made again in the next
        if result.exists():
            return {"try": json.loads(result.read_text())}
        return {"try": None, "code": code, "said": text[-2000:]}

    def later(self, name: str, folder: Path, gpu: int | None) -> dict[str, Any] | None:
        """Step times of fresh processes."""
        trial = self.out / f"{name}.trial.json"
        found = json.loads(trial.read_text())["try"] if trial.exists() else None
        kept = kept_names(found)
        runs = [("bare", "-", "train.py")]
        runs += [("kept", kept, "train.py")] if kept else []
        runs += [(f"expert: {way}", "-", f"{way.replace(' ', '_')}.py") for way in EXPERT[name]]
        runs += runs[:2] if kept else runs[:1]
        limit = time.monotonic() + min(self.left_s() - 3, LATER_S)
        log = self.out / f"{name}.later.log"
        with log.open("ab") as said:
            turns = [
                Turn([*TIMING, self.timed_s, changes, script], folder, environment_of(gpu), said)
                for _, changes, script in runs
            ]
            try:
                for turn in turns:
                    turn.await_ready(limit)
                found = [turn.timed(limit) for turn in turns]
            finally:
                for turn in turns:
                    turn.end()
        if any(each is None for each in found) and self.left_s() < 10:
            return None  # the window closed: it is made again in the next
        missing = {"code": None, "said": log.read_text(errors="replace")[-1000:]}
        return {
            "kept": kept,
            "runs": [{"way": run[0], **(each or missing)} for run, each in zip(runs, found, strict=True)],
        }

    def overhead(self, name: str, folder: Path, gpu: int | None) -> dict[str, Any]:
        """What a trial's ears cost."""
        return self.timed(name, "overhead", "train.py", folder, gpu)

    def timed(self, name: str, what: str, script: str, folder: Path, gpu: int | None) -> dict[str, Any]:
        command = [*TIMING, self.timed_s, what, script]
        code, text = self.run(command, folder, gpu, 50 if self.options.tiny else 150, f"{name}.timing.log")
        lines = [line for line in text.splitlines() if line.startswith("{")]
        if code != 0 or not lines:
            return {"code": code, "said": text[-1000:]}
        found: dict[str, Any] = json.loads(lines[-1])
        return found

    def run(
        self, command: list[str], folder: Path, gpu: int | None, limit_s: float, log: str
    ) -> tuple[int | None, str]:
        """The exit code of a process, None where it was killed, and what it said."""
        environment = environment_of(gpu)
        path = self.out / log
        with path.open("ab") as said:
            start = said.tell()
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
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


def kept_names(found: dict[str, Any] | None) -> str:
    """What a trial kept; nothing where it failed."""
    return ",".join(found["final"]["changes"]) if found else ""


def gpus() -> list[int | None]:
    """The GPUs; one None without any."""
    try:
        text = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return [None]
    count = sum(line.startswith("GPU ") for line in text.splitlines())
    return list(range(count)) or [None]


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out")
    parser.add_argument("budget_s", type=float)
    parser.add_argument("names", nargs="?", default=",".join(EXPERT))
    parser.add_argument("--trial-s", type=float, default=90.0)
    parser.add_argument("--trial-options", default="", help="More options of profkit try.")
    parser.add_argument("--stages", default="trial,later,overhead")
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
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                study.program(name, gpu)
            except Exception as error:  # noqa: BLE001 - the next program shall have its turn
                print(f"{name}: {error!r}", flush=True)

    workers = [threading.Thread(target=work, args=place) for place in enumerate(places)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
