"""profkit.recording.phases: one mark, balanced whatever the marked code does."""

import asyncio
import contextlib
import gc
import importlib.util
import inspect
import json
import os
import pickle
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from profkit.errors import RecordingError
from profkit.recording import backends, phases
from profkit.recording.phases import phase
from tests.shared import DATA

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")


def load_case(name):
    spec = importlib.util.spec_from_file_location(name, DATA / "cases" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FakeDomain:
    """An NVTX domain whose ranges go to ``nvtx``: range_push, range_pop, range_start, range_end by name."""

    def __init__(self, nvtx):
        self.nvtx = nvtx

    def get_event_attributes(self, message, color, payload):
        return SimpleNamespace(message=message, color=color, payload=payload)

    def push_range(self, event):
        self.nvtx.range_push(event.message)

    def pop_range(self):
        self.nvtx.range_pop()

    def start_range(self, event):
        return self.nvtx.range_start(event.message)

    def end_range(self, handle):
        self.nvtx.range_end(handle)


@pytest.fixture
def nvtx(monkeypatch):
    """The fake back end of case 60, attached."""
    fake = load_case("60_nvtx_balance_rec").FakeNvtx()
    monkeypatch.setattr(backends, "_domain", FakeDomain(fake))
    backends._event.cache_clear()
    yield fake
    backends._event.cache_clear()
    assert fake.open_ranges() == 0
    assert fake.errors == 0


def recorded(run):
    """Names of the user annotations that torch.profiler sees while ``run`` runs, in order."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        run()
    events = sorted(profiler.events(), key=lambda event: event.time_range.start)
    return [event.name for event in events if "profkit" in event.name]


def test_case_60_every_push_has_its_pop(nvtx):
    case = load_case("60_nvtx_balance_rec")
    assert case.scenario(phase, nvtx) == case.EXPECT_SEEN
    assert case.check(nvtx) == []


def test_exceptions_leave_unchanged_and_close_the_phase(nvtx):
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught, phase("outer"):
        raise error
    assert caught.value is error
    assert [entry[:2] for entry in nvtx.log] == [("push", "outer"), ("pop", "outer")]


def test_nothing_is_opened_outside_a_recording(monkeypatch):
    def fail(*_):
        raise AssertionError("opened a phase although nothing records")

    monkeypatch.setattr(phases, "open_marks", fail)
    monkeypatch.setattr(phases, "open_annotation", fail)
    with phase("quiet"):
        assert phase("also")(lambda: 7)() == 7
        assert list(phase("gen")(lambda: (yield 1))()) == [1]


def test_the_annotation_carries_the_mark_and_nests():
    @phase
    def forward():
        with phase("loss"):
            torch.ones(2).sum()

    assert recorded(forward) == ["profkit::forward", "profkit::loss"]


def test_recursion_opens_one_range_a_call(nvtx):
    shared = phase("shared")

    def descend(depth):
        with shared:
            if depth:
                descend(depth - 1)

    descend(3)
    assert [entry[0] for entry in nvtx.log] == ["push"] * 4 + ["pop"] * 4
    assert shared._open == []


def test_threads_share_a_phase_object_without_closing_each_other(nvtx):
    shared = phase("shared")
    inside, leave = threading.Barrier(5), threading.Event()

    def work():
        with shared:
            inside.wait(5)
            leave.wait(5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    inside.wait(5)
    assert nvtx.open_ranges() == 4
    leave.set()
    for thread in threads:
        thread.join()


def test_a_recording_that_ends_within_a_phase_keeps_later_uses_in_step(nvtx, monkeypatch):
    shared = phase("shared")
    domain = backends._domain
    with shared:
        monkeypatch.setattr(backends, "_domain", None)
        with shared:
            pass
        assert nvtx.open_ranges() == 1, "the inner, unrecorded use closed the outer range"
        monkeypatch.setattr(backends, "_domain", domain)


def test_a_with_block_in_a_coroutine_is_a_start_end_range(nvtx):
    async def work(tag, seconds):
        with phase(tag):
            await asyncio.sleep(seconds)

    async def both():
        await asyncio.gather(work("a", 0.01), work("b", 0.0))

    asyncio.run(both())
    assert [entry[:2] for entry in nvtx.log] == [("start", "a"), ("start", "b"), ("end", "b"), ("end", "a")]


class TestSuspendedFunctions:
    def test_generators_keep_send_throw_close_and_return(self, nvtx):
        closed = []

        @phase("gen")
        def echo():
            got = None
            try:
                while got != "stop":
                    try:
                        got = yield got
                    except KeyError as error:
                        got = f"caught {error.args[0]}"
            finally:
                closed.append(True)
            return "returned"

        def outer():
            return (yield from echo())

        source = outer()
        assert next(source) is None
        assert source.send(5) == 5
        assert source.throw(KeyError("k")) == "caught k"
        with pytest.raises(StopIteration) as stop:
            source.send("stop")
        assert stop.value.value == "returned"
        assert closed == [True]
        assert [entry[0] for entry in nvtx.log] == ["start", "end"]

    def test_an_abandoned_generator_is_closed_when_it_is_collected(self, nvtx):
        @phase("gen")
        def numbers():
            yield 1
            yield 2

        source = numbers()
        next(source)
        del source
        gc.collect()
        assert [entry[0] for entry in nvtx.log] == ["start", "end"]

    def test_the_annotation_is_open_only_while_the_generator_runs(self):
        @phase("data")
        def batches():
            for _ in range(3):
                torch.zeros(1)
                yield

        def loop():
            for _ in batches():
                with phase("forward"):
                    torch.ones(1)

        assert recorded(loop) == ["profkit::data", "profkit::forward"] * 3 + ["profkit::data"]

    def test_a_generator_begun_before_the_recording_is_recorded(self):
        @phase("data")
        def batches():
            yield 1
            yield 2

        source = batches()
        next(source)
        assert recorded(lambda: next(source)) == ["profkit::data"]

    def test_interleaved_coroutines_return_and_raise_as_before(self):
        @phase("coro")
        async def work(value, delay):
            await asyncio.sleep(delay)
            if value < 0:
                raise ValueError(value)
            return value

        async def main():
            return await asyncio.gather(work(1, 0.01), work(-2, 0.0), work(3, 0.0), return_exceptions=True)

        def run():
            results = asyncio.run(main())
            assert results[0] == 1
            assert isinstance(results[1], ValueError)
            assert results[2] == 3

        assert set(recorded(run)) == {"profkit::coro"}

    def test_a_cancelled_coroutine_sees_its_cancellation(self, nvtx):
        seen = []

        @phase("coro")
        async def work():
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        async def main():
            task = asyncio.ensure_future(work())
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert seen == ["cancelled"]

    def test_asynchronous_generators_keep_asend_athrow_and_aclose(self, nvtx):
        closed = []

        @phase("agen")
        async def echo():
            got = 0
            try:
                while True:
                    try:
                        await asyncio.sleep(0)
                        got = yield got
                    except KeyError:
                        got = "caught"
            finally:
                closed.append(True)

        async def main():
            source = echo()
            assert await source.asend(None) == 0
            assert await source.asend(4) == 4
            assert await source.athrow(KeyError()) == "caught"
            await source.aclose()
            assert [item async for item in phase("short")(aiter_of)(2)] == [0, 1]

        asyncio.run(main())
        assert closed == [True]


async def aiter_of(count):
    for item in range(count):
        yield item


def test_every_kind_of_method_can_be_marked():
    class Model:
        @phase
        def forward(self, x):
            """Doc."""
            return ("forward", x)

        @phase("class")
        @classmethod
        def build(cls, x):
            return (cls.__name__, x)

        @classmethod
        @phase("class inside")
        def rebuild(cls, x):
            return (cls.__name__, x)

        @phase("static")
        @staticmethod
        def norm(x):
            return x

    assert Model().forward(1) == ("forward", 1)
    assert Model.build(2) == Model.rebuild(2) == ("Model", 2)
    assert Model.norm(3) == Model().norm(3) == 3
    assert Model.forward.__doc__ == "Doc."


def test_signatures_and_kinds_are_kept():
    def plain(a, b: int = 2, *, c) -> str: ...
    async def coroutine(a): ...
    def generator(a):
        yield a

    for function in (plain, coroutine, generator, aiter_of):
        marked = phase("x")(function)
        assert inspect.signature(marked) == inspect.signature(function)
        assert marked.__name__ == function.__name__
    assert inspect.iscoroutinefunction(phase(coroutine))
    assert inspect.isgeneratorfunction(phase(generator))
    assert inspect.isasyncgenfunction(phase(aiter_of))


@phase("picklable")
def module_level():
    return 1


def test_a_marked_function_can_be_sent_to_another_process():
    assert pickle.loads(pickle.dumps(module_level))() == 1


def test_what_cannot_be_marked_says_so():
    for wrong in (3, object(), int):
        with pytest.raises(RecordingError, match="cannot mark"):
            phase(wrong)


def test_attributes_reach_nvtx_as_the_payload(nvtx, monkeypatch):
    events = []
    monkeypatch.setattr(FakeDomain, "push_range", lambda self, event: events.append(event))
    monkeypatch.setattr(FakeDomain, "pop_range", lambda self: None)
    with phase("forward", note="text", micro_batch=3):
        pass
    assert events[0].payload == 3
    assert events[0].color == backends._COLOURS["forward"]


def test_a_broken_back_end_warns_once_and_the_program_goes_on(nvtx, monkeypatch):
    def broken(self, event):
        raise OSError("tool went away")

    monkeypatch.setattr(FakeDomain, "push_range", broken)
    monkeypatch.setattr(backends, "_warned", False)
    marked = phase("forward")(lambda: 7)
    with pytest.warns(UserWarning, match="tool went away") as warned:
        assert [marked(), marked(), marked()] == [7, 7, 7]
    assert len(warned) == 1


@pytest.mark.parametrize("on", [False, True])
def test_torch_compile_fullgraph_finds_no_break(on):
    torch._dynamo.reset()

    @phase("decorated")
    def inner(x):
        return x * 2

    def step(x):
        with phase("block", n=1):
            return inner(x).sin()

    compiled = torch.compile(step, fullgraph=True, backend="eager")
    x = torch.arange(4.0)
    with torch.profiler.profile() if on else contextlib.nullcontext():
        assert torch.equal(compiled(x), step(x))
        assert torch.equal(compiled(x + 1), step(x + 1))
    explained = torch._dynamo.explain(step)(x)
    assert explained.graph_break_count == 0


def test_torch_export_and_jit_trace_get_no_annotation_in_their_graphs():
    class Model(torch.nn.Module):
        @phase
        def forward(self, x):
            with phase("inner"):
                return x + 1

    with torch.profiler.profile():
        exported = torch.export.export(Model(), (torch.ones(2),), strict=False)
    assert "record_function" not in str(exported.graph)


def run_python(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_phases_imports_nothing_heavy():
    out = run_python(
        "import sys, time; began = time.perf_counter(); import profkit.recording.phases as phases\n"
        "with phases.phase('x'): pass\n"
        "heavy = {'torch', 'nvtx', 'numpy', 'pandas', 'plotly'} & set(sys.modules)\n"
        "print(sorted(heavy), time.perf_counter() - began)"
    )
    heavy, seconds = out.rsplit(" ", 1)
    assert heavy == "[]"
    assert float(seconds) < 0.05 * 3, "measured 12 ms; the limit is 50 ms on a quiet machine"


@pytest.mark.slow
def test_torch_may_be_imported_after_the_first_phase():
    out = run_python(
        "from profkit.recording.phases import phase\n"
        "with phase('early'): pass\n"
        "import torch, json\n"
        "with torch.profiler.profile() as p:\n"
        "    with phase('late'): torch.ones(1)\n"
        "print(json.dumps([e.name for e in p.events()]))"
    )
    assert "profkit::late" in json.loads(out.splitlines()[-1])


def test_a_forked_child_asks_no_device(monkeypatch):
    monkeypatch.setattr(backends, "_history_on", True)
    pid = os.fork()
    if pid == 0:
        try:
            with phase("child"):
                pass
            status = 0 if not backends.recording() else 3
        except BaseException:  # noqa: BLE001 - a forked child must never return into pytest
            status = 4
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_an_active_memory_history_is_a_recording():
    """The switch is torch's C function, which a machine without CUDA lacks; torch's own Python calls it."""
    out = run_python(
        "import torch, contextlib\n"
        "torch._C._cuda_record_memory_history = lambda *args: None\n"
        "from profkit.recording import backends, phases\n"
        "opened = []\n"
        "def show():\n"
        "    with phases.phase('forward'): pass\n"
        "show()\n"
        "enter = lambda name, text: opened.append(name) or name\n"
        "backends._operators = lambda: (enter, lambda handle: None, contextlib.nullcontext)\n"
        "switch = torch.cuda.memory._record_memory_history\n"
        "switch('all'); show(); switch(None); show()\n"
        "print(opened)"
    )
    assert out == "['profkit::forward']\n"


def test_nsys_hears_of_the_work_that_a_phase_declares(nvtx, monkeypatch):
    pushed = []
    monkeypatch.setattr(
        FakeDomain,
        "push_range",
        lambda self, event: pushed.append(event.message) or nvtx.range_push(event.message),
    )
    with phase("weighted_sum", flop=8, bytes=64), phase("inner", note=1):
        pass
    assert pushed == ["weighted_sum", "profkit.work flop=8 bytes=64", "inner"]
