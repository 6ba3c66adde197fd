"""Reports on ranks with their sentences, as a reader gets them."""

from profkit.rendering.document_of import document_of
from profkit.report import assembly

__all__ = ["summarise"]


def summarise(*args, **options):
    return document_of(assembly.summarise(*args, **options))
