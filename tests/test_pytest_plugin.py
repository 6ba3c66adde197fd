import pytest

from tests.shared import DATA

pytest_plugins = ["pytester"]

EAGER, COMPILED, TINY = (
    DATA / "nsys" / f"{name}.sqlite.gz" for name in ("gpt_bf16", "gpt_bf16_compile", "tiny_mlp")
)


def run(pytester, body, *options):
    pytester.makepyfile(test_step=body)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist", *options)


def test_a_test_fails_with_the_reasons_when_its_step_became_slower(pytester):
    body = f"def test_step(profkit_gate):\n    profkit_gate({str(EAGER)!r}, baseline={str(COMPILED)!r})\n"
    result = run(pytester, body)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*max-step: 28.1 ms*40.2 ms per step*"])


def test_a_baseline_is_written_when_asked_and_compared_with_afterwards(pytester):
    body = f"def test_step(profkit_gate):\n    profkit_gate({str(TINY)!r}, limits={{'max-step': '+3%'}})\n"
    missing = run(pytester, body)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(["*pytest --profkit-update*"])
    run(pytester, body, "--profkit-update").assert_outcomes(passed=1)
    (kept,) = (pytester.path / "profkit_baselines").iterdir()
    assert kept.suffix == ".json"
    run(pytester, body).assert_outcomes(passed=1)


def test_limits_of_the_project_count(pytester):
    pytester.makepyprojecttoml('[tool.profkit.gate]\nmin-busy = "90%"\n')
    body = f"def test_step(profkit_gate):\n    profkit_gate({str(TINY)!r}, baseline={str(TINY)!r})\n"
    run(pytester, body).assert_outcomes(failed=1)


@pytest.mark.slow
@pytest.mark.torch
def test_a_step_function_is_recorded_and_gated(pytester, monkeypatch):
    pytest.importorskip("torch")
    body = """
import time
import torch

def test_step(profkit_gate):
    import os
    def step():
        torch.ones(64, 64) @ torch.ones(64, 64)
        time.sleep(float(os.environ["STEP_SECONDS"]))
    # Idle time may drift by 12 % from one recording to the next: of one a side, 43 % of such a step is noise.
    profkit_gate(step, warmup=1, steps=5, limits={"max-step": "+50%"})
"""
    monkeypatch.setenv("STEP_SECONDS", "0.1")
    run(pytester, body, "--profkit-update").assert_outcomes(passed=1)
    run(pytester, body).assert_outcomes(passed=1)
    monkeypatch.setenv("STEP_SECONDS", "0.3")
    slower = run(pytester, body)
    slower.assert_outcomes(failed=1)
    slower.stdout.fnmatch_lines(["*max-step:*"])
