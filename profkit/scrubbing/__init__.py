"""Recordings in, recordings of the same format out, without what tells who recorded them, where, and with which secrets."""

from profkit.scrubbing.files import Scrubbed, scrub_file

__all__ = ["Scrubbed", "scrub_file"]
