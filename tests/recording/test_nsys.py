"""Recording under the real nsys, on the CPU: what NVTX receives, read back with plain SQL."""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import textwrap
from pathlib import Path

import pytest

from profkit.errors import RecordingError
from profkit.model import RangeKind
from profkit.readers.nsys import read_nsys
from profkit.recording import nsys_command
from profkit.recording.nsys_command import NsysRun, find_nsys, profile_command, record_with_nsys

ROOT = Path(__file__).parents[2]
NSYS = shutil.which(os.environ.get("PROFKIT_NSYS", "nsys"))
needs_nsys = [
    pytest.mark.nsys,
    pytest.mark.skipif(NSYS is None, reason="SKIPPED LOUDLY: no nsys on the PATH or in PROFKIT_NSYS"),
]


def script(tmp_path, body):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(body))
    return [sys.executable, str(path)]


def rows(database, query):
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


def ranges(database):
    return rows(
        database,
        "SELECT s.value, n.eventType, n.start, n.end, n.color, n.int64Value FROM NVTX_EVENTS n"
        " JOIN StringIds s ON s.id = n.textId JOIN NVTX_EVENTS d ON d.domainId = n.domainId"
        " WHERE d.eventType = 75 AND d.text = 'profkit' AND n.eventType IN (59, 60) ORDER BY n.start",
    )


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """One plain script with nothing but phases, recorded by nsys alone."""
    folder = tmp_path_factory.mktemp("nsys")
    program = script(
        folder,
        """
        import asyncio, sys, threading, profkit
        @profkit.phase("forward")
        def forward():
            with profkit.phase("loss", micro_batch=3): pass
        @profkit.phase("generator")
        def numbers():
            yield 1
            yield 2
        @profkit.phase
        async def coroutine(delay): await asyncio.sleep(delay)
        async def both(): await asyncio.gather(coroutine(0.02), coroutine(0.01))
        forward()
        try:
            with profkit.phase("raises"): raise ValueError
        except ValueError: pass
        source = numbers(); next(source); source.close()
        asyncio.run(both())
        threads = [threading.Thread(target=forward) for _ in range(3)]
        [thread.start() for thread in threads]; [thread.join() for thread in threads]
        sys.exit(5)
        """,
    )
    run = NsysRun()
    code, files = record_with_nsys(run, folder / "out", program)
    assert code == 5, "the program's own exit code"
    assert [path.name for path in files] == ["report.sqlite"]
    assert run.said == []
    return files[0]


def recording(folder, steps, *options, terminal=None):
    """``profkit record nsys`` around a small training, in a process group of its own, at a terminal if one is given."""
    program = """
        import os, sys, time, torch
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        print("seen", os.environ.get("SEEN"))
        try:
            for step in range(int(sys.argv[1])):
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
                if step == 20: print("ready", flush=True)
                time.sleep(0.005)
        except KeyboardInterrupt:
            open("checkpoint", "w").close()
    """
    command = [sys.executable, "-m", "profkit", "record", "nsys", "-o", "out", *options, "--"]
    command += [*script(folder, program), str(steps)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, stdin=terminal,
        preexec_fn=None if terminal is None else lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip


def record(folder, steps, *options):
    with recording(folder, steps, *options) as process:
        out, error = process.communicate(timeout=120)
    return subprocess.CompletedProcess([], process.returncode, out, error)


class TestRealNsys:
    pytestmark = needs_nsys

    def test_phases_alone_reach_nsys(self, database):
        names = [row[0] for row in ranges(database)]
        assert names.count("forward") == names.count("loss") == 4
        assert names.count("raises") == 1

    def test_every_range_is_closed(self, database):
        assert all(end is not None and end >= start for _, _, start, end, _, _ in ranges(database))

    def test_suspended_functions_are_start_end_ranges(self, database):
        kinds = {row[0]: row[1] for row in ranges(database)}
        assert kinds["generator"] == kinds["coroutine"] == 60
        assert kinds["forward"] == kinds["loss"] == kinds["raises"] == 59

    def test_interleaved_coroutines_span_their_waits(self, database):
        waits = sorted(end - start for name, _, start, end, _, _ in ranges(database) if name == "coroutine")
        assert waits[0] >= 10_000_000
        assert waits[1] >= 20_000_000

    def test_attributes_and_colours_are_kept(self, database):
        rows = {row[0]: row for row in ranges(database)}
        assert rows["loss"][5] == 3
        assert rows["forward"][4] != rows["loss"][4]

    @pytest.mark.slow
    def test_an_unedited_program_has_phases_and_steps(self, tmp_path):
        done = record(tmp_path, 8, "--nsys-args", "--env-var=SEEN=yes")
        assert done.returncode == 0, done.stderr
        assert "{" not in done.stderr
        names = [row[0] for row in ranges(tmp_path / "out" / "report.sqlite")]
        for name in ("forward", "backward", "optimizer"):
            assert names.count(name) == 8
        assert len([name for name in names if name.startswith("ProfilerStep#")]) >= 8
        assert "seen yes" in done.stdout
        assert (tmp_path / "out" / "run.json").exists()
        again = record(tmp_path, 1500, "--no-phases", "-t", "nvtx,osrt", "--delay", "1", "--duration", "1")
        assert again.returncode == 0, again.stderr
        later = tmp_path / "out" / "report_2.sqlite"
        assert later.exists(), "nothing is ever replaced"
        (calls,) = rows(later, "SELECT count(*), min(start), max(end) FROM OSRT_API WHERE start > 0")
        assert calls[0] > 0
        assert calls[2] - calls[1] < 5e9, "the program itself took longer"

    @pytest.mark.parametrize(
        ("run", "said"),
        [
            (NsysRun(trace="cuda,nvtxx"), "exit code 1\\): Illegal --trace argument 'nvtxx'"),
            (NsysRun(more=("--no-such",)), "unrecognised option '--no-such'"),
            (NsysRun(delay_s=60), "ended before --delay 60"),
        ],
    )
    def test_what_nsys_refuses_is_told(self, tmp_path, run, said):
        with pytest.raises(RecordingError, match=said):
            record_with_nsys(run, tmp_path / "out", ["true"])

    def test_what_a_killed_program_left_is_exported(self, tmp_path):
        program = script(tmp_path, "import os, profkit\nwith profkit.phase('work'): os.kill(os.getpid(), 9)")
        code, (database,) = record_with_nsys(NsysRun(), tmp_path / "out", program)
        assert code == 128 + signal.SIGKILL
        assert database.stat().st_size

    @pytest.mark.slow
    def test_samples_of_python_are_in_the_export(self, tmp_path):
        program = script(
            tmp_path,
            """
            import profkit
            def slow(count):
                total = 0
                for number in range(count):
                    total += number * number % 7
                return total
            with profkit.phase("work"):
                slow(5_000_000)
            """,
        )
        run = NsysRun(python=True)
        code, (file,) = record_with_nsys(run, tmp_path / "out", program)
        assert (code, run.said) == (0, [])
        trace = read_nsys(file, file.name)
        rows = trace.ranges.kind == RangeKind.PYTHON
        names = trace.names(trace.ranges.name)
        slow = rows & [name.endswith("program.py(6): slow") for name in names]
        work = names == "work"
        took = trace.ranges.end_ns - trace.ranges.start_ns
        assert took[slow].sum() > 0.5 * took[work].sum(), "a busy machine gives the sampler fewer turns"
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
            "report.nsys-rep",
            "report.sqlite",
        ]

    @pytest.mark.slow
    @pytest.mark.parametrize("to", ["terminal", "group", "alone"])
    def test_ctrl_c_reaches_the_program_and_what_there_is_is_exported(self, tmp_path, to):
        keyboard, terminal = os.openpty()
        with recording(tmp_path, 100_000, terminal=terminal if to == "terminal" else None) as process:
            while process.stdout.readline() not in ("ready\n", ""):
                pass
            if to == "terminal":
                os.write(keyboard, b"\x03")
            else:
                (os.killpg if to == "group" else os.kill)(process.pid, signal.SIGINT)
            out, error = process.communicate(timeout=120)
        os.close(keyboard)
        os.close(terminal)
        assert (tmp_path / "checkpoint").exists(), error
        assert "Wrote out/report.sqlite" in out, error
        assert [row[0] for row in ranges(tmp_path / "out" / "report.sqlite")].count("optimizer") >= 10


class TestCommand:
    def test_the_options_keep_files_small(self, tmp_path):
        command = profile_command(tmp_path / "nsys", NsysRun(), tmp_path / "report", ["python", "train.py"])
        for option in ("-s", "--cpuctxsw=none", "--backtrace=none", "--resolve-symbols=false"):
            assert option in command
        assert command[command.index("-s") + 1] == "none"
        assert command[-2:] == ["python", "train.py"]

    def test_a_capture_lets_the_program_go_on_afterwards(self, tmp_path):
        command = profile_command(tmp_path / "nsys", NsysRun(capture=True), tmp_path / "report", ["x"])
        assert "--capture-range=cudaProfilerApi" in command
        assert "--capture-range-end=stop" in command, "nsys' default ends the program"

    def test_a_missing_nsys_says_what_to_do(self, monkeypatch):
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("PROFKIT_NSYS", raising=False)
        monkeypatch.setattr(nsys_command, "_PLACES", ())
        with pytest.raises(RecordingError, match="profkit record torch"):
            find_nsys()

    def test_a_named_nsys_that_is_none_is_told(self, monkeypatch):
        monkeypatch.setenv("PROFKIT_NSYS", "/nowhere/nsys")
        with pytest.raises(RecordingError, match="PROFKIT_NSYS"):
            find_nsys()

    def test_the_newest_installed_nsys_is_taken(self, monkeypatch, tmp_path):
        for version in ("2023.4.4", "2025.10.1", "2025.9.2"):
            binary = tmp_path / version / "bin" / "nsys"
            binary.parent.mkdir(parents=True)
            binary.touch()
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("PROFKIT_NSYS", raising=False)
        monkeypatch.setattr(nsys_command, "_PLACES", (f"{tmp_path}/*/bin/nsys",))
        assert find_nsys().parent.parent.name == "2025.10.1"

    def test_refused_counters_are_left_out_with_the_reason(self, monkeypatch, tmp_path):
        whole = tmp_path / "whole.sqlite"
        with contextlib.closing(sqlite3.connect(whole)) as connection, connection:
            connection.execute("CREATE TABLE StringIds (id, value)")
        fake = tmp_path / "nsys"
        fake.write_text(
            "#!/bin/sh\n"
            'case "$*" in *gpu-metrics-device=help*) echo "Insufficient privilege: ERR_NVGPUCTRPERM"; exit 1;; esac\n'
            'if [ "$1" = profile ]; then echo "$@" > ' + str(tmp_path / "said") + "\n"
            'while [ "$1" != -o ]; do shift; done; touch "$2.nsys-rep"\n'
            'else for a in "$@"; do case "$a" in --output=*) cp '
            + str(whole)
            + ' "${a#--output=}";; esac; done; fi\n'
        )
        fake.chmod(0o755)
        monkeypatch.setenv("PROFKIT_NSYS", str(fake))
        run = NsysRun(gpu_metrics=True)
        _, files = record_with_nsys(run, tmp_path / "out", ["true"])
        assert "gpu-metrics" not in (tmp_path / "said").read_text()
        assert run.said[0].startswith("GPU metrics are left out: Insufficient privilege")
        assert files == [tmp_path / "out" / "report.sqlite"]
        _, again = record_with_nsys(NsysRun(), tmp_path / "out", ["true"])
        assert again == [tmp_path / "out" / "report_2.sqlite"], "an earlier report is never overwritten"

    @pytest.mark.parametrize(
        ("body", "run", "said"),
        [
            ("exit 0", NsysRun(capture=True), r"profkit\.record"),
            ("exit 0", NsysRun(delay_s=30), r"exit code 0\)\. The program ended before --delay 30"),
            (
                "echo 'Illegal --trace argument' >&2; exit 1",
                NsysRun(),
                r"\(exit code 1\): Illegal --trace argument\.",
            ),
            (
                'while [ "$1" != -o ]; do shift; done; : > "$2.qdstrm"; echo "Importer error status: failed" >&2',
                NsysRun(),
                r"Importer error status: failed\. .*/report\.qdstrm is what it recorded",
            ),
        ],
    )
    def test_no_report_is_an_error_with_a_hint(self, monkeypatch, tmp_path, body, run, said):
        fake = tmp_path / "nsys"
        fake.write_text(f"#!/bin/sh\n{body}\n")
        fake.chmod(0o755)
        monkeypatch.setenv("PROFKIT_NSYS", str(fake))
        with pytest.raises(RecordingError, match=said):
            record_with_nsys(run, tmp_path / "out", ["true"])

    def test_an_export_that_a_full_disk_cut_short_is_none(self, monkeypatch, tmp_path):
        """As nsys 2023.4 does: an empty file, words in standard error, exit code 0."""
        fake = tmp_path / "nsys"
        fake.write_text(
            """#!/bin/sh
            if [ "$1" = profile ]; then
                while [ "$1" != -o ]; do shift; done
                : > "$2.nsys-rep"
            else
                : > "${4#--output=}"
                echo '[QuadDCommon::tag_message*] = database or disk is full' >&2
            fi
            """
        )
        fake.chmod(0o755)
        monkeypatch.setenv("PROFKIT_NSYS", str(fake))
        with pytest.raises(
            RecordingError, match=r"could not export it \(database or disk is full\)\. The report is kept"
        ):
            record_with_nsys(NsysRun(), tmp_path / "out", ["true"])
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.nsys-rep"]


def test_without_the_package_nvtx_an_attached_tool_is_a_warning(tmp_path):
    code = "import sys; sys.modules['nvtx'] = None\nimport profkit\nwith profkit.phase('x'): print('ran')"
    environment = os.environ | {"NVTX_INJECTION64_PATH": str(tmp_path / "none.so")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.stdout == "ran\n"
    assert "pip install 'nvtx>=0.2.13'" in done.stderr


def test_an_importer_that_is_older_than_the_cuda_runtime_is_told():
    told = ["Unknown runtime API function index: 468", "Unknown runtime API function index: 471"]
    lines = nsys_command.problems_in(told)
    assert lines[0] == "nsys: Unknown runtime API function index: 468 (2 times)"
    assert "older than the CUDA runtime, so it loses rows of newer calls" in lines[1]
    assert nsys_command.problems_in([]) == []


def test_errors_of_nsys_are_read_from_its_output_and_its_export(tmp_path, monkeypatch, capfd):
    """A stand-in, since no nsys of today loses rows on a machine without a GPU."""
    binary = tmp_path / "nsys"
    binary.write_text(
        f"#!{sys.executable}\n"
        + textwrap.dedent(
            """
            import sqlite3, sys
            if sys.argv[1] == "profile":
                print("the program's own words", file=sys.stderr)
                print("Unknown runtime API function index: 468", file=sys.stderr)
                open(sys.argv[sys.argv.index("-o") + 1] + ".nsys-rep", "w").close()
            else:
                target = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("--output="))
                database = sqlite3.connect(target)
                database.execute("CREATE TABLE DIAGNOSTIC_EVENT (timestamp, severity, text)")
                database.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 3, 'Not all events were collected.')")
                database.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (2, 1, 'Process was launched.')")
                database.commit()
            """
        )
    )
    binary.chmod(0o755)
    monkeypatch.setenv("PROFKIT_NSYS", str(binary))
    run = NsysRun()
    code, _ = record_with_nsys(run, tmp_path / "out", ["program"])
    assert code == 0
    assert "the program's own words" in capfd.readouterr().err
    assert "nsys: Unknown runtime API function index: 468" in run.said
    assert "nsys: Not all events were collected." in run.said
    assert not any("launched" in line for line in run.said)


def test_options_of_nsys_are_passed_on():
    run = NsysRun(python=True, trace="cuda,nvtx,osrt", delay_s=1.5, duration_s=10, more=("--sample=cpu",))
    line = profile_command(Path("nsys"), run, Path("out"), ["python", "a.py"])
    assert line[:4] == ["nsys", "profile", "-t", "cuda,nvtx,osrt"]
    for option in (
        "--python-sampling=true",
        "--python-backtrace=cuda",
        "--delay=1.5",
        "--duration=10",
        "--kill=none",
    ):
        assert option in line
    assert line[-5:] == ["--sample=cpu", "-o", "out", "python", "a.py"]


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("/home/a/train.py", []),
        ("gemm", ["samples of Python are left out: this nsys writes them in a form that is not known"]),
    ],
)
def test_samples_of_python_are_read_from_the_json_export(tmp_path, monkeypatch, module, said):
    """A stand-in: each frame has a number of a text, one of a file, a line, and bytes that nobody has set."""
    payload = (
        struct.pack("<IIQ", 1, 3, 2 | 7 << 40)
        + struct.pack("<QQQ", 1, 2, 12 | 5 << 33)
        + struct.pack("<QQQ", 3, 2, 30)
    )
    event = {
        "DomainId": "1",
        "Timestamp": "5000",
        "GlobalTid": "77",
        "Payload": {"BinaryData": [{"Data": base64.b64encode(payload).decode()}]},
    }
    binary = tmp_path / "nsys"
    binary.write_text(
        f"#!{sys.executable}\n"
        + textwrap.dedent(
            f"""
            import sqlite3, sys
            if sys.argv[1] == "profile":
                open(sys.argv[sys.argv.index("-o") + 1] + ".nsys-rep", "w").close()
                sys.exit()
            target = next(a.split("=", 1)[1] for a in sys.argv if a.startswith("--output="))
            if "--type=json" in sys.argv:
                open(target, "w").write({json.dumps({"NvtxEvent": event})!r} + "\\n" + '{{"BinaryData": "of something else"}}\\n')
                sys.exit()
            database = sqlite3.connect(target)
            database.execute("CREATE TABLE NVTX_EVENTS (eventType, text, domainId)")
            database.execute("INSERT INTO NVTX_EVENTS VALUES (75, 'Python Backtrace', 1)")
            database.execute("CREATE TABLE StringIds (id, value)")
            database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, "inner"), (2, {module!r}), (3, "outer")])
            database.commit()
            """
        )
    )
    binary.chmod(0o755)
    monkeypatch.setenv("PROFKIT_NSYS", str(binary))
    run = NsysRun(python=True)
    _, (file,) = record_with_nsys(run, tmp_path / "out", ["program"])
    assert run.said == said
    if not said:
        assert rows(file, "SELECT * FROM PROFKIT_PYTHON_SAMPLES") == [(5000, 77, 0)]
        assert rows(file, "SELECT * FROM PROFKIT_PYTHON_CALLCHAINS") == [(0, 1, 2, 12, 0), (0, 3, 2, 30, 1)]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["report.nsys-rep", "report.sqlite"]
