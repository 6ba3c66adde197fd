"""What a change would bring: the step before and after, replayed under every assumption."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from profkit.simulation.compiled_regions import join_regions
from profkit.simulation.constants import LIKELY, SCENARIOS, Constants
from profkit.simulation.copies import pageable_copies, pin_memory
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.exchanged import Exchanged
from profkit.simulation.fusion import compile_for_device, compile_model
from profkit.simulation.kernel_facts import StepFacts, find_facts
from profkit.simulation.launching import lift_waits
from profkit.simulation.other_gpu import OtherGpu
from profkit.simulation.replay import Replay, replay, slower_host
from profkit.simulation.step_program import WAIT, Program
from profkit.simulation.unprofiled import UnprofiledStep, unprofiled_step
from profkit.timeline.view import TraceView

__all__ = ["Change", "Prediction", "Step", "find_step"]

Change = Callable[[EditedStep], None]

_TIMED: Final = 1.02
"""Two timings of one step differ by this where nothing was changed (tuned_gpt, tuned_ordinary, cudnn_benchmark)."""

_DEVICE_ERROR: Final = 1.12
_HOST_ERROR: Final = 1.17
"""What a speed-up is off by besides: 11 % (root mean square) of the 17 changed pairs of reports/advice where the device
limits the step after the change, and 18 % of the 51 others, without copies, loaders and compilers. These and a faster or
slower host are independent of each other, so that their squares add up."""

_STAGED: Final = 0.7
"""How far the time of copies from pageable memory may be off (a quarter longer on another day for pinned_prefetch, a
quarter shorter in the same run for pinned_wide, both of reports/advice)."""

_GUESSED: Final = 0.35
"""What the logarithm of a gain is off by, as a share of it, where a trace does not tell what comes: what a compiler keeps and
recomputes (0.31, the root mean square of eleven compiled pairs of reports/advice), how fast other processes load (0.32 of
four), how near another GPU comes to its peaks (no measurement)."""

_RESUMED: Final = 1.4
"""A host that never waits may be faster than its launches with waits tell (five host-bound pairs of reports/advice: 1.24 to
1.67 in repeated timings where 1.05 to 1.15 is likely by the recording; a sixth, timed once, 0.85)."""

_SLACK: Final = 0.95
"""Where the host needs more of the step than this, the device waits for it now and then."""


@dataclass(frozen=True)
class Prediction:
    """A step before and after a change, in ns without a recorder."""

    before_ns: float
    after_ns: float
    low: float
    """The speed-up at least, likely and at most."""
    likely: float
    high: float
    limit: str
    """What the changed step is limited by: ``host``, ``device``, ``waiting`` or ``loader``."""

    @property
    def saving_ns(self) -> float:
        """What the change takes off the step; negative where it adds."""
        return self.before_ns - self.after_ns


@dataclass(frozen=True, eq=False)
class Step:
    """The representative step of a device, ready to be changed and replayed."""

    facts: StepFacts
    unprofiled: UnprofiledStep
    job_ns: tuple[int, int] | None = None
    """The step of the whole job without a recorder and as recorded: prices are told of that; None is of this device."""

    @cached_property
    def _programs(self) -> dict[float, tuple[Program, float]]:
        programs = dict(self.unprofiled.played)
        for factor in {c.host for c in (LIKELY, *SCENARIOS)} - set(programs):
            program = self.unprofiled.program_with(factor)
            programs[factor] = (program, replay(program).step_ns)
        return programs

    @property
    def plain_ns(self) -> float:
        """The step's time without a recorder: measured, or an estimate."""
        return self.unprofiled.likely_ns

    @property
    def told_ns(self) -> float:
        """The same of the whole job."""
        return self.plain_ns if self.job_ns is None else float(self.job_ns[0])

    @property
    def told(self) -> float:
        """The step of the whole job over that of this device."""
        return self.told_ns / max(self.plain_ns, 1.0)

    @property
    def recorded_ns(self) -> int:
        """The step as it was recorded, of the whole job."""
        return self.facts.program.step_ns if self.job_ns is None else self.job_ns[1]

    @property
    def program(self) -> Program:
        """The step without a recorder."""
        return self._programs[LIKELY.host][0]

    def changed(self, changes: Sequence[Change], constants: Constants = LIKELY) -> tuple[Replay, float]:
        """Replay the step with some changes; the bound from outside the step comes with it."""
        played, least = self._replayed(changes, constants)
        if lift_waits not in changes:
            return played, least
        held, _ = self._replayed([change for change in changes if change is not lift_waits], constants)
        if _limit(played, least) == "device":
            most = constants.idle * self._waits_cost_ns + max(held.host_ns - played.host_ns, 0.0)
        else:
            most = self.blocked_ns(played.host_ns)
        return replace(played, step_ns=max(played.step_ns, held.step_ns - most)), least

    def blocked_ns(self, host_ns: float, tokens: int | None = None) -> float:
        """How long waits can have blocked the host: all that lifting them takes off its time.

        Args:
            host_ns: The host's own time in the step: what it is faster than recorded, it waits longer.
            tokens: Of the program, from its start; None for all.
        """
        recorded, waits = self.facts.program, self.facts.view.waits
        mine = np.isin(waits.call, recorded.call[:tokens][recorded.kind[:tokens] == WAIT])
        faster = float((recorded.gap_ns + recorded.own_ns).sum()) - host_ns
        return float((waits.end_ns - waits.start_ns)[mine].sum()) + max(faster, 0.0)

    @cached_property
    def _waits_cost_ns(self) -> float:
        """What the device stood idle after the step's waits: all that lifting them can save.

        Replayed without its waits, a step would also run into the next one, which may need its results.
        """
        view, program = self.facts.view, self.facts.program
        mine = np.isin(view.waits.call, program.call[program.kind == WAIT])
        return float(view.wait_cost_ns[self.facts.device, mine].sum())

    def _replayed(self, changes: Sequence[Change], constants: Constants) -> tuple[Replay, float]:
        edited = EditedStep(self.facts, self._programs[constants.host][0], constants)
        for change in changes:
            change(edited)
        program = edited.program()
        played = replay(program)
        return replace(played, step_ns=max(played.step_ns, self._least_ns(program))), edited.least_ns

    def _least_ns(self, program: Program) -> float:
        """What a replayed step takes at least, so that telling it on the measured step's scale makes no device faster."""
        if self.unprofiled.plain_step_ns is None or self.unprofiled.scale >= 1:
            return 0.0
        alone = replay(slower_host(program, 0.0)).step_ns
        return alone * min(self.plain_ns / self._alone_ns, 1.0) / self.unprofiled.scale

    @cached_property
    def _alone_ns(self) -> float:
        """What the step's device alone takes."""
        return replay(slower_host(self.program, 0.0)).step_ns

    @property
    def _staged_ns(self) -> float:
        return float(self.program.duration_ns[pageable_copies(self.facts)].sum())

    @cached_property
    def unchanged(self) -> Replay:
        """The step without a recorder, replayed."""
        return replay(self.program)

    def predict(self, changes: Sequence[Change]) -> Prediction:
        """The step with some changes, in their order, as low, likely and high."""
        return self._priced(changes, *self.changed(changes))

    def after_ns(self, changes: Sequence[Change]) -> float:
        """The step with some changes, likely: one replay, without an interval."""
        played, least = self.changed(changes)
        return max(played.step_ns * self.unprofiled.scale, least, 1.0) * self.told

    def predict_where_worth(self, changes: Sequence[Change], share: float) -> Prediction | None:
        """The same, or None where the likely saving is under a share of the step: one replay shows it."""
        played, least = self.changed(changes)
        if self.plain_ns - max(played.step_ns * self.unprofiled.scale, least) < share * self.plain_ns:
            return None
        return self._priced(changes, played, least)

    def _priced(self, changes: Sequence[Change], played: Replay, least: float) -> Prediction:
        before, after = self.plain_ns, max(played.step_ns * self.unprofiled.scale, least, 1.0)
        limit = _limit(played, least)
        if not changes:
            return Prediction(before * self.told, after * self.told, 1 / _TIMED, 1.0, _TIMED, limit)
        gains = [math.log(before / after), *(self._gain(changes, constants) for constants in SCENARIOS)]
        busy_host = max(r.host_ns / r.step_ns for r in (self.unchanged, played) if r.step_ns)
        by_host = limit != "device" or busy_host >= _SLACK
        gain, unsure = gains[0], math.log(_HOST_ERROR if by_host else _DEVICE_ERROR)
        staged = math.log1p(_STAGED * self._staged_ns / before) if pin_memory in changes else 0.0
        guessed = _GUESSED * abs(gain) if least or _cannot_be_told(changes) else 0.0
        resumed = math.log(_RESUMED) if lift_waits in changes and limit != "device" else 0.0
        idle_host = [compile_for_device if each is compile_model else each for each in changes]
        for_device = self._gain(idle_host, LIKELY) if compile_model in changes else gain
        lower = _together([staged, guessed, gain - for_device, *(gain - each for each in gains)], unsure)
        higher = _together([staged, guessed, resumed, *(each - gain for each in gains)], unsure)
        low, likely, high = (math.exp(each) for each in (gain - lower, gain, gain + higher))
        before *= self.told
        return Prediction(before, before / likely, low, likely, high, limit)

    def _gain(self, changes: Sequence[Change], constants: Constants) -> float:
        """The logarithm of the speed-up under some assumption."""
        played, bound = self.changed(changes, constants)
        told = self.unprofiled.scale
        return math.log(self._programs[constants.host][1] * told / max(played.step_ns * told, bound, 1.0))


def _cannot_be_told(changes: Sequence[Change]) -> bool:
    """Whether a change depends on what no trace tells: what a compiler makes, how another GPU behaves."""
    return any(each in (compile_model, join_regions) or isinstance(each, OtherGpu) for each in changes)


def _together(logarithms: Sequence[float], unsure: float) -> float:
    """How far several things that have nothing to do with each other lead off together: the root of the sum of squares.

    Args:
        logarithms: Where each alone leads; those to the other side do not count.
        unsure: What the replay itself may be off by.
    """
    return math.hypot(unsure, *(max(each, 0.0) for each in logarithms))


def find_step(view: TraceView, device: int, exchanged: Exchanged | None = None) -> Step | None:
    """The representative step of a device, or None where there is none that can be replayed.

    Args:
        view: The analysed trace.
        device: Its index there.
        exchanged: The collectives of all traces of the job: together they tell transfer from waiting.
    """
    unprofiled = unprofiled_step(view, device)
    if unprofiled is None:
        return None
    return Step(find_facts(view, device, unprofiled.recorded, exchanged), unprofiled)


def _limit(played: Replay, least: float) -> str:
    if least > played.step_ns:
        return "loader"
    if played.device_busy_ns >= 0.9 * played.step_ns:
        return "device"
    return "host" if played.host_ns >= 0.9 * played.step_ns else "waiting"
