"""``python -m profkit.recording.run_numerics OPTIONS train.py ...``: an unchanged script, whose numerics are recorded."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from profkit.recording.run_script import main
from profkit.recording.signals import EndsFirst

__all__ = ["recorded_numerics"]


@contextmanager
def recorded_numerics(options: dict[str, Any]) -> Iterator[None]:
    """Record the numerics of a program that says nothing of them; Ctrl-C and SIGTERM keep what was recorded."""
    if importlib.util.find_spec("msgspec") is None:  # other recordings need none of profkit's packages
        install = f"Install it there: {sys.executable} -m pip install msgspec"
        sys.exit(f"Error: {sys.executable}: has no msgspec, which writes numerics.json. {install}")
    from profkit.recording.numerics import numerics

    with numerics(every=options["every"], folder=options["folder"]) as recorder:

        def end(cause: str) -> bool:
            recorder.stop(f"ended by {cause}")
            return True

        signals = EndsFirst(end)
        try:
            yield
        finally:
            signals.give_back()


if __name__ == "__main__":
    # The script becomes __main__: what children unpickle must be found elsewhere.
    main(sys.argv[1:], importlib.import_module("profkit.recording.run_numerics").recorded_numerics)
