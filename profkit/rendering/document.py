"""The document `profkit.report/2`: the report of `profkit.model.report` with its sentences.

Every struct here is the model's with the words added, and nothing else: rows without words are the model's own.
`Document` is what ``--format json`` writes and ``profkit.load`` reads, and what the JSON Schema is made from.
"""

from __future__ import annotations

from collections.abc import Sequence

from profkit.model import (
    findings,
    report,
    report_memory,
    report_numerics,
    report_precision,
    report_ranks,
    report_time,
    report_verdict,
)
from profkit.model.report import REPORT_SCHEMA

__all__ = [
    "Autocast",
    "AutocastOperator",
    "Document",
    "Finding",
    "Health",
    "Memory",
    "Method",
    "Numerics",
    "OutOfMemory",
    "Parallelism",
    "RankComparison",
    "StepRow",
    "Threshold",
    "Verdict",
    "Window",
]


class Finding(findings.Finding, frozen=True, kw_only=True):
    """Something about a file that a person should know."""

    message: str
    """One sentence with its number, and what to do where something can be done."""


class Health(report_verdict.Health, frozen=True, kw_only=True):
    """How far the files can be trusted."""

    findings: Sequence[Finding]
    """What was found, most severe first."""


class StepRow(report_time.StepRow, frozen=True, kw_only=True):
    """One step, summed over the devices."""

    note: str | None
    """What made it much longer than the median one."""


class Window(report_time.Window, frozen=True, kw_only=True):
    """The stretch of time that the report is about: the kept steps, or the whole recording where there are none."""

    steps: Sequence[StepRow]
    """All steps in order, also those that are left out."""


class Verdict(report_verdict.Verdict, frozen=True, kw_only=True):
    """What limits the step."""

    sentence: str
    """The verdict with its number."""
    remedy: str | None
    """What to record instead, where the files cannot decide."""
    caveats: Sequence[str]
    """What may make the verdict another one."""


class OutOfMemory(report_memory.OutOfMemory, frozen=True, kw_only=True):
    """An allocation that failed."""

    explanation: str
    """Which shortage it was, with the numbers."""


class Memory(report_memory.Memory, frozen=True, kw_only=True):
    """The memory section: of one snapshot, or of a timeline's own memory events.

    Peaks over all devices are those of the fullest device, not a sum: memory runs out on one GPU.
    """

    oom: Sequence[OutOfMemory]
    """What ran out of memory."""
    findings: Sequence[Finding]
    """On the recording first, then on the program."""


class AutocastOperator(report_precision.AutocastOperator, frozen=True, kw_only=True):
    """An operator that autocast kept in fp32, or that something in the program made an accident of."""

    message: str
    """What happened to it, and what to do about an accident."""


class Autocast(report_precision.Autocast, frozen=True, kw_only=True):
    """What autocast did, and what it left in fp32."""

    operators: Sequence[AutocastOperator]
    """Where, accidents first, most time first."""


class Numerics(report_numerics.Numerics, frozen=True, kw_only=True):
    """What a program's tensors held in sampled steps."""

    findings: Sequence[Finding]
    """What is wrong with them."""


class Parallelism(report_ranks.Parallelism, frozen=True, kw_only=True):
    """A way in which the work is spread over devices."""

    evidence: str
    """What shows it."""


class RankComparison(report_ranks.RankComparison, frozen=True, kw_only=True):
    """How ranks were compared, and who waits for whom; without a comparison, only what each device shows."""

    parallelism: Sequence[Parallelism]
    """How the work is spread."""


class Threshold(report.Threshold, frozen=True, kw_only=True):
    """A number that a verdict rests on."""

    name: str
    """What it decides."""
    value: str
    """The number with its unit."""
    source: str
    """Where it comes from."""


class Method(report.Method, frozen=True, kw_only=True):
    """How the numbers were made."""

    thresholds: Sequence[Threshold]
    """The numbers that decide."""
    ranks: RankComparison
    """How ranks were compared."""


class Document(report.Report, frozen=True, kw_only=True, tag_field="schema", tag=REPORT_SCHEMA):
    """What `profkit analyze --format json` writes."""

    health: Health
    """How far the files can be trusted."""
    window: Window
    """What the report is about: the kept steps, or the whole recording."""
    verdict: Verdict
    """What limits the step."""
    memory: Memory | None
    """Who holds memory; None where nothing recorded it."""
    autocast: Autocast | None = None
    """What autocast did; None where it was not used, or the recording has no types of operators."""
    precision_findings: Sequence[Finding] = ()
    """What the number formats put at risk."""
    numerics: Sequence[Numerics] = ()
    """What tensors held, one for each file that recorded it."""
    method: Method
    """How the numbers were made."""
