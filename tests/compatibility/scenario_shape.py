"""The shape of what the present code writes and answers: keys, kinds, states and file names, without the values.

The scenario that wrote the fixtures is run once more. What it leaves in the ledger, in the home and in the replies is reduced
to paths of keys, so that a renamed body key or result key is noticed wherever in the code it was renamed.
"""

from __future__ import annotations

import base64
import json
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.compatibility.program import Json, Program
from tests.compatibility.write_fixtures import PROJECT, scenario

_ID = re.compile(r"\b([a-z]_)[0-9a-z]{12}\b")
BROKEN = "id: broken\nversion: 1.0.0\ntitle: Broken\ninitialActivity: nowhere\nactivities: []\n"


def scenario_shape(directory: Path) -> Json:
    """Everything that the scenario leaves, reduced to its shape."""
    program = Program(directory / "home")
    tokens = scenario(program)
    files = _files(program.home)
    printed = [line for file in program.home.glob("runs/*/*/*/*.stdout") for line in file.read_text("utf-8").splitlines()]
    spool = [json.loads(line) for line in printed if line.startswith("{")]
    ledger = _ledger(program.home / "ledger.db")
    _look_around(program, tokens)
    return {
        "files": files,
        "spool": {line["type"]: shape([line]) for line in spool},
        "key ring": shape([{**json.loads((program.home / "keys.json").read_text("utf-8")), "keys": {}}]),
        "tokens": _tokens(tokens),
        "replies": {name: shape(values) for name, values in sorted(program.seen.items())},
        **ledger,
    }


def shape(values: Iterable[Any]) -> list[str]:
    """The paths of all keys in some JSON values; `[]` stands for the items of a list."""
    return sorted({_ID.sub(r"\1*", path) for value in values for path in _paths(value, "")})


def _paths(value: Any, prefix: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{prefix}.{key}".lstrip(".")
            yield from _paths(inner, f"{prefix}.{key}".lstrip("."))
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner, f"{prefix}[]")


def _files(home: Path) -> list[str]:
    """The names in a home. The two files that SQLite adds come and go."""
    names = (str(file.relative_to(home)) for file in home.rglob("*") if not file.is_dir())
    return sorted({_ID.sub(r"\1*", name) for name in names if not name.endswith(("-wal", "-shm"))})


def _ledger(file: Path) -> Json:
    connection = sqlite3.connect(file)
    try:
        events = connection.execute("SELECT type, actor, body FROM events").fetchall()
        records = connection.execute("SELECT kind, record FROM sessions").fetchall()
        details = connection.execute("SELECT kind, detail, options FROM requests").fetchall()
        return {
            "event bodies": _by_kind((type_, body) for type_, _, body in events),
            "actors": sorted({re.sub(":.*", ":*", actor) for _, actor, _ in events}),
            "records": _by_kind(records),
            "sessions": _distinct(connection, "SELECT kind, status, reason FROM sessions"),
            "requests": _distinct(connection, "SELECT kind, state, channel, assurance FROM requests"),
            "request details": _by_kind((kind, detail) for kind, detail, _ in details),
            "request options": _by_kind((kind, options) for kind, _, options in details),
            "jobs": _by_kind(connection.execute("SELECT kind, payload FROM jobs").fetchall()),
            "documents": _distinct(connection, "SELECT DISTINCT space, author FROM document_versions"),
        }
    finally:
        connection.close()


def _by_kind(rows: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[Any]] = {}
    for kind, text in rows:
        found.setdefault(kind, []).append(json.loads(text))
    return {kind: shape(values) for kind, values in sorted(found.items())}


def _distinct(connection: sqlite3.Connection, query: str) -> list[str]:
    return sorted({" ".join(str(cell) or "-" for cell in row) for row in connection.execute(query)})


def _tokens(tokens: Json) -> dict[str, list[str]]:
    """The claims inside of the tokens. They are sealed, not encrypted."""
    sealed = [token for item in tokens.values() for token in (item.get("session_token"), item.get("child_token")) if token]
    states = [item["state"] for item in tokens.values() if "state" in item]
    traces = tokens["completed"]["trace_tokens"]
    return {
        "forms": sorted({".".join(token.split(".")[:1]) for token in (*sealed, *traces)} | {state[:9] for state in states}),
        "session": shape(_payload(token.split(".")[2]) for token in sealed),
        "trace": shape(_payload(token.split(".")[2]) for token in traces),
        "state": shape(_payload(state.split(".")[2], packed=True) for state in states),
    }


def _payload(text: str, *, packed: bool = False) -> Any:
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return json.loads(zlib.decompress(raw, 31) if packed else raw)


def _look_around(program: Program, tokens: Json) -> None:
    """Ask every command and every tool that only reads, so that the keys of its answer are seen."""
    session = next(item["id"] for item in program.json("sessions")["items"] if item["status"] == "completed")
    for words in (["verify", "--all"], ["inbox", "--all"], ["search", "Waiting"], ["list"], ["keys"], ["show", "survey"]):
        program.json(*words)
    for words in (["report", session], ["trace", session], ["agents", "list"], ["agents", "blueprints"]):
        program.json(*words)
    for words in (["agents", "status", "first"], ["agents", "result", "first"]):
        program.json(*words)
    for words in (["events", session], ["agents", "events", "first"]):
        program.lines(*words)
    broken = program.home.parent / "broken"
    broken.mkdir()
    (broken / "broken.yaml").write_text(BROKEN, "utf-8")
    program.json("lint", str(broken), code=1)
    _ask_tools(program, tokens)


def _ask_tools(program: Program, tokens: Json) -> None:
    here, child = {"session_token": tokens["gates"]["session_token"]}, {"session_token": tokens["parent"]["child_token"]}
    with program.serve() as server:
        for tool in ("list_workflows", "health_check"):
            server(tool)
        for tool in ("get_workflow_status", "get_workflow", "get_activity", "get_trace"):
            server(tool, **child)
        server("present_checkpoint", checkpoint_handle=tokens["yielded"]["checkpoint_handle"])
    with program.serve("--dialect", "gates") as server:
        for tool in ("discover", "list_workflows", "health_check"):
            server(tool)
        server("get_workflow", **child)
        server("get_trace", **here)
        server("get_checkpoint", **here, activity_id="gather", checkpoint_id="tone")
        server("respond_checkpoint", **here, checkpoint_id="tone", option_id="short")
    with program.serve("--dialect", "navigator") as server:
        for tool in ("list_workflows", "health_check", "get_activities"):
            server(tool)
        server("nav_situation", state=tokens["navigator"]["state"])
        server("get_workflow", workflow_id="survey")
        server("get_workflow_activity", workflow_id="survey", activity_id="gather")
        server("get_checkpoint", workflow_id="survey", activity_id="gather", checkpoint_id="tone")
        server("validate_transition", workflow_id="survey", from_activity="gather", to_activity="write")
        server.attempt("nav_action", state=tokens["navigator"]["state"], action="transition", activity_id="close")
    with program.serve("--toolset", "orchestrator") as server:
        for tool in ("list_agent_blueprints", "list_agent_sessions"):
            server(tool, response_format="json")
        for tool in ("get_agent_session_status", "get_agent_session_result", "get_agent_session_events"):
            server(tool, session_name="first", project_dir=PROJECT)
