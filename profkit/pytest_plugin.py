"""The pytest fixture ``profkit_gate``: a test that fails when a training step becomes slower.

Installed with profkit; it imports nothing until it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from profkit.api import Report
    from profkit.api.comparing import Gate
    from profkit.comparison import LimitTexts

__all__ = ["StepGate", "profkit_gate"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options and settings of the fixture."""
    group = parser.getgroup("profkit")
    group.addoption(
        "--profkit-update",
        action="store_true",
        help="record the baselines of profkit_gate anew, and compare with none",
    )
    parser.addini("profkit_baselines", "folder of profkit_gate's baselines", default="profkit_baselines")


class StepGate:
    """What the fixture gives: call it with a step function, or with a report."""

    def __init__(self, request: pytest.FixtureRequest, folder: Path) -> None:
        self._config, self._folder = request.config, folder
        name = re.sub(r"[^\w.-]+", "_", request.node.nodeid)
        self._baselines = self._config.rootpath / str(self._config.getini("profkit_baselines"))
        self.baseline = self._baselines / f"{name}.json"
        """Where this test's baseline is kept."""

    def __call__(
        self, step: Callable[[], object] | str | Path | Report, *, baseline: str | Path | None = None, warmup: int = 3,
        steps: int = 10, limits: LimitTexts | None = None, allow_unknown: bool = False,
    ) -> Gate:  # fmt: skip
        """Fail the test when the step breaks its limits.

        Limits are those of ``[tool.profkit.gate]`` in ``pyproject.toml``, over which ``limits`` go. The baseline is
        a report that ``pytest --profkit-update`` wrote, unless another is named.

        Args:
            step: A function that runs one training step, a recording or saved report, or a `profkit.Report`.
            baseline: What to compare with: a file, or a run of a history (``profkit.db#main``).
            warmup: Steps to run before those that count.
            steps: Steps to record.
            limits: Texts by name, as `profkit.api.comparing.gate` takes them.
            allow_unknown: Whether the test passes where the noise is larger than a limit allows.
        """
        from profkit.api import Report
        from profkit.api.comparing import gate, gate_settings, load

        if isinstance(step, Report):
            report = step
        elif callable(step):
            report = self._record(step, warmup, steps)
        else:
            report = load(step)
        settings = {
            k: v
            for k, v in gate_settings(self._config.rootpath).items()
            if k not in ("baseline", "database", "db")
        }
        wanted = {**settings, **(limits or {})}
        if baseline is None and self._config.getoption("--profkit-update"):
            self.baseline.parent.mkdir(parents=True, exist_ok=True)
            report.save(self.baseline)
            return gate(report, wanted, baseline=report)
        against = self.baseline if baseline is None else baseline
        if baseline is None and not self.baseline.is_file():
            pytest.fail(
                f"there is no baseline {self.baseline}: write it with pytest --profkit-update", pytrace=False
            )
        judged = gate(report, wanted, baseline=against, allow_unknown=allow_unknown)
        if not judged.passed:
            told = [judged.comparison.comparison.sentence] if judged.comparison else []
            pytest.fail("\n".join([*judged.failures, *told]), pytrace=False)
        return judged

    def _record(self, step: Callable[[], object], warmup: int, steps: int) -> Report:
        from profkit.api import analyze
        from profkit.recording.recorder import record

        with record(self._folder / "recording", wait=0, warmup=warmup, steps=steps) as recorder:
            for _ in range(warmup + steps):
                step()
                recorder.step()
        return analyze(recorder.folder or self._folder)


@pytest.fixture
def profkit_gate(request: pytest.FixtureRequest, tmp_path: Path) -> StepGate:
    """Fail the test when a training step breaks its limits: ``profkit_gate(train_step, limits={"max-step": "+5%"})``."""
    return StepGate(request, tmp_path)
