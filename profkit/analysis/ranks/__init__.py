"""Many ranks as one: which collectives are the same one, whose clock is off, and who waits for whom."""

from profkit.analysis.ranks.clocks import report_offsets
from profkit.analysis.ranks.held_up import verdict_on_ranks
from profkit.analysis.ranks.report import RanksFound, compare_ranks
from profkit.analysis.ranks.section import FileOfRanks, RankSection, file_of_ranks, rank_section

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
