"""profkit.recording.recorder: chosen steps, whole files, and a program that never notices."""

import gzip
import importlib.util
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from types import SimpleNamespace

import pytest

from profkit.errors import RecordingError
from profkit.recording import memory_history, recorder, torch_profiler
from profkit.recording.phases import phase
from profkit.recording.recorder import record
from tests.shared import DATA

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

ENV = os.environ | {"KINETO_LOG_LEVEL": "5"}


def load_case(name):
    spec = importlib.util.spec_from_file_location(name, DATA / "cases" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def nothing_left_recording():
    yield
    assert recorder._active is None
    assert not torch.autograd.profiler._is_profiler_enabled
    recorder._active = None


def train(recording, steps, *, seed=0):
    """A small training loop; its loss and weights."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with phase("forward"):
            loss = model(torch.randn(4, 16)).square().mean()
        with phase("backward"):
            loss.backward()
        with phase("optimizer"):
            optimizer.step()
        losses.append(loss.item())
        if recording is not None:
            recording.step()
    return losses, [parameter.detach().clone() for parameter in model.parameters()]


def trace_of(path):
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def names_of(path):
    return [event["name"] for event in trace_of(path) if event.get("cat") == "user_annotation"]


def run_file(recording):
    return json.loads((recording.folder / "run.json").read_text())


def test_the_chosen_steps_are_recorded_into_one_folder(tmp_path):
    with record(tmp_path / "run", wait=3, warmup=1, steps=2) as recording:
        train(recording, 8)
    assert recording.problems == []
    assert sorted(path.name for path in recording.folder.iterdir()) == ["run.json", "trace.json.gz"]
    names = names_of(recording.files[0])
    assert [name for name in names if name.startswith("ProfilerStep")] == ["ProfilerStep#4", "ProfilerStep#5"]
    assert names.count("profkit::forward") == names.count("profkit::backward") == 2
    facts = run_file(recording)
    assert facts["schema"] == "profkit.run/1"
    assert facts["state"] == "done"
    assert facts["phases"] == ["backward", "forward", "optimizer"]
    assert facts["traces"] == [{"file": "trace.json.gz", "first_step": 4, "steps": 2, "complete": True}]
    assert facts["versions"]["torch"] == torch.__version__
    assert "Input Dims" in json.dumps(trace_of(recording.files[0])), "shapes are on by default"


def test_the_unprofiled_step_time_is_measured_before_the_recording(tmp_path):
    with record(tmp_path, wait=4, warmup=1, steps=2) as recording:
        for step in range(7):
            time.sleep(0.2 if step == 0 else 0.01)
            recording.step()
    facts = run_file(recording)
    assert len(facts["plain_step_ns"]) == 3, "the first, cold step does not count"
    assert all(10_000_000 <= ns < 100_000_000 for ns in facts["plain_step_ns"])
    assert facts["plain_step_median_ns"] == sorted(facts["plain_step_ns"])[1]
    assert len(facts["recorded_step_ns"]) == 2


def test_the_result_is_bit_identical_with_and_without_a_recording(tmp_path):
    losses, weights = train(None, 9)
    with record(tmp_path, wait=1, warmup=1, steps=3, repeat=2, stacks=True) as recording:
        recorded_losses, recorded_weights = train(recording, 9)
    assert losses == recorded_losses
    assert all(torch.equal(a, b) for a, b in zip(weights, recorded_weights, strict=True))


CASE_61 = load_case("61_schedule_never_stepped_rec")


@pytest.mark.parametrize(("options", "steps", "calls", "fires", "recorded"), CASE_61.CASES)
def test_case_61_one_file_a_cycle_and_a_warning_when_there_is_none(
    tmp_path, options, steps, calls, fires, recorded
):
    options = dict(options)
    options["steps"] = options.pop("active")
    options.setdefault("repeat", 0)  # as the case's own schedule has it
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with record(tmp_path / "run", shapes=False, **options) as recording:
            for _ in range(steps):
                if calls:
                    recording.step()
    assert len(recording.files) == len(set(recording.files)) == fires
    assert len(list(recording.folder.glob("trace*.json.gz"))) == fires
    traced = [
        int(name.split("#")[1])
        for path in recording.files
        for name in names_of(path)
        if name.startswith("ProfilerStep#")
    ]
    assert sorted(traced) == recorded
    messages = " ".join(str(warning.message) for warning in caught)
    if fires == 0:
        needs = f"{options['wait']}+{options['warmup']}+{options['steps']}"
        called = steps if calls else 0
        assert (
            f"no trace was written: step() was called {called} times, the schedule needs {needs}" in messages
        )
    incomplete = [cycle for cycle in run_file(recording)["traces"] if not cycle["complete"]]
    assert bool(incomplete) == ("the last trace holds" in messages), "an empty trace is no success"


def test_case_63_exports_once_warns_when_refused_and_restarts(tmp_path, monkeypatch):
    case = load_case("63_export_once_rec")

    def adapt(make):
        def decorate(function):
            def call(*args):
                monkeypatch.setattr(torch_profiler, "make_profile", lambda *_: Exporting(make()))
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    try:
                        return record(tmp_path / "run")(function)(*args)
                    finally:
                        case.WARN.extend(str(warning.message) for warning in caught)

            return call

        return decorate

    class Exporting:
        """The case's profiler, which also leaves a file as torch does."""

        def __init__(self, fake):
            self.start, self.stop, self.fake = fake.start, fake.stop, fake

        def export_chrome_trace(self, path):
            self.fake.export_chrome_trace(path)
            with open(path, "w") as file:  # noqa: PTH123
                file.write("{}")

    case.check(adapt)


class TestNested:
    def test_an_inner_recording_is_left_out(self, tmp_path):
        with record(tmp_path / "outer", steps=None) as outer:
            with (
                pytest.warns(UserWarning, match="runs already in this process"),
                record(tmp_path / "inner", steps=None) as inner,
            ):
                train(inner, 1)
            train(None, 1)
        assert inner.folder is None
        assert not (tmp_path / "inner").exists()
        assert names_of(outer.files[0]).count("profkit::forward") == 2

    def test_a_profiler_of_someone_else_stays_untouched(self, tmp_path):
        with torch.profiler.profile() as theirs:
            with (
                pytest.warns(UserWarning, match="own torch profiler was first"),
                record(tmp_path, steps=None) as recording,
            ):
                train(recording, 1)
            train(None, 1)
        assert recording.files == []
        assert sum(event.name == "profkit::forward" for event in theirs.events()) == 2


class TestFolders:
    def test_a_second_recording_goes_beside_the_first(self, tmp_path):
        for _ in range(2):
            with record(tmp_path / "today", wait=0, warmup=0, steps=1) as recording:
                train(recording, 1)
        assert recording.folder == tmp_path / "today-2"
        assert (tmp_path / "today" / "trace.json.gz").exists()
        assert (tmp_path / "today-2" / "trace.json.gz").exists()

    def test_an_unwritable_folder_is_one_warning(self, tmp_path):
        (tmp_path / "file").touch()
        expected = train(None, 2)[0]
        with (
            pytest.warns(UserWarning, match="nothing is recorded into") as told,
            record(tmp_path / "file" / "run", wait=0, warmup=0, steps=1) as recording,
        ):
            assert train(recording, 2)[0] == expected
        assert len(told) == 1
        assert recording.files == []

    def test_files_are_named_by_rank_and_other_ranks_stay_silent(self, tmp_path, monkeypatch):
        monkeypatch.setenv("WORLD_SIZE", "2")
        for rank in ("0", "1"):
            monkeypatch.setenv("RANK", rank)
            with record(tmp_path, wait=0, warmup=0, steps=1, ranks=[1]) as recording:
                train(recording, 1)
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == ["run_rank1.json", "trace_rank1.json.gz"]

    def test_nothing_partial_is_left_behind(self, tmp_path, monkeypatch):
        def fail(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("profkit.recording.files._compress", fail)
        with (
            pytest.warns(UserWarning, match="No space left"),
            record(tmp_path, wait=0, warmup=0, steps=1) as recording,
        ):
            train(recording, 1)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "trace.json"]
        assert "profkit::forward" in (tmp_path / "trace.json").read_text(), "what was recorded is kept"
        assert recording.files == [tmp_path / "trace.json"]


def script(tmp_path, body):
    path = tmp_path / "program.py"
    path.write_text(
        "import sys, os, torch, warnings\nfrom profkit.recording.recorder import record\n"
        "from profkit.recording.phases import phase\n"
        "def work():\n"
        "    with phase('forward'): torch.ones(50, 50).mm(torch.ones(50, 50)).sum().item()\n"
        + textwrap.dedent(body)
    )
    return [sys.executable, str(path), str(tmp_path / "run")]


@pytest.mark.slow
def test_a_full_disk_is_one_warning_and_the_program_goes_on(tmp_path):
    command = script(
        tmp_path,
        """
        with record(sys.argv[1], wait=0, warmup=0, steps=2) as recorder:
            for _ in range(3):
                for _ in range(20): work()
                recorder.step()
        print("trained")
        """,
    )
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))  # noqa: E731
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, preexec_fn=limit, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained\n"
    assert done.stderr.count("RecordingWarning") == 1
    assert "cut short: is the disk full?" in done.stderr
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_recorded(tmp_path):
    command = script(
        tmp_path,
        """
        import time
        with record(sys.argv[1], wait=0, warmup=1, steps=1000) as recorder:
            while True:
                work(); recorder.step()
                if recorder._step == 5: print("ready", flush=True)
                time.sleep(0.01)
        """,
    )
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode in (1, -signal.SIGINT)
    assert "KeyboardInterrupt" in stderr
    names = names_of(tmp_path / "run" / "trace.json.gz")
    assert names.count("profkit::forward") >= 4
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["state"] == "ended by KeyboardInterrupt"
    assert facts["traces"][0]["complete"] is False


@pytest.mark.slow
def test_forked_workers_neither_record_nor_break_the_recording(tmp_path):
    command = script(
        tmp_path,
        """
        class Data(torch.utils.data.Dataset):
            def __len__(self): return 8
            def __getitem__(self, index):
                with phase("worker"):
                    recorder.step()
                    return torch.full((2,), float(index))
        with record(sys.argv[1], wait=0, warmup=0, steps=9) as recorder:
            loader = torch.utils.data.DataLoader(Data(), num_workers=2, multiprocessing_context="fork")
            for batch in loader:
                work(); recorder.step()
            child = os.fork() == 0
            if not child:
                os.wait()
                work(); recorder.step()
        if child:
            os._exit(0)  # it has left the block too, in the midst of the recording
        print(recorder.problems)
        """,
    )
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["run.json", "trace.json.gz"]
    names = names_of(tmp_path / "run" / "trace.json.gz")
    assert names.count("profkit::forward") == 9
    assert "profkit::worker" not in names


class FakeMemory:
    """torch's CUDA memory functions on a machine without a GPU."""

    def __init__(self, monkeypatch):
        self.calls, self.on, self.observers = [], False, []
        memory = torch.cuda.memory
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "init", lambda: None)
        monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: self.on, raising=False)
        monkeypatch.setattr(memory, "_record_memory_history", self.switch)
        monkeypatch.setattr(memory, "_snapshot", lambda: {"segments": [], "device_traces": [[]]})
        attach = self.observers.append
        monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", attach, raising=False)
        monkeypatch.setattr(memory_history, "_observing", False)
        monkeypatch.setattr(torch_profiler, "make_profile", lambda *_: FakeProfile())

    def switch(self, enabled="all", stacks="all", max_entries=0, global_record_annotations=False):
        self.on = enabled is not None
        self.calls.append((enabled, max_entries, global_record_annotations))


class FakeProfile:
    def start(self): ...
    def step(self): ...
    def stop(self): ...
    def export_chrome_trace(self, path):
        with open(path, "w") as file:  # noqa: PTH123
            file.write("{}")


class TestMemory:
    def test_without_a_gpu_it_is_one_warning_and_the_trace_is_kept(self, tmp_path):
        with (
            pytest.warns(UserWarning, match="memory history is left out: there is no CUDA device") as told,
            record(tmp_path, wait=0, warmup=0, steps=1, memory=True) as recording,
        ):
            train(recording, 2)
        assert len(told) == 1
        assert [path.name for path in recording.files] == ["trace.json.gz"]

    def test_the_history_is_bounded_annotated_and_off_again(self, tmp_path, monkeypatch):
        fake = FakeMemory(monkeypatch)
        with record(tmp_path, wait=1, warmup=1, steps=1, memory=True) as recording:
            seen = []
            for _ in range(4):
                seen.append(fake.on)
                recording.step()
        assert seen == [False, True, True, False], "off while the plain step time is measured"
        assert fake.calls == [("all", memory_history.MAX_ENTRIES, True), (None, 0, False)]
        content = (tmp_path / "memory.pickle").read_bytes()
        assert content[:2] == b"\x80\x04", "pickle protocol 4"
        assert pickle.loads(content) == {"segments": [], "device_traces": [[]]}

    def test_a_torch_without_annotations_is_not_asked_for_them(self, tmp_path, monkeypatch):
        fake = FakeMemory(monkeypatch)
        plain = lambda enabled="all", stacks="all", max_entries=0: fake.calls.append(enabled)  # noqa: E731
        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", plain)
        with record(tmp_path, steps=None, memory=True):
            pass
        assert fake.calls == ["all", None]

    def test_a_history_of_someone_else_is_used_and_left_on(self, tmp_path, monkeypatch):
        fake = FakeMemory(monkeypatch)
        fake.on = True
        with record(tmp_path, steps=None, memory=True) as recording:
            pass
        assert fake.calls == []
        assert [path.name for path in recording.files] == ["memory.pickle", "trace.json.gz"]

    def test_out_of_memory_comes_out_unchanged_and_the_snapshot_is_kept(self, tmp_path, monkeypatch):
        fake = FakeMemory(monkeypatch)
        error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")

        def step(recording):
            fake.observers[0](0, 1 << 30, 1 << 30, 0)  # as the allocator does before it raises
            raise error

        with (
            pytest.raises(torch.OutOfMemoryError) as caught,
            record(tmp_path, wait=0, warmup=0, steps=2, memory=True) as recording,
        ):
            step(recording)
        assert caught.value is error
        assert run_file(recording)["out_of_memory"] == ["memory_oom.pickle"]
        assert run_file(recording)["state"] == "ended by OutOfMemoryError"
        assert (tmp_path / "memory_oom.pickle").stat().st_size > 0

    def test_a_failing_snapshot_does_not_replace_the_program_error(self, tmp_path, monkeypatch):
        fake = FakeMemory(monkeypatch)

        def fail():
            raise OSError("disk full")

        monkeypatch.setattr(torch.cuda.memory, "_snapshot", fail)
        with record(tmp_path, steps=None, memory=True), pytest.warns(UserWarning, match="no snapshot"):
            fake.observers[0](0, 1, 1, 0)

    def test_a_program_that_recovers_again_and_again_leaves_a_few_snapshots(self, tmp_path, monkeypatch):
        fake = FakeMemory(monkeypatch)
        with record(tmp_path, steps=None, memory=True):
            for _ in range(10):
                fake.observers[0](0, 1, 1, 0)
        assert len(list(tmp_path.glob("memory_oom*.pickle"))) == 3
        fake.observers[0](0, 1, 1, 0)
        assert len(list(tmp_path.glob("memory_oom*.pickle"))) == 3, "a recording that is over takes none"


class TestDecorator:
    def test_a_decorated_function_is_recorded_whole(self, tmp_path):
        @record(tmp_path / "run")
        def program(steps):
            return train(None, steps)[0]

        assert program(2) == program(2) == train(None, 2)[0]
        for folder in ("run", "run-2"):
            assert names_of(tmp_path / folder / "trace.json.gz").count("profkit::forward") == 2

    def test_a_decorated_function_may_take_the_recorder(self, tmp_path):
        @record(tmp_path / "run", wait=0, warmup=1, steps=2)
        def program(steps, recorder):
            train(recorder, steps)
            return recorder

        assert names_of(program(4).files[0]).count("profkit::forward") == 2


def test_the_programs_own_error_comes_out_and_the_trace_is_kept(tmp_path):
    error = KeyError("mine")

    def program():
        train(None, 1)
        raise error

    with pytest.raises(KeyError) as caught, record(tmp_path, steps=None) as recording:
        program()
    assert caught.value is error
    assert names_of(recording.files[0]).count("profkit::forward") == 1


def test_warnings_as_errors_do_not_take_the_program_down(tmp_path, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with record(tmp_path, wait=5):
            pass
    assert "no trace was written: step() was called 0 times" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"wait": -1}, {"warmup": 1.5}, {"repeat": True}])
def test_numbers_that_make_no_schedule_are_refused(tmp_path, wrong):
    with pytest.raises(RecordingError, match=next(iter(wrong))):
        record(tmp_path, **wrong)


def test_run_json_names_no_person_place_or_secret(monkeypatch):
    from profkit.recording import environment

    monkeypatch.setattr(environment, "_personal_names", lambda: {"ada", "node17"})
    arguments = "/home/ada/train.py --data=/mnt/ada/set --api-key s3cret --token=abc --lr=0.1"
    arguments += r" --url=tcp://ada@node17:29500 --host node17 C:\Users\ada\x.yaml -v"
    shown = environment.command_line(arguments.split())
    text = " ".join(shown)
    for private in ("ada", "node17", "s3cret", "abc"):
        assert private not in text
    assert shown[0] == "train.py"
    assert "--lr=0.1" in shown
    assert shown[-1] == "-v"


def test_plain_steps_use_cuda_events_where_there_are_any(monkeypatch):
    from profkit.recording.plain_steps import _between_ns

    start = (0, SimpleNamespace(elapsed_time=lambda end: 1.5))
    assert _between_ns(start, (99, SimpleNamespace(synchronize=lambda: None))) == 1_500_000
    assert _between_ns((5, None), (99, None)) == 94


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (["-p", "hunter2", "-x", "1"], ["-p", "***", "-x", "1"]),
        (["-phunter2"], ["-p***"]),
        (["--pw", "hunter2"], ["--pw", "***"]),
        (["--db-pwd=hunter2"], ["--db-pwd=***"]),
        (["--pass", "hunter2"], ["--pass", "***"]),
        (["--passes", "3"], ["--passes", "3"]),
        (["--config", "{'lr': 0.1, 'api_key': 'hunter2'}"], ["--config", "{'lr': 0.1, 'api_key': ***}"]),
        (
            ['--config={"wandb": {"token": "hunter2"}, "b": 2}'],
            ['--config={"wandb": {"token": ***}, "b": 2}'],
        ),
        (['{"auth": {"user": "hunter2"}}'], ['{"auth": ***']),
        (["--header", "Authorization: Bearer hunter2"], ["--header", "Authorization: ***"]),
        (["db.password=hunter2"], ["db.password=***"]),
        (["hf_hunter2hunter2hunter2"], ["***"]),
        (["--lr", "0.1", "--keypoints=5"], ["--lr", "0.1", "--keypoints=***"]),
    ],
)
def test_secrets_are_masked_however_they_are_written(line, shown):
    from profkit.recording import environment

    assert environment.command_line(line) == shown


class Unprintable:
    def __str__(self):
        raise KeyError("mine")

    __repr__ = __str__


@pytest.mark.parametrize("argv", [None, [], [Unprintable(), 3], ["a\x00b", "\ud800"]])
def test_odd_things_of_the_program_are_a_warning_at_most(tmp_path, monkeypatch, argv):
    if argv is None:
        monkeypatch.delattr(sys, "argv")
    else:
        monkeypatch.setattr(sys, "argv", argv)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = record(tmp_path / "run", wait=0, warmup=0, steps=1)
        with run as recording, phase("forward", odd=Unprintable()):
            train(recording, 1)
    assert len(caught) <= 2
    assert run_file(recording)["state"] == "done"
    with (
        pytest.warns(UserWarning, match="nothing is recorded into"),
        record(tmp_path / "a\x00b") as recording,
    ):
        assert recording.folder is None
