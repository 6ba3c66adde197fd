"""profkit record: wraps scripts, says what it ran, keeps exit codes."""

import gzip
import json
import os
import shutil
import sys
import textwrap
import zipapp

import pytest
from click.testing import CliRunner

from profkit.errors import RecordingError
from profkit.recording.launchers import recorded_command

pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

from profkit.cli import main

PROGRAM = """
    import sys, torch, profkit
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(int(sys.argv[1])):
        with profkit.phase("forward"):
            loss = model(torch.ones(2, 4)).sum()
        loss.backward()
        optimizer.step()
    sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KINETO_LOG_LEVEL", "5")
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    return [sys.executable, "train.py"]


def invoke(*arguments):
    return CliRunner().invoke(main, ["record", *arguments])


def names(path):
    return [event["name"] for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]]


def test_an_unchanged_script_is_recorded_step_by_step(program, tmp_path):
    done = invoke("torch", "-o", "out", "--wait", "1", "--steps", "2", "--", *program, "8", "0")
    assert done.exit_code == 0, done.output
    assert "Wrote out/trace.json.gz" in done.output
    assert f"profkit: recording {sys.executable} train.py 8 0" in done.output
    found = names(tmp_path / "out" / "trace.json.gz")
    assert {name for name in found if name.startswith("ProfilerStep")} == {"ProfilerStep#3", "ProfilerStep#4"}
    assert found.count("profkit::forward") == 2
    command = json.loads((tmp_path / "out" / "run.json").read_text())["command"]
    assert command == ["train.py", "8", "0"]


@pytest.mark.slow
def test_the_options_of_a_script_reach_it(program, tmp_path):
    steps = ("--step-by", "backward", "--step-every", "2", "--wait", "1", "--warmup", "1", "--steps", "2")
    done = invoke("torch", "-o", "out", *steps, "--stop-after", "--modules", "1", "--", *program, "1000", "7")
    assert done.exit_code == 0, "the program's own is 7, but it is ended"
    found = names(tmp_path / "out" / "trace.json.gz")
    assert found.count("profkit::backward") == 4
    assert len({name for name in found if name.startswith("ProfilerStep")}) == 2
    assert json.loads((tmp_path / "out" / "run.json").read_text())["steps_called"] < 10


@pytest.mark.slow
def test_a_running_program_is_asked_by_a_file(program, tmp_path):
    body = textwrap.dedent(PROGRAM).replace(
        "    optimizer.step()", "    optimizer.step(); _ == 9 and open('go', 'w').close()"
    )
    (tmp_path / "train.py").write_text(body)
    done = invoke(
        "torch", "-o", "out", "--on", "go", "--warmup", "1", "--steps", "2", "--", *program, "20", "0"
    )
    assert done.exit_code == 0, done.output
    (trace,) = json.loads((tmp_path / "out" / "run.json").read_text())["traces"]
    assert trace["first_step"] >= 10
    assert trace["steps"] == 2


@pytest.mark.slow
def test_code_on_the_command_line_and_an_archive_are_recorded(program, tmp_path):
    code = "import runpy, sys; print(sys.argv, __name__); runpy.run_path('train.py', run_name='__main__')"
    done = invoke("torch", "-o", "out", "--", sys.executable, "-c", code, "8", "3")
    assert done.exit_code == 3, done.output
    assert (tmp_path / "out" / "trace.json.gz").exists()
    (tmp_path / "app").mkdir()
    (tmp_path / "train.py").rename(tmp_path / "app" / "__main__.py")
    zipapp.create_archive(tmp_path / "app", tmp_path / "app.pyz")
    done = invoke("torch", "-o", "out", "--", sys.executable, "app.pyz", "8", "4")
    assert done.exit_code == 4, done.output
    assert (tmp_path / "out-2" / "trace.json.gz").exists()


@pytest.mark.slow
def test_a_program_may_go_to_another_folder_and_leave_at_once(program, tmp_path):
    body = textwrap.dedent(PROGRAM).replace("sys.exit(", "import os; os._exit(")
    (tmp_path / "train.py").write_text("import os\nos.makedirs('work')\nos.chdir('work')\n" + body)
    done = invoke("torch", "-o", "out", "--", *program, "6", "5")
    assert done.exit_code == 5, done.output
    facts = json.loads((tmp_path / "out" / "run.json").read_text())
    assert facts["state"] == "ended by os._exit"
    assert facts["traces"][0]["steps"] == 2
    assert names(tmp_path / "out" / "trace.json.gz").count("profkit::forward") == 2
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.slow
def test_a_program_that_is_killed_is_told(program, tmp_path):
    body = "import os, signal\n" + textwrap.dedent(PROGRAM).replace("sys.exit(", "os.kill(os.getpid(), 9) #")
    (tmp_path / "train.py").write_text(body)
    done = invoke("torch", "-o", "out", "--", *program, "6", "0")
    assert done.exit_code == 128 + 9
    assert "profkit: the program ended by SIGKILL" in done.output
    assert "nothing was recorded: the program was killed before its recording was over" in done.output


def test_the_programs_exit_code_comes_out(program):
    assert invoke("torch", "-o", "out", "--whole", "--", *program, "1", "7").exit_code == 7


def test_a_script_that_is_not_there_is_one_line(program, capfd):
    assert invoke("torch", "-o", "out", "--", "missing.py").exit_code == 1
    assert capfd.readouterr().err == "Error: missing.py: there is no such script\n"


@pytest.mark.parametrize("mode", ["torch", "memory"])
def test_without_torch_the_program_is_not_run(program, tmp_path, monkeypatch, capfd, mode):
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text("import sys; sys.modules['torch'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hidden"))
    assert invoke(mode, "-o", "out", "--", *program, "1", "0").exit_code == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("torch is not installed here. Install PyTorch")
    assert not (tmp_path / "out").exists()


def test_memory_alone_on_a_machine_without_a_gpu_runs_the_program(program, tmp_path):
    done = invoke("memory", "-o", "out", "--", *program, "1", "0")
    assert done.exit_code == 1
    assert "nothing was recorded: the memory history is left out: there is no CUDA device" in done.output
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run.json"]


@pytest.mark.nsys
@pytest.mark.skipif(
    shutil.which(os.environ.get("PROFKIT_NSYS", "nsys")) is None,
    reason="SKIPPED LOUDLY: no nsys on the PATH or in PROFKIT_NSYS",
)
def test_nsys_records_and_exports(program, tmp_path):
    done = invoke("nsys", "-o", "out", "--", *program, "2", "3")
    assert done.exit_code == 3, done.output
    assert (tmp_path / "out" / "report.sqlite").exists()
    assert "Next: profkit analyze out/report.sqlite" in done.output


def test_a_mode_is_chosen_when_none_is_given(program, tmp_path, monkeypatch):
    monkeypatch.setenv("PROFKIT_NSYS", str(tmp_path / "none"))
    done = invoke("-o", "out", "--whole", "--", *program, "1", "0")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "trace.json.gz").exists()


@pytest.mark.parametrize(
    ("program", "line"),
    [
        (
            ["python3", "-u", "-X", "dev", "a.py", "-m"],
            ["python3", "-u", "-X", "dev", "-m", "RUN", "{}", "a.py", "-m"],
        ),
        (["python", "-m", "pkg.train", "--x"], ["python", "-m", "RUN", "{}", "-m", "pkg.train", "--x"]),
        (["train.py"], [sys.executable, "-m", "RUN", "{}", "train.py"]),
        (["python", "-c", "x = 1", "a"], ["python", "-m", "RUN", "{}", "-c", "x = 1", "a"]),
    ],
)
def test_interpreter_options_and_arguments_stay_in_place(program, line):
    line = ["profkit.recording.run_script" if part == "RUN" else part for part in line]
    assert recorded_command(program, {}) == line


def test_a_file_of_any_name_that_python_runs_is_wrapped(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, first in (("installed", f"#!{sys.executable}\n"), ("app.pyz", "PK")):
        (tmp_path / name).write_text(first)
        (tmp_path / name).chmod(0o755)
    run = ["-m", "profkit.recording.run_script", "{}"]
    installed, app = str(tmp_path / "installed"), str(tmp_path / "app.pyz")
    assert recorded_command(["installed", "--x"], {}) == [sys.executable, *run, installed, "--x"]
    assert recorded_command(["python", app], {}) == ["python", *run, app]


@pytest.mark.parametrize("program", [["ls", "train.py"], ["python", "-c"], ["python"], []])
def test_what_cannot_be_wrapped_says_so(program):
    with pytest.raises(RecordingError, match="is not a Python script or module"):
        recorded_command(program, {})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--steps", "0"), "Error: Invalid value for '--steps': 0 is not in the range x>=1."),
        (("--every", "4"), "Error: profkit.record: every is 4, less than warmup + steps (2 + 3)."),
    ],
)
def test_numbers_that_make_no_schedule_are_refused_before_the_program_runs(program, options, said):
    done = invoke("torch", *options, "--", *program, "1", "0")
    assert done.exit_code
    assert said in done.output
    assert "recording" not in done.output


def test_a_program_that_ends_before_it_trains_is_told(program, tmp_path):
    done = invoke("torch", "-o", "out", "--", *program[:1], "gone.py")
    assert done.exit_code == 1
    assert "nothing was recorded: the program ended with exit code 1 before it trained" in done.output


def test_the_told_command_has_no_secrets(program):
    done = invoke("torch", "--", "ls", "--pw", "hunter2")
    assert "hunter2" in done.output, "an error shows what cannot be run"
    line = (*program[:1], "-u", "gone.py", "--pw", "hunter2", "-p", "hunter2", "data/x", "{'key': 'hunter2'}")
    done = invoke("torch", "-o", "out", "--", *line)
    assert "hunter2" not in done.output
    assert "-u gone.py --pw '***' -p '***' data/x" in done.output


def test_an_error_is_one_line(program, monkeypatch):
    done = invoke("torch", "--", "ls", "x")
    assert done.exit_code == 1
    assert done.output.startswith("Error: ls x: is not a Python script")


def test_the_verdict_is_told_and_a_page_of_another_recording_stays(program, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.profkit.html").write_text("mine")
    done = invoke("torch", "-o", "out", "--analyze", "--", *program, "8", "0")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "report.profkit.html").read_text() == "mine"
    sentence, wrote = done.output.splitlines()[-2:]
    assert wrote == "Wrote out/report_2.profkit.html"
    assert sentence.endswith(".")


def test_without_steps_the_exit_code_says_so_and_why(program, tmp_path):
    done = invoke("torch", "-o", "out", "--", *program, "0", "0")
    assert done.exit_code == 1
    assert "nothing was recorded: no trace was written: the program made 0 training steps" in done.output
    assert "No optimizer ran: --whole records everything" in done.output
