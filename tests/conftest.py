"""What holds for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# A deadline for one example would measure how busy the machine is; what hangs meets pytest's timeout.
settings.register_profile("without deadline", settings.default, deadline=None)
settings.load_profile("without deadline")

_LINES = (Path(__file__).parent / "known_failures.txt").read_text().splitlines()
_KNOWN = dict(line.split(" | ") for line in _LINES if not line.startswith("#"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of known_failures.txt are expected to fail: chance and load decide for some, so one may pass."""
    for item in items:
        if reason := _KNOWN.get(item.nodeid):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=False))
