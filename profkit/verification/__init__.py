"""Totals worked out a second time, from the raw files, and compared with what a report says."""
