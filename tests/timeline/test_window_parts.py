from collections import Counter

import pytest

from profkit.timeline import window_parts as parts_module
from tests.comparison.recordings import recorded, with_slower_kernels

RECORDINGS = [
    ("gpt_bf16", "nsys"), ("ddp", "nsys"), ("graphnode_tiny_mlp", "nsys"), ("dataloader_stall", "kineto"),
    ("gpt_bf16_compile", "kineto"), ("sync_item", "nsys"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "folder"), RECORDINGS)
def test_parts_add_up_to_the_window_its_shares_and_its_idle_causes(name, folder):
    result = recorded(name, folder)
    parts = result.window.parts
    assert sum(part.ns for part in parts) == result.window.device_ns
    shares, causes = Counter(), Counter()
    for part in parts:
        shares[part.share] += part.ns
        causes[part.cause] += part.ns
    assert shares == Counter(result.verdict.shares)
    assert sum(causes[cause] for cause in causes if cause) == result.idle.total_ns
    assert all(causes[cause] == ns for cause, ns in result.idle.by_cause.items())


@pytest.mark.parametrize(("name", "folder"), RECORDINGS)
def test_a_part_is_idle_with_a_cause_or_busy_with_a_family(name, folder):
    for part in recorded(name, folder).window.parts:
        assert (part.cause is None) != (part.family is None)


def test_what_is_beyond_the_limit_is_united_and_still_adds_up(monkeypatch):
    monkeypatch.setattr(parts_module, "MOST_PARTS", 10)
    short, full = with_slower_kernels("gpt_bf16", 1.0).window, recorded("gpt_bf16").window
    assert sum(part.ns for part in short.parts) == full.device_ns
    assert sum(1 for part in short.parts if not part.rest) == 10
    families = [Counter(), Counter()]
    for window, family in zip((short, full), families, strict=True):
        for part in window.parts:
            family[part.family, part.cause] += part.ns
    assert families[0] == families[1]
