"""`numerics`: what the tensors of a training hold in every so many steps, without waiting for the device."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from profkit.errors import RecordingError
from profkit.model.report_numerics import NumericsFile
from profkit.recording import environment
from profkit.recording.event_marks import plain_module, refuse_no_module
from profkit.recording.files import RunFolder, write_whole
from profkit.recording.notices import warn
from profkit.recording.program_events import Kind, in_backward, listen, unlisten
from profkit.recording.run_facts import RUN_SCHEMA, describe_environment
from profkit.recording.step_finder import StepFinder
from profkit.recording.step_samples import StepSample
from profkit.recording.tensor_histories import Histories, ScaleHistory
from profkit.recording.tensor_statistics import can_measure

__all__ = ["NumericsRecorder", "numerics"]

_WRITE_EVERY_S: Final = 60.0
_SCALES_AT_ONCE: Final = 100


def numerics(
    model: Any = None, *, every: int = 100, folder: str | os.PathLike[str] = "runs/numerics"
) -> NumericsRecorder:
    """Record what the tensors of a training hold: from here on until `NumericsRecorder.stop`, or for a ``with`` block.

    A step ends with the optimizer's, or with the ``update`` of a ``GradScaler``. In every so many steps, the outputs of
    modules, their gradients, those of parameters, and the optimizer's changes are looked at, on the device.

    Args:
        model: The ``torch.nn.Module`` to look at; None for whatever the program trains.
        every: How many steps from one that is looked at to the next.
        folder: Where ``numerics.json`` and ``run.json`` go; made if missing. A second recording goes beside it.

    Raises:
        RecordingError: ``every`` is no whole number from 1 on, or the model is not a module.
    """
    if type(every) is not int or every < 1:
        raise RecordingError("profkit.numerics", f"every is {every!r}, which is not a whole number from 1 on")
    refuse_no_module("profkit.numerics", model)
    return NumericsRecorder(model, every, folder)


def _harmless(method: Callable[..., None]) -> Callable[..., None]:
    """What fails ends the recording with one warning; the program goes on."""

    @functools.wraps(method)
    def call(self: NumericsRecorder, *args: Any) -> None:
        try:
            method(self, *args)
        except Exception as error:  # noqa: BLE001 - a recording never takes the program down
            self._give_up(error)

    return call


class NumericsRecorder:
    """A recording of numerics under way.

    Attributes:
        file: ``numerics.json``; None when nothing is recorded.
        problems: What was told.
    """

    kinds: tuple[Kind, ...] = (Kind.OPTIMIZER, Kind.BACKWARD, Kind.SCALED_STEP, Kind.SCALE_UPDATE)

    def __init__(self, model: Any, every: int, folder: str | os.PathLike[str]) -> None:
        self.file: Path | None = None
        self.problems: list[str] = []
        self._every = every
        self._pid = os.getpid()
        self._names = _Names(model)
        self._histories, self._scales = Histories(every), ScaleHistory()
        self._finder = StepFinder(self._optimizer_stepped)
        self._modules: _Modules | None = None
        self._step = 0
        self._sample: StepSample | None = None
        self._pending: list[StepSample] = []
        self._new_scales: list[tuple[int, Any]] = []
        self._scaled = self._stepped = False
        self._written_s = time.monotonic()
        self._running = True
        self._folder: RunFolder | None = None
        self._start(folder)

    def __enter__(self) -> NumericsRecorder:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.stop(None if error is None else f"ended by {type(error).__name__}")

    @_harmless
    def _start(self, folder: str | os.PathLike[str]) -> None:
        self._rank, self._world = environment.rank_and_world()
        self._folder = RunFolder(Path(folder), self._rank)
        self.file = self._folder.name("numerics", ".json")
        self._modules = _Modules(self)
        listen(self)
        self._begin_step()

    def stop(self, state: str | None = None) -> None:
        """End the recording: hooks go, and ``numerics.json`` is written."""
        if not self._running or os.getpid() != self._pid:
            return
        if state is not None:
            self._keep_unfinished_step()
        self._hear_no_more()
        self._finish(state)

    @_harmless
    def _keep_unfinished_step(self) -> None:
        """Of a program that fails, the step in which it does is the one to look at."""
        if self._sample is not None and self._sample.has_values():
            self._end_step()

    @_harmless
    def _finish(self, state: str | None) -> None:
        self._read(wait=True)
        self._write(state or "done")

    def entered(self, kind: Kind, subject: Any) -> None:
        """A stretch begins: a scaler may leave the optimizer's step out; before a step, gradients are complete."""
        self._scaled |= kind is Kind.SCALED_STEP
        if kind is Kind.SCALE_UPDATE and not self._scales.begun:
            self._note_scale(subject)
        if kind is Kind.OPTIMIZER and self._sample is not None and os.getpid() == self._pid:
            self._before_optimizer(subject)

    def left(self, kind: Kind, subject: Any, values: Any = None) -> None:
        """A stretch ends, and with some the step."""
        if os.getpid() != self._pid:
            return
        if kind is Kind.SCALE_UPDATE:
            self._scale_updated(subject)
        elif kind is Kind.OPTIMIZER:
            self._after_optimizer(subject)
            self._finder.left(kind, subject)
        elif kind is Kind.BACKWARD:
            self._finder.left(kind, subject)

    @_harmless
    def _before_optimizer(self, optimizer: Any) -> None:
        assert self._sample is not None
        self._sample.before_optimizer(optimizer, self._names.of_parameter)

    @_harmless
    def _after_optimizer(self, optimizer: Any) -> None:
        if self._sample is not None:
            self._sample.after_optimizer(optimizer)

    def _optimizer_stepped(self) -> None:
        """The step is over, unless a scaler has a word in it: its update comes after all optimizers."""
        if not self._scaled or self._stepped:
            self._end_step()
        self._stepped = self._scaled

    @_harmless
    def _scale_updated(self, scaler: Any) -> None:
        self._end_step()
        self._note_scale(scaler)
        self._scaled = self._stepped = False

    @_harmless
    def _note_scale(self, scaler: Any) -> None:
        scale = getattr(scaler, "_scale", None)
        if scale is not None:
            self._scales.begun = True
            self._new_scales.append((self._step, scale.detach().clone()))

    @_harmless
    def _end_step(self) -> None:
        if self._sample is not None:
            self._hear_modules(on=False)
            self._sample.close()
            self._pending.append(self._sample)
            self._sample = None
        self._step += 1
        self._read(wait=False)
        self._begin_step()

    def _begin_step(self) -> None:
        if self._step % self._histories.every == 0 and self._running:
            self._sample = StepSample(self._step)
            self._hear_modules(on=True)

    def _hear_modules(self, *, on: bool) -> None:
        if self._modules is not None:
            (listen if on else unlisten)(self._modules)

    def module_entered(self, module: Any) -> None:
        """A module's forward begins: the outermost of a program that named none is its model."""
        if os.getpid() == self._pid:
            self._names.meet(module)

    def module_left(self, module: Any, output: Any) -> None:
        """A module's forward ended in a step that is looked at."""
        if os.getpid() == self._pid:
            self._module_left(module, output)

    @_harmless
    def _module_left(self, module: Any, output: Any) -> None:
        import torch

        # Activations that are computed again in backward, and evaluation, are left out.
        if self._sample is None or in_backward() or not torch.is_grad_enabled():
            return
        name = self._names.of_module(module)
        value = _first_tensor(output)
        if name is None or value is None:
            return
        sample = self._sample
        is_first = sample.add("activation", name, value)
        # A hook on a leaf would stay with it: its gradient is looked at as that of a parameter.
        if is_first and value.requires_grad and not value.is_leaf:
            value.register_hook(functools.partial(self._gradient, sample, name))

    def _gradient(self, sample: StepSample, name: str, gradient: Any) -> None:
        if sample is self._sample:  # a graph may outlive its step
            self._add_gradient(sample, name, gradient)

    @_harmless
    def _add_gradient(self, sample: StepSample, name: str, gradient: Any) -> None:
        if can_measure(gradient):
            sample.add("gradient", name, gradient)

    def _read(self, *, wait: bool) -> None:
        """Take what has arrived on the host."""
        while self._pending and (wait or self._pending[0].has_arrived()):
            sample = self._pending.pop(0)
            self._histories.add(sample.step, sample.tensors(), sample.updates())
        if len(self._new_scales) >= _SCALES_AT_ONCE or (wait and self._new_scales):
            import torch

            scales = torch.cat([scale.reshape(1) for _, scale in self._new_scales]).tolist()
            for (step, _), scale in zip(self._new_scales, scales, strict=True):
                self._scales.add(step, scale)
            self._new_scales.clear()
        if time.monotonic() - self._written_s > _WRITE_EVERY_S and not wait:
            self._write("running")

    def _write(self, state: str) -> None:
        import torch

        if self.file is None or self._folder is None:
            return
        tensors, updates, non_finite = self._histories.rows()
        made = NumericsFile(
            rank=self._rank, model=self._names.model, every=self._histories.every, step_count=self._step,
            steps=self._histories.steps, tensors=tensors, updates=updates, loss_scale=self._scales.row(),
            non_finite=non_finite, tool_version=environment.versions().get("profkit") or "",
            facts={"torch": str(torch.__version__)},
        )  # fmt: skip
        text = msgspec.json.encode(made)
        write_whole(self.file, lambda sink: sink.write(text))
        if self.file not in self._folder.files:
            self._folder.keep(self.file)
        self._folder.describe(
            {
                "schema": RUN_SCHEMA,
                "rank": self._rank,
                "world_size": self._world,
                "tool": "profkit numerics",
                "options": {"every": self._every},
                **self._environment,
                "state": state,
                "steps_called": self._step,
                "files": [path.name for path in self._folder.files],
                "problems": self.problems,
            }
        )
        self._written_s = time.monotonic()

    @functools.cached_property
    def _environment(self) -> dict[str, Any]:
        return describe_environment(self._tell)

    def _hear_no_more(self) -> None:
        self._running = False
        unlisten(self)
        self._hear_modules(on=False)
        self._sample = None

    def _give_up(self, error: Exception) -> None:
        self._hear_no_more()
        self._tell(f"numerics are incomplete: {str(error) or type(error).__name__}")
        with contextlib.suppress(Exception):  # it is told already
            self._write("incomplete")

    def _tell(self, problem: str) -> None:
        self.problems.append(problem)
        warn(problem)


class _Modules:
    """Hears of modules in steps that are looked at only, so that the others run as if nobody listened."""

    kinds: tuple[Kind, ...] = (Kind.MODULE,)

    def __init__(self, recorder: NumericsRecorder) -> None:
        import torch

        def entered(kind: Kind, subject: Any) -> None:
            recorder.module_entered(subject)

        def left(kind: Kind, subject: Any, values: Any) -> None:
            recorder.module_left(subject, values[1])

        # Hooks of modules around compiled code are seen by the compiler too.
        self.entered, self.left = torch.compiler.disable(entered), torch.compiler.disable(left)


class _Names:
    """Names of modules and parameters; the models that hold them are not kept alive."""

    def __init__(self, model: Any) -> None:
        self.model = ""
        self._of_module: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._of_parameter: dict[int, tuple[weakref.ref[Any], str]] = {}  # tensors are not told apart by ==
        self._meets = model is None
        if model is not None:
            self._learn(model)

    def meet(self, module: Any) -> None:
        """A module runs: one that is in no known model is a model itself."""
        if self._meets and module not in self._of_module:
            self._learn(module)

    def of_module(self, module: Any) -> str | None:
        """The dotted name of a module within its model, or the class of a model; None for another module."""
        return self._of_module.get(module)

    def of_parameter(self, parameter: Any) -> str | None:
        """The dotted name of a parameter; None for one of no known model."""
        found, name = self._of_parameter.get(id(parameter), (None, None))
        return name if found is not None and found() is parameter else None

    def _learn(self, given: Any) -> None:
        model = plain_module(given)
        while type(model).__name__ in ("DistributedDataParallel", "DataParallel"):
            model = plain_module(model.module)
        own = type(model).__name__
        before = f"{own}." if self.model else ""  # of a second model
        self.model = self.model or own
        for name, module in model.named_modules():
            self._of_module.setdefault(module, f"{before}{name}" if name else own)
        self._of_module.setdefault(given, own)
        for name, parameter in model.named_parameters():
            self._of_parameter.setdefault(id(parameter), (weakref.ref(parameter), f"{before}{name}"))


def _first_tensor(output: Any) -> Any:
    """The tensor that a module gave, or the first of several that has statistics; None without any."""
    if isinstance(output, dict):
        output = tuple(output.values())
    if isinstance(output, tuple | list):
        return next((found for each in output if (found := _first_tensor(each)) is not None), None)
    return output if can_measure(output) else None
