"""What `recording` writes into a file and the readers look for: the marks of phases, and samples of Python."""

from __future__ import annotations

from typing import Final

__all__ = ["PHASE_DOMAIN", "PHASE_MARK", "PYTHON_CHAINS", "PYTHON_SAMPLES", "WORK_MARK"]

PHASE_DOMAIN: Final = "profkit"
"""The NVTX domain of `profkit.phase`; readers give it to marked annotations of other formats too."""

PHASE_MARK: Final = "profkit::"
"""The prefix by which `profkit.phase` marks a torch annotation. Readers take it off again."""

WORK_MARK: Final = "profkit.work "
"""How the annotation begins that says the work of the phase around it: ``profkit.work flop=1000 bytes=64``."""

PYTHON_SAMPLES: Final = "PROFKIT_PYTHON_SAMPLES"
"""The table of an nsys export that holds samples of Python: ``timestamp``, ``globalTid``, ``callchainId``."""

PYTHON_CHAINS: Final = "PROFKIT_PYTHON_CALLCHAINS"
"""Their call chains, as ``CUDA_CALLCHAINS`` has them: ``id``, ``symbol``, ``module`` (both of StringIds), ``line``,
``stackDepth`` from the innermost frame, which is 0."""
