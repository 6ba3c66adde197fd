"""Every sentence of a report: codes and numbers come in, English goes out.

One module a topic, each with a table of code to sentence. A sentence is a template of `wording.say`, or a small
function where words depend on values. Producers give a `Finding` or a `Fact`; a code without a sentence fails a test.

The rules of `profkit.advice` keep their words beside their logic, and the changes of the registry their help.
"""

from __future__ import annotations

from typing import Final

from profkit.model.findings import Finding
from profkit.model.report_memory import OutOfMemory
from profkit.model.report_ranks import Parallelism
from profkit.rendering.sentences import health, memory, numerics, precision, ranks, readers, verification
from profkit.rendering.sentences.memory import oom_explanation
from profkit.rendering.sentences.method import ThresholdWords, threshold_words
from profkit.rendering.sentences.precision import autocast_message
from profkit.rendering.sentences.ranks import parallelism_evidence
from profkit.rendering.sentences.steps import step_note
from profkit.rendering.sentences.verdict import verdict_caveats, verdict_remedy, verdict_sentence
from profkit.rendering.sentences.wording import Table, say

__all__ = [
    "FINDINGS",
    "OutOfMemory",
    "Parallelism",
    "ThresholdWords",
    "autocast_message",
    "finding_message",
    "oom_explanation",
    "parallelism_evidence",
    "step_note",
    "threshold_words",
    "verdict_caveats",
    "verdict_remedy",
    "verdict_sentence",
]

FINDINGS: Final[Table] = {
    **readers.FINDINGS,
    **health.FINDINGS,
    **memory.FINDINGS,
    **ranks.FINDINGS,
    **precision.FINDINGS,
    **numerics.FINDINGS,
    **verification.FINDINGS,
}
"""The sentence of each finding by its code."""


_OF_FILES: Final = {
    "in_file": "{told}: {text}",
    "same_files": "{text} (the same in {told:more file})",
    "alike_files": "{text} ({told:more file} with other numbers)",
}
"""What is added in a report of several files: which has the finding, and how many the same, or one with other numbers."""


def finding_message(finding: Finding) -> str:
    """What a finding says: one sentence, and what to do where something can be done."""
    template = FINDINGS.get(finding.code) or readers.family_of(finding.code)
    text = say(template, {"count": finding.count, **finding.params})
    for name, template in _OF_FILES.items():
        if told := finding.params.get(name):
            text = say(template, {"text": text, "told": told})
    return text
