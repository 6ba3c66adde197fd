"""What a change would save: the step as a program that can be changed and replayed."""

from profkit.analysis.whatif.catalogue import CHANGES, changes_named
from profkit.analysis.whatif.predict import Change, Prediction, Step, find_step

__all__ = ["CHANGES", "Change", "Prediction", "Step", "changes_named", "find_step"]
