"""Reports on ranks with their sentences, as a reader gets them."""

from profkit.rendering.spoken import spoken
from profkit.report import assembly

__all__ = ["summarise"]


def summarise(*args, **options):
    return spoken(assembly.summarise(*args, **options))
