"""Write what docs say of the JSON documents from their types: the JSON Schemas, and the report's table of fields.

    python docs/dev/report_fields.py

A test compares the files with what this would write.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from profkit.rendering.comparison_json import comparison_schema, gate_schema
from profkit.rendering.schema import report_schema
from profkit.trial.document import try_schema

DOCS: Final = Path(__file__).parents[1]


def written() -> dict[Path, str]:
    """The files with their text."""
    schemas = {
        "report": report_schema(),
        "compare": comparison_schema(),
        "gate": gate_schema(),
        "try": try_schema(),
    }
    made = {
        DOCS / f"{name}.schema.json": json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        for name, schema in schemas.items()
    }
    return made | {DOCS / "report-fields.md": "\n".join(_page(schemas["report"])) + "\n"}


def _page(schema: dict[str, Any]) -> list[str]:
    structs = {name: part for name, part in schema["$defs"].items() if "properties" in part}
    names = {name: _type(part) for name, part in schema["$defs"].items() if name not in structs}
    lines = [
        f"# The fields of `{schema['title']}`",
        "",
        f"{schema['description']} This page and [report.schema.json](report.schema.json) are made from the types by",
        "`docs/dev/report_fields.py`.",
    ]
    # In the order in which a reader meets them: a part follows what first names it.
    waiting, seen = [("The report", schema)], {"The report"}
    while waiting:
        name, part = waiting.pop(0)
        lines += ["", f"## {name}", ""]
        if name != "The report":
            lines += [part["description"].replace("\n", " "), ""]
        lines += ["| field | type | meaning |", "|---|---|---|"]
        rows = [_row(field, value, part) for field, value in part["properties"].items()]
        for other, kind in names.items():
            rows = [row.replace(f"[{other}](#{other.lower()})", kind) for row in rows]
        lines += rows
        found = [each for each in _parts_in(part["properties"]) if each in structs and each not in seen]
        seen.update(found)
        waiting += [(each, structs[each]) for each in dict.fromkeys(found)]
    return lines


def _row(field: str, value: dict[str, Any], part: dict[str, Any]) -> str:
    kind = _type(value) + ("" if field in part.get("required", ()) else ", may be absent")
    meaning = " ".join(value.get("description", "the name of this schema").split())
    return f"| `{field}` | {kind} | {meaning} |".replace("||", "\\|\\|")


def _type(value: dict[str, Any]) -> str:  # one line for each form that a schema has
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in value:
        return ", ".join("null" if one is None else f"`{one}`" for one in value["enum"])
    if "anyOf" in value:
        return " or ".join(map(_type, value["anyOf"]))
    if "prefixItems" in value:
        return f"[{', '.join(map(_type, value['prefixItems']))}]"
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}"
    if value.get("type") == "object":
        return f"map to {_type(value['additionalProperties'])}"
    kinds = value.get("type", "any")
    return " or ".join(kinds) if isinstance(kinds, list) else str(kinds)


def _parts_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].rpartition("/")[2]] if "$ref" in value else []
        return own + [name for each in value.values() for name in _parts_in(each)]
    return [name for each in value for name in _parts_in(each)] if isinstance(value, list) else []


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, "utf-8")
        print(path.relative_to(DOCS.parent))
