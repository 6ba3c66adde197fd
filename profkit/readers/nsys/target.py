"""What an export says of the machine, of its own making, and of what went wrong while it was recorded."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from profkit.model import Severity, Source
from profkit.readers.nsys.actors import pid_of
from profkit.readers.nsys.database import Database, integer, text

__all__ = ["export_facts", "is_fact", "note_diagnostics", "note_schema", "recorded_rank", "source_of"]

_NEWEST_SCHEMA = (3, 28)
"""The newest schema that was seen (nsys 2026.4)."""

_SYSTEM_FACTS = {
    # name in the export -> our name, and the only form in which a value is believed
    "NvDriverVersion": ("driver", r"[\d.]{1,20}"),
    "CpuDescription": ("cpu", r"[\w ()@.,+-]{1,80}"),
    "CpuCores": ("cpu_cores", r"\d{1,5}"),
    "CpuArchitecture": ("cpu_architecture", r"\w{1,20}"),
    "OsDescription": ("system", r"[\w ()./+-]{1,60}"),
}
_CAPTURE_FACTS = {
    "CUDA_GRAPH_TRACE_OPTIONS:MODE": ("cuda_graph_trace", r"\w{1,20}"),
    "CUDA_SKIP_SOME_API_CALLS": ("some_api_calls_skipped", r"true|false"),
    "COLLECT_GPU_MEMORY_USAGE": ("memory_usage", r"true|false"),
    "CUDA_TRACE_SCOPE": ("cuda_trace_scope", r"\w{1,20}"),
    "RUN_DURATION_MS": ("duration_ms", r"\d{1,12}"),
}
_CUDA_FACT = ("CudaDriverVersion", r"\d{4,6}")
_LOST = re.compile(
    r"\b(dropp\w+|lost|losing|overflow\w*|discarded|truncated|out of memory|missing|exceed\w*|incomplete)\b"
    r"|\bunknown (?:runtime|driver) API function"
    r"|\b(?:not all (?=\w{1,40}[\w ]{0,80} events)|(?=\w{1,40} profiling might have not been started))(?P<kind>\w{1,40})",
    re.IGNORECASE,
)
_NONE_LOST = re.compile(
    r"\b(0|no|zero)\s+(\w+\s+){0,3}(dropped|lost|discarded)|(dropped|lost|discarded)\w*\s*[:=]\s*0\b",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\\/][^\s\\/:'\"]+){2,}")
_TEXT_LIMIT = 200
_LOOKED_AT = 1000
"""Characters of a message that are searched; nsys' own are shorter."""
_RANK = re.compile(r'(?:^|;)(?:RANK|OMPI_COMM_WORLD_RANK|PMIX_RANK)="?(\d{1,6})"?(?:;|$)')


def is_fact(name: object, value: object) -> bool:
    """Whether a row of the tables of the environment is one that is read, and says nothing of who recorded, and where."""
    forms = {each: form for each, (_, form) in (*_SYSTEM_FACTS.items(), *_CAPTURE_FACTS.items())} | dict(
        [_CUDA_FACT]
    )
    form = forms.get(re.sub(r"^PROCESS_\d+:", "", text(name)))
    return form is not None and _believed(text(value), form) is not None


def export_facts(database: Database) -> dict[str, str]:
    """What the export says of its own making, by nsys' names; the table had another name before 2023.3."""
    facts: dict[str, str] = {}
    for name in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
        table = database.table(name)
        for key, value in table.rows("name", "value") if table else []:
            facts.setdefault(text(key), text(value))
    return facts


def source_of(database: Database, name: str) -> Source:
    """The source of a trace with the facts that are safe to show: chosen by name, and checked by form."""
    exported = export_facts(database)
    facts: dict[str, str] = {}
    version = _believed(exported.get("EXPORT_PRODUCT_VERSION", ""), r"[\w.-]{1,40}")
    if schema := _believed(exported.get("EXPORT_SCHEMA_VERSION", ""), r"[\d.]{1,20}"):
        facts["schema"] = schema
    _add_facts(facts, database, "TARGET_INFO_SYSTEM_ENV", _SYSTEM_FACTS)
    _add_facts(facts, database, "META_DATA_CAPTURE", _CAPTURE_FACTS)
    if cuda := _cuda_version(database):
        facts["cuda"] = cuda
    gpus = database.table("TARGET_INFO_GPU")
    if gpus and gpus.count():
        facts["gpus"] = str(gpus.count())
    return Source(name=name, format="nsys", tool="Nsight Systems", tool_version=version, facts=facts)


def recorded_rank(database: Database) -> int | None:
    """The rank that a launcher gave to the recorded command; nothing else of its environment is looked at."""
    for name, key in (
        ("META_DATA_CAPTURE", "ENVIRONMENT_VARIABLE"),
        ("TARGET_INFO_SYSTEM_ENV", "DeviceEnvironment"),
    ):
        table = database.table(name)
        for raw_key, raw_value in table.rows("name", "value") if table else []:
            if text(raw_key).endswith(key) and (match := _RANK.search(text(raw_value))):
                return int(match[1])
    return None


def note_schema(database: Database, schema: str | None) -> None:
    """Say when an export's schema is newer than any that was tested."""
    numbers = [int(part) for part in (schema or "").split(".") if part.isdigit()]
    if tuple(numbers[:2]) > _NEWEST_SCHEMA:
        newest = ".".join(map(str, _NEWEST_SCHEMA))
        database.note("schema-newer", Severity.INFO, schema=schema, newest=newest)


def note_diagnostics(database: Database, active: Container[int], *, has_ranges: bool) -> None:
    """Turn nsys' own messages about lost events into findings, without the paths that they may hold.

    Args:
        database: The export.
        active: Global ids of the processes that the trace shows; what concerns others is left out.
        has_ranges: Whether the trace has NVTX ranges.
    """
    table = database.table("DIAGNOSTIC_EVENT")
    counts: dict[str, int] = {}
    for content, process in table.rows("text", "globalPid") if table else []:
        owner = integer(process) or 0
        if pid_of(owner) and owner not in active:
            continue
        message = " ".join(text(content)[:_LOOKED_AT].split())
        if _LOST.search(message) and not _NONE_LOST.search(message):
            message = _PATH.sub("(path)", message)[:_TEXT_LIMIT]
            counts[message] = counts.get(message, 0) + 1
    for message, count in counts.items():
        kind = (_LOST.search(message) or {"kind": None})["kind"]
        # nsys says this of every process that has no NVTX at all
        harmless = kind is not None and (
            kind.upper() not in ("CUDA", "NVTX") or (kind.upper() == "NVTX" and not has_ranges)
        )
        severity = Severity.INFO if harmless else Severity.WARNING
        database.note("events-lost", severity, count, quote=message)


def _add_facts(
    facts: dict[str, str], database: Database, name: str, wanted: Mapping[str, tuple[str, str]]
) -> None:
    table = database.table(name)
    for raw_key, raw_value in table.rows("name", "value") if table else []:
        key = re.sub(r"^PROCESS_\d+:", "", text(raw_key))
        if key in wanted:
            ours, form = wanted[key]
            if (value := _believed(text(raw_value), form)) and ours not in facts:
                facts[ours] = value


def _cuda_version(database: Database) -> str | None:
    """``13000`` is CUDA 13.0, ``12080`` is 12.8."""
    table = database.table("TARGET_INFO_SYSTEM_ENV")
    for key, value in table.rows("name", "value") if table else []:
        if text(key) == _CUDA_FACT[0] and re.fullmatch(_CUDA_FACT[1], text(value)):
            number = int(text(value))
            return f"{number // 1000}.{number % 1000 // 10}"
    return None


def _believed(value: str, form: str) -> str | None:
    return value if re.fullmatch(form, value.strip()) else None
