"""What readers find in files: lost events, versions that they do not know, files that fail."""

from __future__ import annotations

from typing import Final

from profkit.rendering.sentences.wording import Params, Table, Template, say
from profkit.units import noun_text

__all__ = ["FINDINGS", "family_of"]


def family_of(code: str) -> Template:
    """The sentence of a code that is made from a reason: ``dropped-zero-length``.

    Raises:
        KeyError: There is no sentence for the code.
    """
    if not code.startswith("dropped-"):
        raise KeyError(code)
    reason = code.removeprefix("dropped-").replace("-", " ")
    return lambda params: f"{noun_text(_int(params, 'count'), 'event')} left out: {reason}."


def _truncated(params: Params) -> str:
    if "expanded_bytes" in params:
        what = "is damaged ({error})" if params["error"] else "ends early"
        return say(f"The {{compression}} data {what}; only its first {{expanded_bytes}} were read.", params)
    if params.get("what") == "ncu":
        return say("The table ends early: {count:incomplete row} ignored.", params)
    if "events" not in params:
        return "The file is cut short or damaged, so some of its events are missing."
    rest = "; its last {ignored_bytes} were ignored" if params["ignored_bytes"] else ""
    return say(f"The file ends early: {{events:complete event}} read{rest}.", params)


def _damaged(params: Params) -> str:
    if "rows" in params:
        return say("Only the first {rows:row} of table {table} could be read ({error}).", params)
    return say("Table {table} cannot be read ({error}).", params)


def _schema_newer(params: Params) -> str:
    if "known" in params:
        return say("{table} was read as {known}; its schema is newer than any tested with profkit.", params)
    return say(
        "Schema {schema} is newer than any tested with profkit ({newest}); unknown tables are ignored.",
        params,
    )


def _devices_ambiguous(params: Params) -> str:
    taken = "one GPU each (CUDA_VISIBLE_DEVICES)" if params["separate"] else "one shared GPU"
    return say(f"{{processes:process}} used the same device number. profkit assumes {taken}.", params)


def _no_device_work(params: Params) -> str:
    if not params["host_events"]:
        return (
            "No CUDA and no NVTX events were recorded. "
            "Record with: nsys profile -t cuda,nvtx,cublas,cudnn -s none --cpuctxsw=none python train.py"
        )
    return (
        "No GPU work was recorded. It may run in another process (nsys profile --trace-fork-before-exec=true), "
        "or start after the capture ended. Another profiler may be attached, or CUPTI was refused "
        "(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES in containers)."
    )


def _int(params: Params, name: str) -> int:
    value = params[name]
    return value if isinstance(value, int) else 0


_NOT_JSON: Final = "The file is not valid JSON: "

FINDINGS: Final[Table] = {
    "invalid-utf8": _NOT_JSON + "bytes that are not UTF-8 were replaced ({count:time}).",
    "invalid-escapes": _NOT_JSON + "lone backslashes in strings were kept ({count:time}).",
    "lone-surrogates": _NOT_JSON + "halves of surrogate pairs were replaced ({count:time}).",
    "control-characters": _NOT_JSON + "control characters in strings became spaces ({count:time}).",
    "bare-numbers": _NOT_JSON + "the values inf and nan were read as unknown ({count:time}).",
    "trailing-commas": _NOT_JSON + "commas before a closing bracket were ignored ({count:time}).",
    "bare-quotes": _NOT_JSON + "quotes inside names were kept ({count:time}).",
    "mixed-encodings": "The file changes its encoding (UTF-8, UTF-16 or UTF-32) midway, as when a tool appends to it. "
    "The rest cannot be read; write it in one encoding.",
    "truncated": _truncated,
    "unreadable-events": _NOT_JSON + "{count:event} could not be read.",
    "invalid-header": "The file is not valid JSON outside its events, so its facts about the machine may be incomplete.",
    "no-events": "No CPU or GPU events are in this trace. Record the activities CPU and CUDA, and call step() on the profiler.",
    "other-accelerator": "The device is {accelerators}, whose events profkit does not read: only host times are reported.",
    "unknown-categories": "Events of unknown categories were ignored: {categories}.",
    "malformed": "The memory snapshot contains malformed records, which were left out: {what}.",
    "unknown-actions": "This version of profkit does not know the action of {count:memory history entry}.",
    "secrets": "The file holds {count:access key}, or what looks like it. Before you share it, make a copy without: "
    "profkit scrub FILE -o COPY.",
    "export-stale": "{export} is older than {report} beside it, so it comes from an earlier recording. "
    "Export again: nsys export --type sqlite --force-overwrite=true {report}",
    "table-refused": "{table} is a view or a virtual table, so it was not read.",
    "damaged": _damaged,
    "unfinished-writes": "A {suffix} file lies beside the export: its last changes were not written, and are not read.",
    "schema-newer": _schema_newer,
    "devices-ambiguous": _devices_ambiguous,
    "graphs-opaque": "{count:CUDA graph launch} recorded as a whole: their time is known, their kernels are not. "
    "Record with nsys profile --cuda-graph-trace=node to see them.",
    "graphs-invisible": "{count:CUDA graph launch} left no GPU record, so their time appears idle. "
    "Record with nsys profile --cuda-graph-trace=node to see them.",
    "no-device-work": _no_device_work,
    "events-lost": "nsys reports: {quote}",
    "ncu-errors": "ncu reported {count:error}. The first is: {first}",
    "ncu-no-duration": "The table lacks {metric}, so kernel times are unknown. Record with ncu --section SpeedOfLight.",
    "names-put-together": "The operations have too many names; the {count:name} that take least time are grouped.",
    "ranges-open": "{count:NVTX range} never closed; profkit ends them with the last event of the recording.",
    "file-failed": "{error} (The report covers the other files.)",
}
