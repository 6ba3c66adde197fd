"""The NVTX domain of the phases, where an NVTX tool is attached to this process."""

from __future__ import annotations

import os
from typing import Any

from profkit.model.marks import PHASE_DOMAIN
from profkit.recording.notices import warn

__all__ = ["attached_domain", "under_nsys"]


_NO_PHASES = "an NVTX tool is attached, but it gets no phases: "


def attached_domain() -> Any:
    """The domain that ranges go to, or None without a tool; nvtx is imported only if there is one.

    A tool tells the process where its library is before the program starts, or it is never attached.
    """
    if not os.environ.get("NVTX_INJECTION64_PATH") or os.environ.get("NVTX_DISABLE"):
        return None
    try:
        import nvtx
        from nvtx._lib import lib

        handle = lib.DomainHandle(PHASE_DOMAIN)
        # nvtx.get_domain() asks the tool whether the domain is enabled, and gives a dummy if it does not
        # answer yes. Nsight Systems before 2024 does not know the question: its reports would be empty.
        domain = object.__new__(lib.Domain)
        domain.handle = handle
        domain.__init__(PHASE_DOMAIN)
    except ImportError:
        warn(_NO_PHASES + "the package nvtx is missing. Install it: pip install 'nvtx>=0.2.13'")
    except (AttributeError, TypeError) as error:
        warn(
            _NO_PHASES
            + f"nvtx {getattr(nvtx, '__version__', '')} is of an unknown kind ({error}). Install nvtx 0.2.13 or later"
        )
    else:
        return domain
    return None


def under_nsys() -> bool:
    """Whether Nsight Systems runs this process."""
    return "NSYS_PROFILING_SESSION_ID" in os.environ
