"""Many ranks as one: which collectives are the same one, whose clock is off, and who waits for whom."""

from profkit.ranks.clocks import report_offsets
from profkit.ranks.rank_section import FileOfRanks, RankSection, file_of_ranks, rank_section
from profkit.ranks.rank_table import RanksFound, compare_ranks
from profkit.ranks.straggler_verdict import verdict_on_ranks

__all__ = [
    "FileOfRanks",
    "RankSection",
    "RanksFound",
    "compare_ranks",
    "file_of_ranks",
    "rank_section",
    "report_offsets",
    "verdict_on_ranks",
]
