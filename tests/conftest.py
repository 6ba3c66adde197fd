"""What holds for all tests."""

from hypothesis import settings

# A deadline for one example would measure how busy the machine is; what hangs meets pytest's timeout.
settings.register_profile("without deadline", settings.default, deadline=None)
settings.load_profile("without deadline")
