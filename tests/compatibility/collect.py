"""Snapshot of every name that must never be renamed, collected from the running code.

    python -m tests.compatibility.collect --write

writes `tests/compatibility/snapshot/`. Do that only to add a name. A name that disappears from the snapshot breaks ledgers,
tokens, homes, clients or scripts of users: put it back, with `rename=` or a constant, instead of writing the snapshot anew.
The parts `source` and `words` are collected from all strings of the source, so they also hold strings that were never stored or
shown. Only such a string may leave the snapshot, and the commit message says why.

Most names are collected through what is public: the command line, `tools/list`, the file of a new ledger, and the scripts that
generate the reference pages. `STRUCTS` and `ERRORS` are the only places that name modules of Fidelio. If one of these
classes moves, update its path and keep its label.
"""

from __future__ import annotations

import json
import pkgutil
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec

import fidelio
from fidelio.surfaces.http.api.application import OPERATIONS
from fidelio.surfaces.http.api.document import build_document
from scripts import generate_cli_docs, generate_lint_docs, generate_schemas
from tests.compatibility import source_text
from tests.compatibility.program import Json, Program
from tests.compatibility.scenario_shape import scenario_shape
from tests.ledger.postgres.server import find_programs, start_server

SNAPSHOT = Path(__file__).parent / "snapshot"

ERRORS = "fidelio.errors:FidelioError"
# What is stored in the ledger, in a spool, in a worktree's note or in a token, or read from a file of the user.
STRUCTS = {
    "record of a workflow session": "fidelio.engine.state:Record",
    "record of an agent session": "fidelio.orchestrator.record.record:AgentRecord",
    "record of a runtime session": "fidelio.runtime.record:RuntimeRecord",
    "environment": "fidelio.runtime.environments.versions:Environment",
    "claims of a session token": "fidelio.workflows.tokens:Claims",
    "claims of a state token": "fidelio.workflows.tokens:StateClaims",
    "session in a state token": "fidelio.workflows.tokens:CarriedSession",
    "anchor": "fidelio.anchors.model:Anchor",
    "statement of an anchor": "fidelio.anchors.model:Statement",
    "last anchor of a series": "fidelio.anchors.service:SeriesState",
    "text in an event": "fidelio.ledger.long_text:TextReference",
    "plan of a conducted run": "fidelio.conductor.plan:Plan",
    "progress of a conducted run": "fidelio.conductor.context:ProgressEvent",
    "report of a worker": "fidelio.conductor.reports:_ManifestObject",
    "blueprint in the ledger": "fidelio.orchestrator.blueprints.model:Blueprint",
    "blueprint file": "fidelio.orchestrator.blueprints.reading:PageHead",
    "blueprint servers file": "fidelio.orchestrator.blueprints.reading:ServersFile",
    "options of the executor command": "fidelio.orchestrator.executors.command:CommandOptions",
    "options of the executor local-model": "fidelio.orchestrator.executors.local_model.executor:LocalOptions",
    "script of the executor scripted": "fidelio.orchestrator.executors.scripted.script:_ScriptFile",
    "spool line": "fidelio.orchestrator.executors.line_protocol:Line",
    "spool answer": "fidelio.orchestrator.executors.line_protocol:AnswerLine",
    "spool task of scripted": "fidelio.orchestrator.executors.scripted.player:ScriptedTurn",
    "spool task of local-model": "fidelio.orchestrator.executors.local_model.process:Task",
    "note beside a worktree": "fidelio.orchestrator.runs.worktrees:WorktreeNote",
}

DIALECTS = {
    "sessions": ("--dialect", "sessions"),
    "gates": ("--dialect", "gates"),
    "navigator": ("--dialect", "navigator"),
    "worker": ("--worker",),
    "orchestrator": ("--toolset", "orchestrator"),
}

_POSTGRES_COLUMNS = (
    "SELECT table_name || ' ' || column_name || ' ' || data_type FROM information_schema.columns "
    "WHERE table_schema = 'fidelio' ORDER BY table_name, column_name"
)


def collect(directory: Path) -> dict[str, Json]:
    """The parts of the snapshot that need neither the scenario nor PostgreSQL, by file name. `directory` is empty."""
    program = Program(directory / "empty")
    return {
        "commands": commands(),
        "errors": errors(),
        "api": api(),
        "tools": {name: tools(program, *arguments) for name, arguments in DIALECTS.items()},
        "sqlite": sqlite(program),
        "structs": {label: schema_paths(_struct_schema(path)) for label, path in STRUCTS.items()},
        "definitions": {kind: _ends(schema_paths(generate_schemas.schema(kind))) for kind in generate_schemas.KINDS},
        "source": {
            "lint rules": sorted(set(re.findall(r"^\| \[`([\w-]+)`\]", generate_lint_docs.render(), re.MULTILINE))),
            "dotted": source_text.dotted(),
            "hash domains": source_text.domains(),
            "environment": source_text.variables(),
            "choices": source_text.choices(),
            "phrases": source_text.phrases(),
        },
        "words": {"words": source_text.words()},
    }


def commands() -> Json:
    """Every command, hidden ones too, with its arguments and options."""
    root = next(generate_cli_docs.commands())
    return {" ".join(words): _parameters(command) for words, command in _walk(root.command, root, ("fidelio",))}


def _walk(
    command: click.Command, context: click.Context, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _walk(inner, context, (*words, name))


def _parameters(command: click.Command) -> list[str]:
    return sorted(line for parameter in command.params for line in _spellings(parameter))


def _spellings(parameter: click.Parameter) -> Iterator[str]:
    names = [parameter.human_readable_name] if isinstance(parameter, click.Argument) else parameter.opts
    choices = list(parameter.type.choices) if isinstance(parameter.type, click.Choice) else []
    for name in (*names, *parameter.secondary_opts):
        yield name
        yield from (f"{name} {choice}" for choice in choices)


def errors() -> Json:
    """Error codes with their exit codes, of all modules, and the further exit codes of the command line."""
    for module in pkgutil.walk_packages(fidelio.__path__, "fidelio."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    found = {error.code: error.exit_code for error in _subclasses(_named(ERRORS))}
    return {"codes": dict(sorted(found.items())), "exit codes": sorted(generate_cli_docs.MEANINGS)}


def _subclasses(base: Any) -> Iterator[Any]:
    yield base
    for derived in base.__subclasses__():
        if derived.__module__.startswith("fidelio."):
            yield from _subclasses(derived)


def api() -> Json:
    """The operations of the API for scripts: where they are, their parameters, and the keys of bodies, results and problems."""
    document = build_document(OPERATIONS)
    described = {
        inner["operationId"]: {
            "address": f"{method.upper()} {path}",
            "parameters": sorted(each["name"] for each in inner["parameters"]),
            "body": _content_paths(inner.get("requestBody", {}), document),
            "result": [
                line for status in ("200", "201") for line in _content_paths(inner["responses"].get(status, {}), document)
            ],
        }
        for path, methods in document["paths"].items()
        for method, inner in methods.items()
    }
    problem = sorted(set(_schema_paths(document["components"]["schemas"]["ProblemDetails"], document, "", ())))
    return {"operations": described, "problem": problem, "problems": sorted(document["x-problems"])}


def _content_paths(part: Json, document: Json) -> list[str]:
    schemas = [content["schema"] for content in part.get("content", {}).values()]
    return sorted({line for schema in schemas for line in _schema_paths(schema, document, "", ())})


def tools(program: Program, *arguments: str) -> Json:
    """The tools of one dialect or toolset: the paths of their parameters and of their structured results."""
    with program.serve(*arguments) as server:
        listed = server.tools()
    return {
        tool["name"]: {
            "parameters": schema_paths(tool["inputSchema"]),
            "required": sorted(tool["inputSchema"].get("required", [])),
            "result": schema_paths(tool.get("outputSchema", {})),
        }
        for tool in listed
    }


def sqlite(program: Program) -> Json:
    """Tables with their columns, and the two numbers by which a ledger is recognised."""
    program.home.mkdir(mode=0o700, exist_ok=True)
    program("sessions")
    connection = sqlite3.connect(program.home / "ledger.db")
    try:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        return {
            "tables": {name: _columns(connection, name) for name in names},
            "application_id": connection.execute("PRAGMA application_id").fetchone()[0],
            "user_version": connection.execute("PRAGMA user_version").fetchone()[0],
        }
    finally:
        connection.close()


def postgres(directory: Path) -> Json | None:
    """The same of a new ledger in PostgreSQL; None where that is not installed."""
    programs = find_programs()
    if programs is None:
        return None
    server = start_server(programs)
    try:
        (directory / "postgres").mkdir(mode=0o700)
        Program(directory / "postgres", ledger=server.url("postgres"))("sessions")
        rows = server.sql("postgres", _POSTGRES_COLUMNS).splitlines()
    finally:
        server.stop()
    tables = sorted({row.partition(" ")[0] for row in rows})
    return {"tables": {table: [row.partition(" ")[2] for row in rows if row.startswith(f"{table} ")] for table in tables}}


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [
        f"{name} {kind}".strip() for name, kind in connection.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    ]


def schema_paths(schema: Json) -> list[str]:
    """The paths of all keys that a JSON Schema allows, and `path=value` for what a key may be."""
    return sorted(set(_schema_paths(schema, schema, "", ())))


def _schema_paths(node: Any, root: Json, prefix: str, seen: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(node, dict):
        return
    if (reference := node.get("$ref")) is not None:
        if reference not in seen:
            yield from _schema_paths(_resolved(root, reference), root, prefix, (*seen, reference))
        return
    for value in (*node.get("enum", ()), *([node["const"]] if "const" in node else ())):
        yield f"{prefix}={value}"
    for key, inner in node.get("properties", {}).items():
        yield f"{prefix}.{key}".lstrip(".")
        yield from _schema_paths(inner, root, f"{prefix}.{key}".lstrip("."), seen)
    yield from _schema_paths(node.get("items"), root, f"{prefix}[]", seen)
    yield from _schema_paths(node.get("additionalProperties"), root, f"{prefix}.*".lstrip("."), seen)
    for variant in (inner for word in ("anyOf", "oneOf", "allOf", "prefixItems") for inner in node.get(word, ())):
        yield from _schema_paths(variant, root, prefix, seen)


def _ends(paths: list[str]) -> list[str]:
    """The last two keys of each path: conditions stand in many places of a definition and within each other."""
    return sorted({".".join(path.split(".")[-2:]) for path in paths})


def _resolved(root: Json, reference: str) -> Any:
    node: Any = root
    for part in reference.removeprefix("#/").split("/"):
        node = node[part]
    return node


def _struct_schema(path: str) -> Json:
    schema: Json = msgspec.json.schema(_named(path))
    return schema


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def as_text(part: Json) -> str:
    return json.dumps(part, indent=1, sort_keys=True) + "\n"


def main() -> None:
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.compatibility.collect --write")
    SNAPSHOT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fidelio-snapshot-") as place:
        parts = {**collect(Path(place)), "written": scenario_shape(Path(place))}
        if (found := postgres(Path(place))) is not None:
            parts["postgres"] = found
        for name, part in parts.items():
            (SNAPSHOT / f"{name}.json").write_text(as_text(part), "utf-8")


if __name__ == "__main__":
    main()
