"""Twelve programs, unedited, with and without ``profkit record torch``: ``python programs_table.py [NAME...]``.

For each: the losses are equal to the bit, each recorded step holds what it should, the phases are there. Public
programs are cloned by name and revision (``--source`` says from where); the libraries are those installed here.
Prints the table of docs/recording.md.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent / "programs"
STEPS = 3


@dataclass
class Program:
    name: str
    command: list[str]
    phases: set[str]
    repository: str = ""
    revision: str = ""
    library: str = "torch"
    per_step: dict[str, int] = field(default_factory=lambda: {"optimizer": 1})
    """How often a phase is in each recorded step."""
    paths: tuple[str, ...] = (".",)
    folder: str = ""
    """Where in the clone it runs."""
    prepare: str = ""
    """A shell line, run once in the clone."""
    options: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    ranks: int = 1


FIVE = {"data", "forward", "loss", "backward", "optimizer"}
TINY_GPT = (
    "--device=cpu --dataset=tiny --eval_iters=1 --eval_interval=1000 --block_size=16 --batch_size=2 --n_layer=2 --n_head=2"
    " --n_embd=32 --max_iters=12 --gradient_accumulation_steps=2 --dtype=float32 --log_interval=1"
)
TINY_DATA = (
    'mkdir -p data/tiny && python -c "import numpy; r = numpy.random.RandomState(0);'
    " [r.randint(0, 64, 5000).astype('uint16').tofile(f'data/tiny/{n}.bin') for n in ('train', 'val')]\""
)
TINY_TEXT = (
    "cd word_language_model && mkdir -p data/wikitext-2 &&"
    " for f in train valid test; do seq 1 40 | sed 's/.*/a b c d e f g h &/' > data/wikitext-2/$f.txt; done"
)


def loop(name, library="torch", phases=None, **more):
    return Program(name, [str(HERE / "loops.py"), name], phases or FIVE, library=library, **more)


PROGRAMS = [
    Program(
        "nanoGPT", ["train.py", *TINY_GPT.split(), "--compile=False"], FIVE - {"data"}, "karpathy/nanoGPT",
        "3adf61e154c3fe3fca428ad6bc3818b27a3b8291", prepare=TINY_DATA, per_step={"optimizer": 1, "backward": 2},
    ),
    Program(
        "word_language_model", ["main.py", "--epochs", "1", "--emsize", "16", "--nhid", "16", "--batch_size", "4", "--bptt", "8", "--model", "LSTM"],
        {"forward", "loss", "backward"}, "pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8",
        paths=tuple(f"word_language_model/{n}.py" for n in ("main", "data", "model")), folder="word_language_model",
        prepare=TINY_TEXT, per_step={"backward": 1},
    ),
    loop("timm_classifier", "timm"),
    loop("diffusion", "diffusers"),
    Program(
        "ppo", ["cleanrl/ppo.py", "--total-timesteps", "1024", "--num-steps", "64", "--no-cuda"],
        {"backward", "optimizer"}, "vwxyzjn/cleanrl", "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb",
        per_step={"optimizer": 1, "backward": 1},
    ),
    loop("hf_trainer", "transformers"),
    loop("lightning_trainer", "lightning", per_step={"optimizer": 1, "backward": 2}),
    loop("accelerate_loop", "accelerate", per_step={"optimizer": 1, "backward": 2}),
    loop("ddp", launcher=("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"), ranks=2),
    loop("compiled"),
    loop("grad_scaler"),
    loop("iterable"),
]  # fmt: skip


def clone(program, source, folder):
    if not program.repository:
        return folder
    owner, name = program.repository.split("/")
    where, address = folder / "clone", source.format(owner=owner, name=name)
    subprocess.run(["git", "clone", "-q", "--no-checkout", address, str(where)], check=True)
    subprocess.run(["git", "checkout", "-q", program.revision, "--", *program.paths], check=True, cwd=where)
    if program.prepare:
        subprocess.run(program.prepare, shell=True, cwd=where, check=True)
    return where / program.folder


def run(program, where, losses, recorded=None):
    line = [sys.executable, *program.launcher, str(HERE / "spy.py"), str(losses), *program.command]
    if recorded is not None:
        options = ["-o", str(recorded), "--steps", str(STEPS), *program.options]
        line = [sys.executable, "-m", "profkit", "record", "torch", *options, "--", *line]
    environment = os.environ | {
        "KINETO_LOG_LEVEL": "5",
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "WANDB_MODE": "disabled",
    }
    done = subprocess.run(line, cwd=where, env=environment, capture_output=True, text=True, timeout=500)
    if done.returncode:
        raise RuntimeError(f"{' '.join(line)}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")


def marks_of(trace):
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    marks = [e for e in events if e.get("cat") == "user_annotation"]
    steps = [e for e in marks if e["name"].startswith("ProfilerStep#")]
    counts = []
    for step in steps:
        inside = [e["name"] for e in marks if step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
        counts.append(Counter(n.removeprefix("profkit::") for n in inside if n.startswith("profkit::")))
    return counts


def look_at(program, source):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        where = clone(program, source, folder)
        run(program, where, folder / "plain")
        run(program, where, folder / "seen", folder / "run")
        written = sorted(folder.glob("plain*"))
        equal = all((folder / f"seen{p.name[5:]}").read_text() == p.read_text() for p in written)
        total, *losses = written[0].read_text().split("\n")
        traces = sorted((folder / "run").glob("trace*.json.gz"))
        counts = [step for trace in traces for step in marks_of(trace)]
        phases = set().union(*counts)
        right = len(traces) == program.ranks and len(counts) == STEPS * program.ranks
        right = right and all(step[n] == k for step in counts for n, k in program.per_step.items())
        missing = program.phases - phases
    return {
        "program": program.name, "losses": len(losses), "steps": int(total), "equal": equal, "recorded": len(counts),
        "right": right, "phases": sorted(phases), "missing": sorted(missing),
    }  # fmt: skip


def of(program):
    if program.repository:
        return f"{program.repository}@{program.revision[:7]}"
    try:
        return f"{program.library} {version(program.library)}"
    except PackageNotFoundError:
        return program.library


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--source", default="https://github.com/{owner}/{name}", help="Where repositories are cloned from."
    )
    arguments = parser.parse_args()
    if shutil.which("git") is None:
        sys.exit("git is missing")
    print(
        "| program | of | losses | equal | recorded steps | each holds | phases |\n|---|---|---|---|---|---|---|"
    )
    failed = []
    for program in PROGRAMS:
        if arguments.names and program.name not in arguments.names:
            continue
        try:
            row = look_at(program, arguments.source)
        except (RuntimeError, subprocess.SubprocessError) as error:
            failed.append(program.name)
            print(f"| {program.name} | {of(program)} | failed |", file=sys.stdout)
            print(error, file=sys.stderr)
            continue
        if not row["equal"] or not row["right"] or row["missing"]:
            failed.append(program.name)
        holds = ", ".join(f"{count} {name}" for name, count in program.per_step.items())
        print(
            f"| {program.name} | {of(program)} | {row['losses']} | {'yes' if row['equal'] else 'NO'} | {row['recorded']}"
            f" | {holds if row['right'] else 'NO'} | {', '.join(row['phases'])}"
            f"{' MISSING ' + ', '.join(row['missing']) if row['missing'] else ''} |",
            flush=True,
        )
    sys.exit(f"not as they should be: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
