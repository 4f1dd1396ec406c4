"""The toolset `runtime`: all tools of a session over MCP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fidelio.app.application import Application
from fidelio.errors import UsageProblem
from fidelio.runtime.tools.definitions import RUNTIME_TOOL_NAMES, RUNTIME_TOOLS, SANDBOX_TOOL_NAMES
from fidelio.settings import load_settings
from fidelio.surfaces.mcp.dialects import SandboxSession, endpoint_path, load_tools
from fidelio.surfaces.mcp.endpoint import Identity, RequestStates
from fidelio.surfaces.mcp.options import parse_options
from fidelio.surfaces.mcp.protocol import Protocol, RequestContext
from fidelio.surfaces.mcp.toolsets.runtime.declarations import shorten_hints
from fidelio.tokens.keyring import FixedKeys
from fidelio.toolkit import input_schema, shorten_schema
from tests.support import proves
from tests.surfaces.runtime.conftest import RuntimeApplication
from tests.surfaces.sandbox.fakes import FakeApplication, FakeRuntime

MOST_CHARACTERS = 30_000


@pytest.fixture
def listed(tmp_path: Path) -> list[dict[str, Any]]:
    return load_tools("runtime", Application(load_settings(str(tmp_path), environ={}))).table.describe()


@proves("runtime-tools.list")
def test_the_list_has_every_tool_of_a_session_and_is_short_enough_for_a_model(listed: list[dict[str, Any]]) -> None:
    assert [tool["name"] for tool in listed] == [tool.name for tool in RUNTIME_TOOLS]
    assert RUNTIME_TOOL_NAMES >= SANDBOX_TOOL_NAMES
    # As it is sent.
    assert len(msgspec.json.encode({"tools": listed}).decode()) <= MOST_CHARACTERS


@proves("runtime-tools.list")
def test_every_schema_refuses_a_misspelt_parameter_and_the_hints_are_true(listed: list[dict[str, Any]]) -> None:
    for tool, definition in zip(listed, RUNTIME_TOOLS, strict=True):
        # What a client assumes where the list says nothing.
        hints = {"readOnlyHint": False, "destructiveHint": True, **tool["annotations"]}
        assert tool["inputSchema"]["additionalProperties"] is False, tool["name"]
        assert hints["readOnlyHint"] is definition.read_only, tool["name"]
        assert definition.read_only or hints["destructiveHint"] is definition.destructive, tool["name"]


@proves("runtime-tools.list")
def test_what_a_shortened_schema_accepts_the_tool_accepts(listed: list[dict[str, Any]]) -> None:
    for tool, definition in zip(listed, RUNTIME_TOOLS, strict=True):
        whole = input_schema(definition.parameters)
        assert list(tool["inputSchema"]["properties"]) == list(whole["properties"]), tool["name"]
        assert tool["inputSchema"].get("required", []) == whole.get("required", []), tool["name"]
        for name, about in tool["inputSchema"]["properties"].items():
            before = whole["properties"][name]
            forms = (before, *before.get("anyOf", ()))
            # What is left of a simple type only says less than the whole of it.
            assert any(about.items() <= form.items() for form in forms) or "anyOf" in about or "items" in about, (
                tool["name"],
                name,
            )


@proves("runtime-tools.list")
def test_only_null_and_what_is_assumed_anyway_is_left_out_of_the_list() -> None:
    text, number = {"type": "string"}, {"type": "integer"}
    schema = {
        "type": "object",
        "properties": {
            "a": {"anyOf": [text, {"type": "null"}], "default": None, "description": "A."},
            "b": {"anyOf": [text, number, {"type": "null"}], "default": None},
            "c": {"anyOf": [text, {"type": "null"}]},
            "d": {"type": "integer", "default": 0, "maximum": 9},
            "default": {"type": "string", "maxLength": 9, "minLength": 1},
            "e": {"type": "object", "default": {}},
        },
        "required": [],
        "$defs": {"Inner": {"title": "Inner", "description": "Inner.", "type": "object", "properties": {"title": text}}},
    }

    assert shorten_schema(schema) == {
        "type": "object",
        "properties": {
            "a": {**text, "description": "A."},
            "b": {"anyOf": [text, number]},
            "c": {"anyOf": [text, {"type": "null"}]},
            "d": {"type": "integer", "default": 0, "maximum": 9},
            "default": {"type": "string"},
            "e": {"type": "object"},
        },
        "$defs": {"Inner": {"type": "object", "properties": {"title": text}}},
    }
    writes = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": True}
    assert shorten_hints(writes) == {"destructiveHint": False, "idempotentHint": True}
    assert shorten_hints({**writes, "readOnlyHint": True, "openWorldHint": False}) == {
        "readOnlyHint": True,
        "openWorldHint": False,
    }


@proves("runtime-tools.session")
def test_the_options_of_a_session_are_those_of_the_sandbox() -> None:
    options = parse_options(["--toolset", "runtime", "--session=a", "--agent", "b", "--environment", "c", "--mount", ".:ro"])

    assert (options.tools, options.sandbox) == ("runtime", SandboxSession("a", "b", "c", ".:ro"))
    assert endpoint_path("runtime") == "/mcp/runtime"
    with pytest.raises(UsageProblem, match="Add --toolset sandbox or runtime"):
        parse_options(["--agent", "b"])


@proves("runtime-tools.session")
async def test_a_call_goes_to_the_session_with_all_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runtime = FakeRuntime()
    app: Any = FakeApplication(runtime)
    tools = load_tools("runtime", app, SandboxSession("work", "bob"))
    protocol = Protocol(Identity("x", "1"), tools, RequestStates(lambda: FixedKeys(b"k" * 32)))

    await protocol.handle("tools/call", {"name": "shell_describe", "arguments": {}}, RequestContext())

    assert [(request.name, request.agent) for request in runtime.opened] == [("work", "bob")]
    assert [(session, tool) for session, tool, *_ in runtime.calls] == [("s_work", "shell_describe")]
    assert runtime.offered == RUNTIME_TOOL_NAMES


# A call of every group beside those of the sandbox, in an order in which each finds what it needs.
CALLS: list[tuple[str, dict[str, Any], str]] = [
    ("session_list", {}, "sessions"),
    ("session_get_events", {}, "events"),
    ("environment_describe", {}, "fingerprint"),
    ("outcome_define", {"title": "Done", "successCriteria": ["It is done"], "detail": None}, "activeOutcome"),
    ("outcome_grade", {}, "activeOutcome"),
    ("memory_write", {"target": "session_state", "content": "A note"}, "versionId"),
    ("memory_read", {"target": "session_state"}, "content"),
    ("retrieval_search", {"query": "note"}, "hits"),
    ("skills_list", {}, "skills"),
    ("permissions_check", {"toolName": "shell_run"}, "toolName"),
]


@proves("runtime-tools.session")
async def test_a_client_without_our_model_loop_uses_the_tools_of_every_group(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with RuntimeApplication(load_settings(str(home), environ={})) as app:
        protocol = Protocol(
            Identity("x", "1"), load_tools("runtime", app, SandboxSession("ext")), RequestStates(lambda: FixedKeys(b"k" * 32))
        )
        for tool, arguments, key in CALLS:
            result = await protocol.handle("tools/call", {"name": tool, "arguments": arguments}, RequestContext())
            output = msgspec.json.decode(result["content"][0]["text"])
            assert not result.get("isError"), (tool, output)
            assert key in output, (tool, output)
