"""The same programs on a GPU under nsys, torch.profiler and the memory history give the same phases and kernels.

Each was recorded on an H200 in one run of a process for each recorder. nsys writes C++ names otherwise than Kineto does, so
kernels are counted by the short name that the report gives them.
"""

import pickle
from collections import Counter

import pytest

import profkit
from tests.shared import DATA, SHARED, needs_shared

KINETO = {
    path.name.removesuffix(".json.gz"): [path]
    for path in sorted(DATA.glob("kineto/*.json.gz"))
    if not path.name.startswith("ddp") and (DATA / "nsys" / path.name.replace(".json.", ".sqlite.")).exists()
}
KINETO["ddp"] = sorted(DATA.glob("kineto/ddp_rank*.json.gz"))
HISTORIES = sorted(
    path
    for path in SHARED.glob("recordings/snapshot/*.pickle")
    if path.name.removesuffix(".pickle") in KINETO
)
RUNS = sorted(SHARED.glob("recordings/memory/*/memory.pickle"))


def in_a_step(paths):
    """How often each phase is in a step, with how many kernels; and the kernels of a step by short name."""
    found = profkit.analyze(paths).document
    steps = sum(step.kept for step in found.window.steps)
    phases = {row.path: (row.count / steps, row.kernel_count / steps) for row in found.phases}
    kernels = Counter()
    for row in found.kernels:
        kernels[row.short_name] += row.count
    return phases, {name: count / steps for name, count in kernels.items()}


def test_there_are_programs_under_both():
    assert len(KINETO) >= 9
    assert len(KINETO["ddp"]) == 2


@pytest.mark.parametrize("name", KINETO)
def test_nsys_and_torch_profiler_give_the_same_phases_and_kernels_a_step(name):
    phases, kernels = in_a_step(KINETO[name])
    assert (phases, kernels) == in_a_step(DATA / "nsys" / f"{name}.sqlite.gz")
    assert all(count >= 1 for count, _ in phases.values())
    assert sum(kernels.values()) >= 5


def marks(path):
    """The phases of a memory history, each as often as it was opened, and as often as it was closed."""
    entries = pickle.loads(path.read_bytes())["external_annotations"]
    names = [(entry["name"].removeprefix("profkit::"), entry["stage"]) for entry in entries]
    return tuple(
        Counter(name for name, each in names if each == stage and "#" not in name)
        for stage in ("START", "END")
    )


@needs_shared
@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_the_history_of_a_step_holds_the_phases_of_torch_profiler(path):
    (phases, _), (opened, closed) = in_a_step(KINETO[path.stem]), marks(path)
    assert opened == closed == Counter({name.rpartition("/")[2]: round(n) for name, (n, _) in phases.items()})


@needs_shared
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.parent.name)
def test_the_history_of_a_recording_holds_the_phases_of_its_trace(path):
    found = profkit.analyze(path.with_name("trace.json.gz")).document
    opened, closed = marks(path)
    assert opened == closed
    assert set(opened) == {row.name for row in found.phases} == {"forward", "backward", "optimizer"}
