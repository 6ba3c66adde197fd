"""What is seen of a program's first steps."""

import pytest

torch = pytest.importorskip("torch", reason="SKIPPED LOUDLY: torch is not installed")

from profkit.trial import observe  # noqa: E402
from profkit.trial.observe import Observer  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture
def seen():
    """Runs a step and gives its facts."""

    def run(step):
        observer = Observer()
        observer.listen()
        step()
        return observer.facts()

    return run


@pytest.fixture
def model():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 1))


def train(model, optimizer, **zeroing):
    optimizer.zero_grad(**zeroing)
    model(torch.ones(1, 1, 4, 4)).sum().backward()
    optimizer.step()


def test_a_plain_step(seen, model):
    facts = seen(lambda: train(model, torch.optim.Adam(model.parameters())))
    assert facts.modules >= 1
    assert facts.convolutions >= 1
    assert [each.name for each in facts.optimizers] == ["Adam"]
    assert not facts.autocast
    assert not facts.zeroed


def test_zeroed_gradients_are_seen(seen, model):
    facts = seen(lambda: train(model, torch.optim.SGD(model.parameters(), lr=0.1), set_to_none=False))
    assert facts.zeroed


@pytest.mark.parametrize("enabled", [True, False])
def test_autocast_is_seen_where_it_is_on(seen, model, enabled):
    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            model(torch.ones(1, 1, 4, 4))

    assert seen(step).autocast is enabled


def test_a_compiled_program_is_not_compiled_again_when_the_observer_leaves(model):
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    run = torch.compile(model, backend=backend)
    observer = Observer()
    observer.listen()
    train(run, torch.optim.SGD(model.parameters(), lr=0.1))
    count = len(compiled)
    observer.facts()
    train(run, torch.optim.SGD(model.parameters(), lr=0.1))
    assert count == len(compiled) > 0


def test_nothing_stays_wrapped(seen):
    before = torch.autocast.__enter__, torch.optim.Optimizer.zero_grad, torch.nn.Module.zero_grad
    seen(lambda: None)
    assert before == (torch.autocast.__enter__, torch.optim.Optimizer.zero_grad, torch.nn.Module.zero_grad)


@pytest.mark.parametrize(
    ("told", "free"),
    [
        ("MemFree: 1024 kB\nMemAvailable:   94371840 kB\n", 90 << 30),
        ("MemFree: 1024 kB\n", 4 * 4096),
        (None, 4 * 4096),
    ],
)
def test_what_only_caches_files_is_free_memory(monkeypatch, tmp_path, told, free):
    """Where it counted as held, a machine that had read much would start one program after the other."""
    if told is not None:
        (tmp_path / "meminfo").write_text(told)
    monkeypatch.setattr(observe, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(observe.os, "sysconf", {"SC_AVPHYS_PAGES": 4, "SC_PAGE_SIZE": 4096}.__getitem__)
    assert observe.free_bytes_of_host() == free
