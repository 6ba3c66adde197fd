"""What holds for all tests."""

import signal

from hypothesis import settings

# A deadline for one example would measure how busy the machine is; what hangs meets pytest's timeout.
settings.register_profile("without deadline", settings.default, deadline=None)
settings.load_profile("without deadline")

# What a shell starts in the background ignores Ctrl-C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
