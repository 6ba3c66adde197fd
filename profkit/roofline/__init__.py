"""The work of operations: kernel names, FLOP and byte models, bounds."""
