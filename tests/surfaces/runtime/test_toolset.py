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
from fidelio.tokens.keyring import FixedKeys
from tests.support import proves
from tests.surfaces.sandbox.fakes import FakeApplication, FakeRuntime

MOST_CHARACTERS = 30_000


@pytest.fixture
def listed(tmp_path: Path) -> list[dict[str, Any]]:
    return load_tools("runtime", Application(load_settings(str(tmp_path), environ={}))).table.describe()


@proves("runtime-tools.list")
def test_the_list_has_every_tool_of_a_session_and_is_short_enough_for_a_model(listed: list[dict[str, Any]]) -> None:
    parts = [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in listed]

    assert [tool["name"] for tool in listed] == [tool.name for tool in RUNTIME_TOOLS]
    assert RUNTIME_TOOL_NAMES >= SANDBOX_TOOL_NAMES
    assert len(msgspec.json.encode(parts).decode()) <= MOST_CHARACTERS


@proves("runtime-tools.list")
def test_every_schema_refuses_a_misspelt_parameter_and_the_annotations_are_true(listed: list[dict[str, Any]]) -> None:
    for tool, definition in zip(listed, RUNTIME_TOOLS, strict=True):
        assert tool["inputSchema"]["additionalProperties"] is False, tool["name"]
        assert tool["annotations"]["readOnlyHint"] is definition.read_only, tool["name"]
        assert tool["annotations"]["destructiveHint"] is definition.destructive, tool["name"]


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
