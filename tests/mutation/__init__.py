"""Mutation testing of the core of the analysis: ``python -m tests.mutation.run --seed 1 --sample 300``."""
