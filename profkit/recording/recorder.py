"""`record`: a bounded recording of some training steps, which never hurts the program."""

from __future__ import annotations

import functools
import inspect
import os
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from profkit.errors import RecordingError
from profkit.recording import backends, environment
from profkit.recording.capture_range import CaptureRange
from profkit.recording.files import RunFolder
from profkit.recording.memory_history import MemoryHistory, is_out_of_memory
from profkit.recording.notices import warn
from profkit.recording.nvtx_domain import under_nsys
from profkit.recording.plain_steps import PlainSteps
from profkit.recording.program_events import Kind, listen, unlisten
from profkit.recording.run_facts import describe_environment, first_facts
from profkit.recording.shortfall import shortfall
from profkit.recording.stages import Part, Schedule, Stage, schedule_problem
from profkit.recording.step_ends import Evaluations, StepEnds
from profkit.recording.torch_profiler import TorchProfiler
from profkit.recording.triggers import Trigger, make_trigger

__all__ = ["Recorder", "record", "running"]

P = ParamSpec("P")
R = TypeVar("R")

_active: Recorder | None = None

_MOST_STEP_TIMES = 1000  # of a run that records for ever
_OTHER_THREAD = "a step ended on another thread: start the recording on the one that trains"


def running() -> bool:
    """Whether this process records now."""
    return _active is not None and _active._pid == os.getpid()


@dataclass
class record:
    """Record some training steps into a folder: a context manager that gives a `Recorder`, and a decorator.

    ``wait`` + ``warmup`` + ``steps`` training steps make a cycle; only the last ``steps`` of it are kept.
    Call `Recorder.step` once at the end of every training step. A decorated function is recorded as a whole,
    or, if it takes an argument ``recorder``, gets the recorder and calls ``recorder.step()`` itself.

    Attributes:
        folder: Where the files go; made if missing. A second recording goes beside it (``today-2``).
        wait: Steps without any profiler, whose time is kept for comparison. The first one is not counted.
        warmup: Steps with the profiler on whose events are thrown away.
        steps: Steps to record; None records everything from start to end and needs no `Recorder.step`.
        repeat: Cycles to record, each into its own file; 0 goes on for ever.
        memory: Record the CUDA memory history too, also when memory runs out.
        trace: Record with torch.profiler (under nsys: open the capture range); False leaves the memory alone.
        stacks: Record the Python stack of every operator (slow; the files grow several times).
        shapes: Record the operators' shapes. The default is yes under torch.profiler, and no under nsys,
            where every operator becomes an NVTX range.
        ranks: The ranks of a distributed program that record; None means all.
        capture: Under nsys, open the capture range for the recorded steps; False only marks them.
        every: Record a cycle in every so many steps, for ever; ``wait`` and ``repeat`` follow from it.
        on: Record a cycle when asked: "signal" is SIGUSR2, anything else a file that someone touches. Left out,
            the environment's ``PROFKIT_TRIGGER`` says.
        slower_than: Record a cycle after each step that takes longer than so many seconds.

    Raises:
        RecordingError: The numbers make no schedule.
    """

    folder: str | os.PathLike[str]
    _: KW_ONLY
    wait: int = 2
    warmup: int = 2
    steps: int | None = 3
    repeat: int = 1
    memory: bool = False
    trace: bool = True
    stacks: bool = False
    shapes: bool | None = None
    ranks: Collection[int] | None = None
    capture: bool = True
    every: int | None = None
    on: str | None = None
    slower_than: float | None = None
    _running: list[Recorder] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.every is not None and self.steps is not None:
            self.wait, self.repeat = self.every - self.warmup - self.steps, 0
        problem = schedule_problem(self.wait, self.warmup, self.steps, self.repeat, self.every)
        if problem is not None:
            raise RecordingError("profkit.record", problem, "A cycle is wait + warmup + steps steps")

    def __enter__(self) -> Recorder:
        recorder = Recorder(self)
        self._running.append(recorder)
        recorder.start()
        return recorder

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._running.pop().stop(error)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate a function: each call is a recording of its own."""
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            problem = "cannot decorate a coroutine or generator"
            raise RecordingError(
                "profkit.record", problem, "Use it within: with profkit.record(...) as recorder:"
            )
        given = "recorder" in inspect.signature(function).parameters
        options = self if given else record(self.folder, steps=None, **self._content())

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with options as recorder:
                if given:
                    kwargs.setdefault("recorder", recorder)
                return function(*args, **kwargs)

        return call

    @property
    def schedule(self) -> Schedule:
        """The schedule that the options ask for."""
        if self.on_request and self.steps is not None:
            return Schedule(
                wait=0, warmup=self.warmup, steps=self.steps, repeat=0, on_request=True, begin=None
            )
        return Schedule(wait=self.wait, warmup=self.warmup, steps=self.steps, repeat=self.repeat)

    @property
    def on_request(self) -> bool:
        """Whether something outside of the schedule asks for each cycle."""
        return bool(self.on or os.environ.get("PROFKIT_TRIGGER")) or self.slower_than is not None

    def _content(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("memory", "trace", "stacks", "shapes", "ranks")}


class Recorder:
    """A recording under way. What goes wrong in it is told once, and the program goes on.

    Attributes:
        folder: Where the files are; None when nothing is recorded (another rank, an unwritable folder...).
        problems: What was told.
        phases: The names of the phases that were recorded.
        stopping: Whether what was recorded is being written.
        heard: Where hooks tell of the steps, how often they heard what.
        on_stage: Called when a step of another stage begins.
        when_done: Called when the schedule is over and everything is written, outside of the program's ranges.
    """

    def __init__(self, options: record) -> None:
        self._options = options
        self._schedule = options.schedule
        self._folder: RunFolder | None = None
        self._parts: list[Part] = []
        self._torch: TorchProfiler | None = None
        self._memory: MemoryHistory | None = None
        self._plain: PlainSteps | None = None
        self._facts: dict[str, Any] = {}
        self._step = 0
        self._pid = os.getpid()
        self._stopped = self.stopping = self._by_hooks = False
        self._trigger: Trigger | None = None
        self.phases: set[str] = set()
        self.heard: Mapping[str, int] | None = None
        self.on_stage: Callable[[Stage], object] = bool  # nobody follows
        self.when_done: Callable[[], object] | None = None
        self._active_ns: list[int] = []
        self._step_began_ns = 0
        self._left_ns: int | None = None
        self._ends = StepEnds(self._advance, lambda: self.stage is Stage.WAIT, self._leave_step)
        self._evaluations = Evaluations(self._ends)
        self.problems: list[str] = []

    @property
    def folder(self) -> Path | None:
        """Where the files are; None when nothing is recorded."""
        return self._folder.path if self._folder else None

    @property
    def files(self) -> list[Path]:
        """The recordings that were written so far."""
        return list(self._folder.files) if self._folder else []

    def step(self) -> None:
        """Tell that a training step is over. Within backward, it ends as soon as backward does."""
        if self.recording_here and not self._ends.end():
            self._tell_once(_OTHER_THREAD)

    def step_heard(self) -> None:
        """Tell that a hook has heard a training step end: it ends outside of the program's ranges."""
        self._by_hooks = True
        if self.recording_here and not self._ends.end_outside():
            self._tell_once(_OTHER_THREAD)

    @property
    def stage(self) -> Stage:
        """What the step that runs now is for."""
        return self._schedule.stage(self._step)

    @property
    def recording_here(self) -> bool:
        """Whether this process records: not a rank that was not chosen, nor a forked worker of the program."""
        return self._folder is not None and os.getpid() == self._pid and not self._stopped

    def phase_opened(self, name: str) -> None:
        """A phase begins."""
        self.phases.add(name)
        self._ends.entered(Kind.RANGE, None)

    def phase_closed(self) -> None:
        """A phase has ended."""
        self._ends.left(Kind.RANGE, None)

    def _advance(self) -> None:
        """End the step that runs, and begin the next."""
        took_ns = (self._left_ns or time.perf_counter_ns()) - self._step_began_ns
        self._left_ns = None
        if self._trigger is not None and self.stage is Stage.WAIT and self._trigger.fired(took_ns):
            self._schedule.begin = self._step + 1
        stage, following = self._schedule.stage(self._step), self._schedule.stage(self._step + 1)
        if stage is Stage.ACTIVE and len(self._active_ns) < _MOST_STEP_TIMES:
            self._active_ns.append(took_ns)
        for part in list(self._parts):
            self._try(part, functools.partial(part.step, self._step, stage, following))
        if self._schedule.ends_cycle(self._step):
            self._write_facts("running")
        backends.warm_up(on=following is Stage.WARMUP)
        if following is Stage.DONE:
            self._hear_no_more()
        elif not self._step:
            listen(self._evaluations)  # the program has imported by now what trains it
        self._step += 1
        if following is not stage:
            self.on_stage(following)
        self._step_began_ns = time.perf_counter_ns()
        if following is Stage.DONE and self.when_done is not None:
            self.stop()
            self.when_done()

    def _leave_step(self) -> None:
        """End the step that runs before the next begins, for what lies between steps."""
        if self.stage is not Stage.WAIT and self._schedule.stage(self._step + 1) in (Stage.WAIT, Stage.DONE):
            self._ends.finish()
            return
        self._left_ns = None if self.stage is Stage.WAIT else time.perf_counter_ns()
        for part in list(self._parts):
            self._try(part, part.leave_step)

    def start(self) -> None:
        """Start recording, as far as it is possible here."""
        global _active
        rank, world = environment.rank_and_world()
        if self._options.ranks is not None and (rank or 0) not in self._options.ranks:
            return
        if running():
            self._tell("a recording runs already in this process, so the inner one is left out")
            return
        try:
            import torch  # noqa: F401 - a recording without torch is one of NVTX phases only

            self._folder = RunFolder(Path(self._options.folder), rank)
        except (ImportError, OSError, ValueError) as error:  # ValueError: a NUL in the name
            self._tell(f"nothing is recorded into {self._options.folder!r}: {error}")
            return
        _active = self
        self._facts = first_facts(self._options, rank, world)
        self._listen_for_requests()
        self._write_facts("running")
        backends.follow(self)
        listen(self._ends)
        self._make_parts(self._folder)
        backends.warm_up(on=self.stage is Stage.WARMUP)
        for part in list(self._parts):
            self._try(part, functools.partial(part.start, self.stage))
        self._step_began_ns = time.perf_counter_ns()

    def stop(self, error: BaseException | None = None, cause: str | None = None) -> None:
        """Stop, and keep what was recorded; ``error`` or ``cause`` is the program's own, if it ends by one."""
        if not self.recording_here:
            return
        self._stopped = self.stopping = True
        try:
            self._finish(error, cause)
        finally:
            self.stopping = False

    def _finish(self, error: BaseException | None, cause: str | None) -> None:
        global _active
        self._ends.finish()
        memory = self._memory
        if memory is not None and memory in self._parts and is_out_of_memory(error) and not memory.oom_files:
            self._try(memory, memory.out_of_memory)
        try:
            for part in list(self._parts):
                self._try(part, functools.partial(part.stop, self.stage))
        finally:
            self._hear_no_more()
            _active = None
        self._tell_what_is_missing()
        cause = type(error).__name__ if error is not None else cause
        self._write_facts("done" if cause is None else f"ended by {cause}")

    def _listen_for_requests(self) -> None:
        if self._schedule.on_request:
            try:
                on = self._options.on or os.environ.get("PROFKIT_TRIGGER")
                self._trigger = make_trigger(on, self._options.slower_than)
            except ValueError as error:  # signals are the main thread's
                self._tell(f"no request is heard ({error}): start on the main thread, or ask by a file")

    def _hear_no_more(self) -> None:
        if self._trigger is not None:
            self._trigger.close()
        backends.follow(None)
        unlisten(self._ends)
        unlisten(self._evaluations)

    def _make_parts(self, folder: RunFolder) -> None:
        options = self._options
        if not under_nsys():
            self._plain = PlainSteps()
            self._parts.append(self._plain)
        if options.memory:
            self._memory = MemoryHistory(folder, stacks=options.stacks)
            self._parts.append(self._memory)
        if options.trace and under_nsys():
            self._parts.append(CaptureRange(opens=options.capture, shapes=bool(options.shapes)))
        elif options.trace:
            self._make_profiler(folder, options)

    def _make_profiler(self, folder: RunFolder, options: record) -> None:
        wanted = {
            "record_shapes": options.shapes is not False,
            "with_stack": options.stacks,
            "profile_memory": options.memory,
        }
        try:
            self._torch = TorchProfiler(self._schedule, folder, wanted, self._tell)
        except (ImportError, RuntimeError, AssertionError) as error:
            self._tell(f"torch.profiler is left out: {error}")
        else:
            self._parts.append(self._torch)

    def _try(self, part: Part, act: Callable[[], None]) -> None:
        """Let a part act; one that fails is left out from then on."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - a recording never takes the program down
            self._parts.remove(part)
            self._tell(f"{part.name} is left out: {str(error) or type(error).__name__}")

    def _tell(self, problem: str) -> None:
        self.problems.append(problem)
        warn(problem)

    def _tell_once(self, problem: str) -> None:
        if problem not in self.problems:
            self._tell(problem)

    def _tell_what_is_missing(self) -> None:
        if self._torch is None and not under_nsys():
            return
        if not self._step and self._folder is not None and self._folder.has_followers():
            return  # a process that this one has started records
        cycles = self._torch.cycles if self._torch else []
        asked_by = self._trigger.asked_by if self._trigger else None
        hooks = self._by_hooks or self.heard is not None
        missing = shortfall(self._schedule, self._step, cycles, asked_by, by_hooks=hooks, heard=self.heard)
        if missing is not None:
            self._tell(missing)

    def _write_facts(self, state: str) -> None:
        plain = self._plain.times_ns() if self._plain and (state != "running" or self.files) else []
        facts = self._facts | {
            "state": state,
            **(describe_environment(self._tell_once) if state != "running" or self.files else {}),
            "plain_step_ns": plain,
            "plain_step_median_ns": round(statistics.median(plain)) if plain else None,
            "recorded_step_ns": self._active_ns,
            "steps_called": self._step,
            "traces": self._torch.cycles if self._torch else [],
            "out_of_memory": self._memory.oom_files if self._memory else [],
            "files": [path.name for path in self.files],
            "phases": sorted(self.phases),
            "problems": self.problems,
        }
        try:
            self._folder.describe(facts)  # type: ignore[union-attr]
        except Exception as error:  # noqa: BLE001 - a recording never takes the program down
            self._tell(f"run.json was not written: {error}")
