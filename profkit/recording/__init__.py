"""A running program to files: phases, the recorder, and what wraps a whole script."""
