"""A report as the document that profkit publishes: the same rows, with their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from profkit.model import findings, report_memory, report_precision, rows
from profkit.model.report import Method, Report
from profkit.model.report_ranks import RankComparison
from profkit.model.report_time import Window
from profkit.rendering import document
from profkit.rendering.document import Document
from profkit.rendering.sentences import (
    autocast_message,
    finding_message,
    oom_explanation,
    parallelism_evidence,
    step_note,
    threshold_words,
    verdict_caveats,
    verdict_remedy,
    verdict_sentence,
)

__all__ = ["document_of", "said_findings"]

D = TypeVar("D", bound=rows.Row)


def document_of(report: Report) -> Document:
    """The report with the sentences of all its codes; of a document itself.

    One that was read back may have sentences without the numbers that they were made from.
    """
    if isinstance(report, Document):
        return report
    return _said(
        Document,
        report,
        health=_said(document.Health, report.health, findings=said_findings(report.health.findings)),
        window=_window(report.window),
        verdict=_said(
            document.Verdict,
            report.verdict,
            sentence=verdict_sentence(report),
            remedy=verdict_remedy(report),
            caveats=verdict_caveats(report),
        ),
        memory=_memory(report.memory) if report.memory is not None else None,
        autocast=_autocast(report.autocast) if report.autocast is not None else None,
        precision_findings=said_findings(report.precision_findings),
        numerics=[
            _said(document.Numerics, row, findings=said_findings(row.findings)) for row in report.numerics
        ],
        method=_method(report.method),
    )


def said_findings(found: Sequence[findings.Finding]) -> list[document.Finding]:
    """Findings with their messages."""
    return [_said(document.Finding, row, message=finding_message(row)) for row in found]


def _window(window: Window) -> document.Window:
    steps = [_said(document.StepRow, row, note=step_note(row)) for row in window.steps]
    return _said(document.Window, window, steps=steps)


def _memory(memory: report_memory.Memory) -> document.Memory:
    ooms = [_said(document.OutOfMemory, row, explanation=oom_explanation(row)) for row in memory.oom]
    return _said(document.Memory, memory, oom=ooms, findings=said_findings(memory.findings))


def _autocast(autocast: report_precision.Autocast) -> document.Autocast:
    rows_said = [
        _said(document.AutocastOperator, row, message=autocast_message(row)) for row in autocast.operators
    ]
    return _said(document.Autocast, autocast, operators=rows_said)


def _method(method: Method) -> document.Method:
    thresholds = [
        _said(document.Threshold, row, **threshold_words(row)._asdict()) for row in method.thresholds
    ]
    return _said(document.Method, method, thresholds=thresholds, ranks=_ranks(method.ranks))


def _ranks(ranks: RankComparison) -> document.RankComparison:
    rows_said = [
        _said(document.Parallelism, row, evidence=parallelism_evidence(row)) for row in ranks.parallelism
    ]
    return _said(document.RankComparison, ranks, parallelism=rows_said)


def _said(kind: type[D], row: rows.Row, **words: Any) -> D:
    """A row of the model as one of the document."""
    given = {name: getattr(row, name) for name in row.__struct_fields__}
    return kind(**{**given, **words})
