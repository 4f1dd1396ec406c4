"""Writes docs/reference/openapi.json and docs/reference/json-api.md from the table of operations of the API for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fidelio.surfaces.http.api.application import OPERATIONS
from fidelio.surfaces.http.api.document import PROBLEMS, build_document

REFERENCE = Path(__file__).resolve().parents[1] / "docs" / "reference"
DOCUMENT, PAGE = REFERENCE / "openapi.json", REFERENCE / "json-api.md"
_HEAD = """# The API for scripts

Every operation below `/api`. [Use the API in scripts](../guides/scripts.md) is the guide. [openapi.json](openapi.json)
describes bodies and results in full; a running server sends the same at `/api/openapi.json`. This page is generated from it.
"""
_PROBLEMS = """
## Problems

The codes that only this API has. Other codes are those of the [errors of the command line](cli.md).

| code | status | meaning |
|---|---|---|
"""


def render_document() -> str:
    return json.dumps(build_document(OPERATIONS), indent=1, ensure_ascii=False) + "\n"


def render() -> str:
    document = build_document(OPERATIONS)
    groups = (_render_group(document, tag["name"]) for tag in document["tags"])
    problems = (f"| `{code}` | {status} | {text} |" for code, (status, text) in PROBLEMS.items())
    return _HEAD + "".join(groups) + _PROBLEMS + "\n".join(problems) + "\n"


def _render_group(document: Mapping[str, Any], group: str) -> str:
    rows = "".join(
        _render_row(method, path, described)
        for path, methods in document["paths"].items()
        for method, described in methods.items()
        if described["tags"] == [group]
    )
    return f"\n## {group}\n\n| operation | what it does | parameters or body |\n|---|---|---|\n{rows}"


def _render_row(method: str, path: str, described: Mapping[str, Any]) -> str:
    names = ", ".join(_list_names(described))
    return f"| `{method.upper()} {path}` | {described['summary']} | {names} |\n"


def _list_names(described: Mapping[str, Any]) -> Iterator[str]:
    """The parameters of the query, and the struct of the body."""
    for parameter in described["parameters"]:
        if parameter["in"] == "query":
            yield f"`{parameter['name']}`" + (" (required)" if parameter["required"] else "")
    if "requestBody" in described:
        yield f"`{described['requestBody']['content']['application/json']['schema']['$ref'].rpartition('/')[2]}`"


def main() -> None:
    DOCUMENT.write_text(render_document(), "utf-8")
    PAGE.write_text(render(), "utf-8")


if __name__ == "__main__":
    main()
