"""One name for one thing: the label of every share, idle cause, bound and resource, wherever it is shown."""

from __future__ import annotations

from profkit.rendering.words import share_term

__all__ = ["share_label"]


def share_label(share: str) -> str:
    """The label of a share."""
    return share_term(share).label
