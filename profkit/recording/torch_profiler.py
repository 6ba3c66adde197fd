"""torch.profiler as a part of a recording: on a schedule, one whole file a cycle."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from profkit.recording.files import RunFolder
from profkit.recording.foreign_profilers import ForeignProfilers
from profkit.recording.stages import Schedule, Stage

__all__ = ["TorchProfiler", "make_profile"]

_ANOTHER: Final = (
    "the program's own torch profiler was first, and torch runs one profiler at a time. Analyze the trace that it writes,"
    " or turn it off"
)


class TorchProfiler:
    """Drives ``torch.profiler.profile`` and writes ``trace*.json.gz`` once per cycle.

    Args:
        schedule: Which steps to record.
        folder: Where the traces go.
        options: Of torch's profiler: ``record_shapes``, ``with_stack`` (slow, and files grow several times),
            ``profile_memory`` (which gives the CPU's memory in the trace).
        tell: Told what is missing from the recording.
    """

    name = "torch.profiler"

    def __init__(
        self, schedule: Schedule, folder: RunFolder, options: dict[str, bool], tell: Callable[[str], None]
    ) -> None:
        self._schedule = schedule
        self._folder = folder
        self._foreign = ForeignProfilers(tell)
        self._tell = tell
        self._owed = self._yields = self._told = False
        self.cycles: list[dict[str, Any]] = []
        """``file``, ``first_step``, ``steps`` (whole ones) and ``complete`` of each trace that was written."""
        self._first = 0
        self._recorded = 0
        self._profile = make_profile(
            None if schedule.steps is None else self._action,
            self._save,
            options,
        )

    def start(self, stage: Stage) -> None:
        """Start; where the program's own profiler is on, it was first, and RuntimeError is raised."""
        self._foreign.watch()
        self._owed = stage is Stage.ACTIVE
        with self._turn(stage):
            if stage in (Stage.WARMUP, Stage.ACTIVE) and self._foreign.active:
                raise RuntimeError(_ANOTHER)
            self._profile.start()

    def step(self, step: int, stage: Stage, following: Stage) -> None:
        """Go on to the next step; at the end of a cycle its trace is written.

        While the program's own profiler is on, which was first then, steps are not traced.
        """
        was_on, ends = self._foreign.ours_is_on, self._schedule.ends_cycle(step)
        if stage is Stage.ACTIVE and was_on:
            self._recorded += 1
        self._yields = following in (Stage.WARMUP, Stage.ACTIVE) and not was_on and self._foreign.active
        if self._yields and not self._told:
            self._told = True
            self._tell(f"steps are not traced while another profiler is on: {_ANOTHER}")
        with self._turn(following):
            self._profile.step()
            if ends and self._owed:
                self._save(self._profile)
        begins = ends or stage is not Stage.ACTIVE or not was_on
        if following is Stage.ACTIVE and begins and self._foreign.ours_is_on:
            self._owed, self._first, self._recorded = True, step + 1, 0
        if following is Stage.DONE:
            self._foreign.unwatch()

    def leave_step(self) -> None:
        """Close the mark of the step, which torch's profiler would close where the next one begins."""
        mark = getattr(self._profile, "step_rec_fn", None)
        if mark is not None:
            self._profile.step_rec_fn = None
            mark.__exit__(None, None, None)

    def stop(self, stage: Stage) -> None:
        """Stop, and write what the running cycle has."""
        try:
            with self._turn(Stage.DONE):
                self._profile.stop()
                if self._owed and stage is Stage.ACTIVE:
                    self._save(self._profile)
        finally:
            self._foreign.unwatch()

    @contextmanager
    def _turn(self, following: Stage) -> Iterator[None]:
        """Around a call of torch's profiler, which is on afterwards if ``following`` says so.

        Torch's advice on its own API (cleared events, acc_events) is for who calls it.
        """
        try:
            with warnings.catch_warnings(action="ignore", category=UserWarning), self._foreign.own():
                yield
        except BaseException:
            self._foreign.unwatch()  # this part is left out from here on
            raise
        self._foreign.ours_is_on = following in (Stage.WARMUP, Stage.ACTIVE) and not self._yields

    def _action(self, step: int) -> Any:
        from torch.profiler import ProfilerAction

        if self._yields:
            return ProfilerAction.NONE
        if self._schedule.ends_cycle(step):
            return ProfilerAction.RECORD_AND_SAVE
        actions = {Stage.WARMUP: ProfilerAction.WARMUP, Stage.ACTIVE: ProfilerAction.RECORD}
        return actions.get(self._schedule.stage(step), ProfilerAction.NONE)

    def _save(self, profile: Any) -> None:
        """Write the trace once: Kineto refuses a second export, and torch may have called us already."""
        if not self._owed:
            return
        self._owed = False
        target = self._folder.name("trace", ".json.gz")
        raw = target.with_name(f".{target.stem}.partial")
        try:
            profile.export_chrome_trace(str(raw))
            if not _is_whole(raw):
                raise OSError(f"{target.name} was cut short: is the disk full?")
            kept = self._folder.pack(raw, target)
        finally:
            raw.unlink(missing_ok=True)
            raw.with_name(raw.name + ".tmp").unlink(missing_ok=True)  # Kineto's own, when it could not finish
        wanted = self._schedule.steps
        complete = wanted is None or self._recorded == wanted
        self.cycles.append(
            {"file": kept.name, "first_step": self._first, "steps": self._recorded, "complete": complete}
        )


def make_profile(
    schedule: Callable[[int], Any] | None, on_trace_ready: Callable[[Any], None], options: dict[str, bool]
) -> Any:
    """The torch profiler of this machine: the CPU, and the GPU where there is one."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    return profile(activities=activities, schedule=schedule, on_trace_ready=on_trace_ready, **options)


def _is_whole(path: Path) -> bool:
    """Whether a trace ends as JSON does; Kineto does not say when it could not write all of it."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        return file.read().rstrip().endswith((b"}", b"]"))
