"""Steps end outside of the program's ranges and of backward, and beside the program's own profilers."""

import gzip
import json
import threading
import warnings

import pytest

from profkit.recording import program_events
from profkit.recording.phases import phase
from profkit.recording.program_events import Kind
from profkit.recording.recorder import record
from profkit.recording.run_script import recorded

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")


@pytest.fixture(autouse=True)
def nothing_left():
    before = torch.autograd.backward, torch.autograd.profiler.record_function.__enter__
    profile = dict(vars(torch.autograd.profiler.profile))
    yield
    assert not torch.autograd.profiler._is_profiler_enabled
    assert (torch.autograd.backward, torch.autograd.profiler.record_function.__enter__) == before
    left = {
        name for name, value in vars(torch.autograd.profiler.profile).items() if profile[name] is not value
    }
    assert left <= {"export_chrome_trace"}
    assert not any(program_events._listeners.values())


def spans(path):
    """Annotations and operators of the host: name, start, end in microseconds."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    wanted = ("user_annotation", "cpu_op")
    return [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") in wanted]


def steps_of(path):
    return sorted((name, start, end) for name, start, end in spans(path) if name.startswith("ProfilerStep#"))


def loop(steps, step_done, *, within=None):
    """A loop whose optimizer runs in a range of the program; ``step_done`` is called by the optimizer's hook."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.register_step_post_hook(lambda *_: step_done())
    losses = []
    for _ in range(steps):
        loss = model(torch.randn(8, 64)).square().mean()
        loss.backward()
        with (
            within() if within else torch.profiler.record_function("mine"),
            torch.profiler.record_function("update"),
        ):
            optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("within", [lambda: phase("optimizer"), None])
def test_a_step_that_a_hook_ends_ends_outside_of_every_range(tmp_path, within):
    expected = loop(7, lambda: None)
    with record(tmp_path, wait=1, warmup=1, steps=3) as recorder:
        assert loop(7, lambda: recorder.step_heard(), within=within) == expected
    assert recorder.problems == []
    (trace,) = recorder.files
    marks = steps_of(trace)
    assert [name for name, _, _ in marks] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    last = marks[-1][2]
    assert [name for name, start, end in spans(trace) if end > last] == [], (
        "the recorder's own work is in no range"
    )
    name = "profkit::optimizer" if within else "mine"
    inside = [(start, end) for each, start, end in spans(trace) if each == name]
    assert len(inside) == 3
    assert all(a <= start and end <= b for (start, end), (_, a, b) in zip(sorted(inside), marks, strict=True))


def test_what_the_loop_does_behind_the_optimizer_is_of_its_step(tmp_path):
    with recorded({"folder": str(tmp_path), "wait": 1, "warmup": 1, "steps": 3}) as recorder:
        loop(8, lambda: None)
    (trace,) = recorder.files
    read = [start for name, start, _ in spans(trace) if name == "aten::item"]
    optimized = [end for name, _, end in spans(trace) if name == "profkit::optimizer"]
    for (_, start, end), done in zip(steps_of(trace), sorted(optimized), strict=True):
        assert max(at for at in read if start <= at <= end) > done, "the loss is read last"


def test_a_range_around_many_steps_does_not_hold_their_ends_up(tmp_path):
    with record(tmp_path, wait=1, warmup=1, steps=2) as recorder, torch.profiler.record_function("epoch"):
        loop(7, lambda: recorder.step_heard())
    assert recorder._step >= 5
    assert len(steps_of(recorder.files[0])) == 2


@pytest.mark.parametrize("unedited", [False, True])
@pytest.mark.parametrize("wait", [0, 1])
def test_a_step_within_backward_ends_after_it(tmp_path, wait, unedited):
    """As programs do that step each parameter's optimizer where its gradient is ready."""

    def train(recorder, steps):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.ones(64))
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def ready(parameter):
            optimizer.step()
            optimizer.zero_grad()
            if recorder is not None:
                recorder.step()

        hook = weight.register_post_accumulate_grad_hook(ready)
        for _ in range(steps):
            (weight * torch.randn(64)).square().sum().backward()
        hook.remove()  # else the optimizer lives on with the weight
        return weight.detach()

    if unedited:
        with recorded({"folder": str(tmp_path), "wait": wait, "warmup": 1, "steps": 2}) as recorder:
            weight = train(None, 6)
    else:
        with record(tmp_path, wait=wait, warmup=1, steps=2) as recorder:
            weight = train(recorder, 6)
    assert torch.equal(weight, train(None, 6))
    assert recorder.problems == []
    first = wait + 1
    assert [name for name, _, _ in steps_of(recorder.files[0])] == [
        f"ProfilerStep#{first}",
        f"ProfilerStep#{first + 1}",
    ]
    (end,) = [end for name, _, end in steps_of(recorder.files[0])[-1:]]
    assert all(stop <= end for _, _, stop in spans(recorder.files[0]))


class TestForeignProfiler:
    def test_one_that_starts_within_the_recording_records_nothing_and_stays_usable(self, tmp_path):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with record(tmp_path / "run", steps=None) as recorder:
                loop(1, lambda: None)
                for _ in range(2):
                    with torch.profiler.profile(profile_memory=True) as theirs:
                        loop(1, lambda: None)
                    theirs.export_chrome_trace(str(tmp_path / "theirs.json"))
                    assert list(theirs.events()) == []
                    assert "Self CPU" not in theirs.key_averages().table()
                loop(1, lambda: None)
        assert json.loads((tmp_path / "theirs.json").read_text()) == {"traceEvents": []}
        assert (
            len(
                [
                    w
                    for w in caught
                    if "its tables and traces are empty: this recording was first" in str(w.message)
                ]
            )
            == 1
        )
        assert [name for name, _, _ in spans(recorder.files[0])].count("update") == 4

    def test_one_with_a_schedule_that_was_first_keeps_the_profiler(self, tmp_path):
        """It is only warming up when the recording's turn comes."""
        schedule = torch.profiler.schedule(wait=0, warmup=3, active=2, repeat=1)
        files = []
        with (
            record(tmp_path, wait=2, warmup=1, steps=1) as recorder,
            torch.profiler.profile(
                schedule=schedule,
                on_trace_ready=lambda p: files.append(p.export_chrome_trace(str(tmp_path / "t.json"))),
            ) as theirs,
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            loop(8, lambda: (theirs.step(), recorder.step_heard()))
        assert recorder.files == []
        (problem,) = recorder.problems
        assert problem.startswith(
            "steps are not traced while another profiler is on: the program's own torch profiler was first"
        )
        assert "Analyze the trace that it writes, or turn it off" in problem
        names = [e["name"] for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"]]
        assert names.count("mine") == 2

    def test_steps_are_traced_once_one_that_was_first_has_ended(self, tmp_path):
        """In a run of several cycles, and in the midst of one."""
        with (
            record(tmp_path, wait=1, warmup=1, steps=2, repeat=2) as recorder,
            warnings.catch_warnings(action="ignore"),
        ):
            with torch.profiler.profile() as theirs:
                loop(2, recorder.step)
            loop(7, recorder.step)
        assert [event.key for event in theirs.key_averages()].count("mine") == 1
        (problem,) = recorder.problems
        assert "was first" in problem
        found = [(each["first_step"], each["steps"], each["complete"]) for each in recorder._torch.cycles]
        assert found == [(3, 1, False), (6, 2, True)]
        for trace, steps in zip(recorder.files, ([3], [6, 7]), strict=True):
            assert [name for name, _, _ in steps_of(trace)] == [f"ProfilerStep#{step}" for step in steps]

    def test_the_legacy_profiler_is_heard_too(self, tmp_path):
        with record(tmp_path, steps=None) as recorder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.profiler.profile() as theirs:
                torch.ones(3).sum()
            assert list(theirs.function_events) == []
        assert "aten::sum" in [name for name, _, _ in spans(recorder.files[0])]


def test_a_program_that_trains_on_another_thread_is_recorded_there(tmp_path):
    with record(tmp_path, wait=1, warmup=1, steps=2) as recorder:
        thread = threading.Thread(target=loop, args=(6, lambda: recorder.step()))
        thread.start()
        thread.join()
    assert len(steps_of(recorder.files[0])) == 2


def test_what_torchscript_compiles_stays_compilable(tmp_path):
    class Loud:
        kinds = (Kind.LOSS,)

        def entered(self, kind, subject): ...
        def left(self, kind, subject, values): ...

    def scripted(x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("scripted"):
            return torch.nn.functional.mse_loss(x, x)

    listener = Loud()
    program_events.listen(listener)
    try:
        with record(tmp_path, steps=None), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.jit.script(scripted)(torch.ones(2)).item() == 0
    finally:
        program_events.unlisten(listener)
