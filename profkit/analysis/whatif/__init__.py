"""What a change would save: the step as a program that can be changed and replayed."""
