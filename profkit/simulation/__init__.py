"""What a change would save: the step as a program that can be changed and replayed."""

from profkit.simulation.predict import Change, Prediction, Step, find_step
from profkit.simulation.registry import CHANGES, changes_named

__all__ = ["CHANGES", "Change", "Prediction", "Step", "changes_named", "find_step"]
