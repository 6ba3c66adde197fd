"""The typed rows hold everything that the producers write, and the mapping that still imitates dictionaries."""

import json
import pickle
import runpy
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import profkit
from profkit.model.report import Interval, Severity, replace
from profkit.rendering.document import Document
from profkit.rendering.schema import report_schema
from tests.shared import DATA, SHARED, needs_shared

ROOT = Path(__file__).parents[2]
OURS = (
    ["kineto/gpt_bf16_compile.json.gz"],
    ["kineto/sync_item_stack.json.gz"],
    ["kineto/ddp_rank0.json.gz", "kineto/ddp_rank1.json.gz"],
    ["cases/12_metadata_only.json"],
    ["cases/37_graph_level_only.sqlite"],
    ["cases/52_mem_expandable.pickle"],
    ["cases/54_mem_no_history.pickle"],
)
SHARED_FILES = (
    ["recordings/nsys/metrics_gpt_bf16.sqlite"],
    ["recordings/snapshot/leak.pickle"],
    ["recordings/snapshot/fragmentation.pickle"],
)


def unknown_names(given: Any, kept: Any, place: str = "") -> list[str]:
    """Where a value has names that its decoded copy has lost."""
    if isinstance(given, dict):
        lost = [f"{place}.{name}" for name in given if name not in kept]
        return lost + [
            each for n in given if n in kept for each in unknown_names(given[n], kept[n], f"{place}.{n}")
        ]
    if isinstance(given, list):
        pairs = zip(given, kept, strict=True)
        return [each for one, other in pairs for each in unknown_names(one, other, f"{place}[]")]
    return [] if given == kept else [f"{place}: {given!r} became {kept!r}"]


def check(document: dict[str, Any]) -> Document:
    """Decode a report strictly, and see that nothing of it is lost and that the schema says the same."""
    made = msgspec.convert(document, Document, strict=True)
    written = json.loads(msgspec.json.encode(made))
    assert sorted(set(unknown_names(document, written))) == []
    jsonschema.Draft202012Validator(report_schema()).validate(written)
    return made


@pytest.mark.parametrize("files", OURS, ids=lambda files: Path(files[0]).name)
def test_rows_hold_what_producers_write(files: list[str]):
    check(profkit.analyze([DATA / file for file in files]).as_dict())


@needs_shared
@pytest.mark.parametrize("files", SHARED_FILES, ids=lambda files: Path(files[0]).name)
def test_rows_hold_what_producers_write_of_larger_files(files: list[str]):
    check(profkit.analyze([SHARED / file for file in files]).as_dict())


def test_names_that_are_lost_are_found():
    given = {"a": [{"b": 1, "c": 2}], "d": 3}
    assert unknown_names(given, {"a": [{"b": 1}], "d": 4}) == [".a[].c", ".d: 3 became 4"]


def test_a_document_of_another_version_is_refused():
    document = profkit.analyze(DATA / "cases/12_metadata_only.json").as_dict()
    with pytest.raises(msgspec.ValidationError, match=r"profkit\.report/9"):
        msgspec.convert({**document, "schema": "profkit.report/9"}, Document)


def test_every_field_of_the_schema_is_described():
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    parts = {"Document": schema, **schema["$defs"]}
    silent = [
        f"{name}.{field}"
        for name, part in parts.items()
        for field, value in part.get("properties", {}).items()
        if not value.get("description") and field != "schema"
    ]
    assert silent == []
    assert len(parts) > 40


def test_the_schema_and_the_table_of_fields_in_the_docs_are_those_of_the_types():
    script = runpy.run_path(str(ROOT / "docs/dev/report_fields.py"))
    for path, text in script["written"]().items():
        assert path.read_text("utf-8") == text, f"run python docs/dev/report_fields.py: {path.name} is stale"


def test_a_row_is_frozen_and_travels():
    row = Interval(low=1.0, likely=2.0, high=3.0)
    with pytest.raises(AttributeError):
        row.low = 0.0
    assert replace(row, low=0.5) == Interval(low=0.5, likely=2.0, high=3.0)
    assert pickle.loads(pickle.dumps(row)) == row


def test_severities_are_in_order_of_weight_and_not_of_letters():
    assert sorted([Severity.ERROR, Severity.INFO, Severity.WARNING]) == list(Severity)
    assert Severity.INFO < Severity.ERROR
    assert Severity.WARNING >= "info"


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="gpu_exclusve_ns"):
        replace(Interval(low=1.0, likely=2.0, high=3.0), gpu_exclusve_ns=1)


@pytest.mark.parametrize(
    "table",
    ["kernels", "phases", "steps", "devices", "operators", "ranges", "syncs", "gaps", "communication", "ranks", "advice"],
)  # fmt: skip
def test_a_table_has_its_columns_also_where_it_is_empty(table):
    empty = getattr(profkit.analyze(DATA / "cases/12_metadata_only.json"), table)
    full = getattr(profkit.analyze(DATA / "kineto/sync_item_stack.json.gz"), table)
    assert len(empty) == 0
    assert list(empty.columns) == list(full.columns) != []
