"""Many ranks as one: which collectives are the same one, whose clock is off, and who waits for whom."""

from profkit.analysis.ranks.clocks import report_offsets
from profkit.analysis.ranks.events import DeviceCollectives, collectives_of
from profkit.analysis.ranks.held_up import verdict_on_ranks
from profkit.analysis.ranks.report import RanksFound, compare_ranks

__all__ = [
    "DeviceCollectives",
    "RanksFound",
    "collectives_of",
    "compare_ranks",
    "report_offsets",
    "verdict_on_ranks",
]
