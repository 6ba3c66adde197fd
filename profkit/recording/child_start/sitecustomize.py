"""Python runs this at the start of each program that a recorded program starts: one that trains is recorded too.

The folder is on PYTHONPATH for that, so any Python may come here. Until it imports torch, nothing of profkit is imported.
"""

import contextlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any


def _let_pass() -> None:
    """Take this folder off the path, and run the sitecustomize that it hides."""
    here = Path(__file__).parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry) != here]
    this = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        sys.modules["sitecustomize"] = this


class _WithTorch:
    """Begins once the program has imported torch."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                with contextlib.suppress(ImportError):  # a Python without profkit
                    importlib.import_module("profkit.recording.children").record_this_program()

            spec.loader.exec_module = exec_module
        return spec


_let_pass()
sys.meta_path.insert(0, _WithTorch())
