"""Runs that are kept: saved reports, and a database of them."""
