"""profkit record around real processes: signals, ranks, launchers."""

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from profkit.cli import main
from profkit.recording.launchers import RUNNER, recorded_command

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

ROOT = Path(__file__).parents[2]
ENV = os.environ | {"KINETO_LOG_LEVEL": "5", "OMP_NUM_THREADS": "1"}
ENV["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])

LOOP = """
    import os, signal, sys, time, torch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def train(steps):
        for step in range(steps):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
            if step == 20: print("ready", flush=True)
            time.sleep(0.005)
"""


def program(folder, body):
    (folder / "train.py").write_text(textwrap.dedent(LOOP) + textwrap.dedent(body))


def recording(folder, *arguments):
    command = [sys.executable, "-m", "profkit", "record", *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def record(folder, *arguments):
    with recording(folder, *arguments) as process:
        out, error = process.communicate(timeout=120)
    return process.returncode, out, error


def told(error):
    """What the recording complains of."""
    lines = [line for line in error.splitlines() if "profkit: " in line or "RecordingWarning" in line]
    return [line for line in lines if not line.startswith("profkit: recording ")]


def names(path):
    return [e["name"] for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]]


def send_when_ready(process, number, *, to_group):
    while process.stdout.readline() not in ("ready\n", ""):
        pass
    (os.killpg if to_group else os.kill)(process.pid, number)
    out, error = process.communicate(timeout=60)
    return out, error


ENDINGS = {
    "keyboard": """
        try:
            train(10_000)
        except KeyboardInterrupt:
            time.sleep(0.5)
            open("checkpoint", "w").close()
            sys.exit(9)
    """,
    "handler": """
        def save(number, frame):
            time.sleep(0.5)
            open("checkpoint", "w").close()
            sys.exit(9)
        signal.signal(signal.SIGTERM, save)
        assert signal.getsignal(signal.SIGTERM) is save
        train(10_000)
    """,
    "none": """
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        train(10_000)
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "number", "to_group", "code"),
    [
        ("keyboard", signal.SIGINT, True, 9),
        ("keyboard", signal.SIGINT, False, 9),
        ("handler", signal.SIGTERM, False, 9),
        ("none", signal.SIGTERM, False, 128 + signal.SIGTERM),
    ],
)
def test_a_program_that_is_asked_to_end_does_so_in_its_own_way(tmp_path, ending, number, to_group, code):
    program(tmp_path, ENDINGS[ending])
    process = recording(
        tmp_path,
        "torch",
        "-o",
        "out",
        "--wait",
        "0",
        "--warmup",
        "1",
        "--steps",
        "100000",
        "--",
        sys.executable,
        "train.py",
    )
    with process:
        out, error = send_when_ready(process, number, to_group=to_group)
    assert process.returncode == code, error
    assert (tmp_path / "checkpoint").exists() == (ending != "none")
    assert "Wrote out/trace.json.gz" in out, error
    assert names(tmp_path / "out" / "trace.json.gz").count("profkit::optimizer") >= 15
    facts = json.loads((tmp_path / "out" / "run.json").read_text())
    assert facts["state"] == f"ended by {number.name}"
    assert facts["traces"][0]["complete"] is False


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="only Linux tells a process of its parent's end"
)
def test_a_program_is_asked_to_end_when_profkit_is_killed(tmp_path):
    body = """
        def save(number, frame):
            open("checkpoint", "w").close()
            sys.exit(9)
        signal.signal(signal.SIGTERM, save)
        train(10_000)
    """
    program(tmp_path, body)
    arguments = ("--wait", "0", "--warmup", "1", "--steps", "100000")
    with recording(tmp_path, "torch", "-o", "out", *arguments, "--", sys.executable, "train.py") as process:
        send_when_ready(
            process, signal.SIGKILL, to_group=False
        )  # waits until the program has closed its output
    assert (tmp_path / "checkpoint").exists()
    assert json.loads((tmp_path / "out" / "run.json").read_text())["state"] == "ended by SIGTERM"


@pytest.mark.slow
def test_a_program_under_the_memory_history_ends_in_its_own_way(tmp_path):
    """Without a GPU there is no history to write; the program is run and asked as with one."""
    program(tmp_path, ENDINGS["keyboard"])
    with recording(tmp_path, "memory", "-o", "out", "--", sys.executable, "train.py") as process:
        _, error = send_when_ready(process, signal.SIGINT, to_group=True)
    assert process.returncode == 9, error
    assert (tmp_path / "checkpoint").exists()
    assert json.loads((tmp_path / "out" / "run.json").read_text())["state"] == "ended by SIGINT"


RANKS = """
    import torch.distributed as dist
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(8)
    dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "module"])
def test_each_rank_of_a_launcher_is_recorded(tmp_path, launcher):
    program(tmp_path, RANKS)
    start = [sys.executable, "-m", "torch.distributed.run"]
    if launcher == "torchrun":
        start = [str(Path(sys.executable).parent / "torchrun")]
    ranks = () if launcher == "torchrun" else ("--ranks", "1")
    line = (*start, "--nproc_per_node", "2", "--standalone", "train.py")
    code, out, error = record(tmp_path, "torch", "-o", "out", *ranks, "--", *line)
    assert code == 0, error
    files = sorted(path.name for path in (tmp_path / "out").glob("trace*"))
    assert files == [f"trace_rank{rank}.json.gz" for rank in ([1] if ranks else [0, 1])]
    found = names(tmp_path / "out" / "trace_rank1.json.gz")
    assert found.count("profkit::forward") == found.count("profkit::backward") == 3
    assert "{" not in error, "no internal JSON on the terminal"
    assert "Next: profkit analyze out" in out


@pytest.mark.slow
def test_processes_that_torch_spawns_are_recorded_as_ranks(tmp_path):
    body = """
        def work(rank, steps): train(steps)
        if __name__ == "__main__":
            torch.multiprocessing.spawn(work, args=(8,), nprocs=2)
    """
    program(tmp_path, body)
    code, _, error = record(tmp_path, "torch", "-o", "out", "--", sys.executable, "train.py")
    assert code == 0, error
    assert sorted(p.name for p in (tmp_path / "out").glob("trace*")) == [
        "trace_rank0.json.gz",
        "trace_rank1.json.gz",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing_are_recorded_if_they_train(tmp_path, method):
    body = f"""
        import multiprocessing
        def idle(): print("idle")
        if __name__ == "__main__":
            context = multiprocessing.get_context("{method}")
            children = [context.Process(target=train, args=(8,)) for _ in range(2)] + [context.Process(target=idle)]
            for child in children: child.start()
            for child in children: child.join()
            assert [child.exitcode for child in children] == [0, 0, 0]
    """
    program(tmp_path, body)
    code, out, error = record(tmp_path, "torch", "-o", "out", "--", sys.executable, "train.py")
    assert code == 0, error
    assert "idle" in out
    traces = sorted(tmp_path.glob("out*/trace*"))
    assert [path.parent.name for path in traces] == ["out-2", "out-3"], "out is of the program itself"
    for path in traces:
        assert names(path).count("profkit::optimizer") == names(path).count("profkit::backward") == 3
    assert len(list(tmp_path.glob("out*"))) == 3, "a process that does not train leaves nothing"
    assert told(error) == []


STARTERS = {
    "subprocess": "subprocess.run([sys.executable, 'child.py'], check=True)",
    "shell": "assert os.system(f'cd . && {sys.executable} child.py') == 0",
    "pool": "multiprocessing.get_context('spawn').Pool(1).map(train, [8])",
    "fork": """
        if not os.fork():
            train(8)
            os._exit(0)
        os.wait()
    """,
    "exec": "os.execv(sys.executable, [sys.executable, 'child.py'])",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", STARTERS)
def test_a_program_that_is_started_is_recorded_if_it_trains(tmp_path, how):
    program(tmp_path, "train(8)")
    (tmp_path / "train.py").rename(tmp_path / "child.py")
    launcher = "import multiprocessing, subprocess\nif __name__ == '__main__':\n"
    program(tmp_path, "")
    with (tmp_path / "train.py").open("a") as file:
        file.write(launcher + textwrap.indent(textwrap.dedent(STARTERS[how]).strip(), "    ") + "\n")
    code, _, error = record(tmp_path, "torch", "-o", "out", "--", sys.executable, "train.py")
    assert code == 0, error
    (trace,) = tmp_path.glob("out*/trace*")
    assert trace.parent.name == "out-2", "out is of the program itself"
    assert names(trace).count("profkit::optimizer") == names(trace).count("profkit::backward") == 3
    assert told(error) == []


@pytest.mark.slow
def test_a_program_that_is_started_and_trains_nothing_hears_nothing_of_it(tmp_path):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text("import sys; sys.seen = True")
    child = "import sys; print(sys.seen, [m for m in sys.modules if 'profkit' in m], 'child_start' in str(sys.path))"
    body = f"""
        import subprocess
        os.environ["PYTHONPATH"] += os.pathsep + "hidden"
        print(subprocess.check_output([sys.executable, "-c", {child!r}], text=True))
        train(8)
    """
    program(tmp_path, body)
    code, out, error = record(tmp_path, "torch", "-o", "out", "--", sys.executable, "train.py")
    assert code == 0, error
    assert "True [] False" in out
    assert [path.name for path in tmp_path.glob("out*")] == ["out"]


@pytest.mark.slow
def test_accelerate_starts_the_recorded_script(tmp_path):
    """One process: several on the CPU need MPI there, and several GPUs are started as torchrun does."""
    pytest.importorskip("accelerate", reason="SKIPPED LOUDLY: accelerate is not installed")
    program(tmp_path, "assert sys.argv[1:] == ['--x', '1']\ntrain(8)")
    start = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--cpu",
        "--num_processes",
        "1",
    ]
    code, _, error = record(tmp_path, "torch", "-o", "out", "--", *start, "train.py", "--x", "1")
    assert code == 0, error
    assert names(tmp_path / "out" / "trace.json.gz").count("profkit::optimizer") == 3


DEEPSPEED = """
    import subprocess, sys
    rest = sys.argv[1:]
    while rest and rest[0].startswith("--num"): rest = rest[2:]
    module = rest[0] == "--module"
    rest = ["-m", *rest[1:]] if module else rest
    sys.exit(subprocess.run([sys.executable, "-u", *rest[:2], "--local_rank=0", *rest[2:]] if not module
                            else [sys.executable, "-u", *rest]).returncode)
"""


@pytest.mark.slow
def test_deepspeed_starts_the_recorded_script(tmp_path, monkeypatch):
    """A stand-in that starts one rank as deepspeed's runner does."""
    program(tmp_path, "train(8)")
    (tmp_path / "deepspeed").write_text(f"#!{sys.executable}\n" + textwrap.dedent(DEEPSPEED))
    (tmp_path / "deepspeed").chmod(0o755)
    monkeypatch.setitem(ENV, "PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    code, _, error = record(
        tmp_path, "torch", "-o", "out", "--", "deepspeed", "--num_gpus", "1", "train.py", "--x", "1"
    )
    assert code == 0, error
    assert names(tmp_path / "out" / "trace.json.gz").count("profkit::optimizer") == 3
    assert json.loads((tmp_path / "out" / "run.json").read_text())["command"] == ["train.py", "--x", "1"]


PY = sys.executable


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun --nproc_per_node 2 a.py --x b.py", "torchrun --nproc_per_node 2 -m RUN {} a.py --x b.py"),
        ("torchrun --standalone -m pkg.train --x", "torchrun --standalone -m RUN {} -m pkg.train --x"),
        ("python -m torch.distributed.run a.py", "python -m torch.distributed.run -m RUN {} a.py"),
        (
            "accelerate launch --config_file c.yaml a.py",
            "accelerate launch --config_file c.yaml -m RUN {} a.py",
        ),
        ("python -m accelerate.commands.launch a.py", "python -m accelerate.commands.launch -m RUN {} a.py"),
        (
            "deepspeed --num_gpus 2 a.py --deepspeed",
            "deepspeed --num_gpus 2 --module RUN {} a.py --deepspeed",
        ),
        ("python -u a.py -m", "python -u -m RUN {} a.py -m"),
    ],
)
def test_the_runner_stands_where_the_script_was(line, expected):
    words = [RUNNER if word == "RUN" else word for word in expected.split()]
    assert recorded_command(line.split(), {}) == words


def test_a_program_with_another_python_that_lacks_profkit_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = tmp_path / "python3"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    done = CliRunner().invoke(main, ["record", "torch", "--", str(python), "train.py"])
    assert done.exit_code == 1
    assert f"{python}: has no profkit: this profkit is of {sys.executable}" in done.output
    assert f"Install it there, in the clone of profkit: {python} -m pip install ." in done.output


def test_a_command_that_is_no_program_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["record", "torch", "--", "torchrun", "x"])
    assert done.exit_code == 1
    assert "starts no Python script to record" in done.output
    assert "Write: -- torchrun [its options] train.py ..." in done.output


def test_a_launcher_is_not_asked_by_a_signal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["record", "torch", "--on", "signal", "--", "torchrun", "train.py"])
    assert done.exit_code == 1
    assert "Ask by a file: --on FILE" in done.output
