"""The list of the toolset `sandbox`, and the options that choose its session."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from fidelio.app.application import Application
from fidelio.errors import UsageProblem
from fidelio.runtime.tools.definitions import DEFINITIONS, SANDBOX_TOOLS
from fidelio.settings import load_settings
from fidelio.surfaces.http.plain import read_session
from fidelio.surfaces.mcp.dialects import SandboxSession, endpoint_path, load_tools
from fidelio.surfaces.mcp.options import parse_options
from tests.support import proves

MOST_CHARACTERS = 14_000
# The tools that an agent of the seed knows, and the two more of the shell.
NAMES = """
read write edit glob grep bash sandbox_describe sandbox_execute shell_describe shell_history shell_read_last_output
shell_read_command shell_wait shell_set_cwd shell_set_env shell_unset_env shell_open shell_restart shell_run shell_exec
shell_close shell_interrupt shell_send_input resources_list resources_stage_from_substrate resources_list_staged_drafts
resources_list_versions resources_read_version resources_compare_with_substrate resources_promote_to_substrate
resources_restore_version vault_list permissions_check permissions_describe
"""
DESTRUCTIVE = {
    *("write", "edit", "sandbox_execute", "shell_run", "shell_exec", "shell_send_input"),
    *("resources_promote_to_substrate", "resources_restore_version"),
}


def listed(tmp_path: Path) -> list[dict[str, object]]:
    app = Application(load_settings(str(tmp_path), environ={}))
    return load_tools("sandbox", app).table.describe()


@proves("sandbox-tools.list")
def test_the_list_has_every_tool_and_is_short_enough_for_a_model(tmp_path: Path) -> None:
    tools = listed(tmp_path)
    parts = [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in tools]

    assert {tool["name"] for tool in tools} == set(NAMES.split())
    assert len(msgspec.json.encode(parts).decode()) <= MOST_CHARACTERS


@proves("sandbox-tools.list")
def test_the_annotations_are_true(tmp_path: Path) -> None:
    hints = {str(tool["name"]): msgspec.convert(tool["annotations"], dict[str, bool]) for tool in listed(tmp_path)}

    assert {name for name, hint in hints.items() if hint["destructiveHint"]} == DESTRUCTIVE
    # What asks a person by itself changes something; what only reads never asks.
    for tool in SANDBOX_TOOLS:
        assert not (tool.read_only and (tool.destructive or tool.policy != "always_allow")), tool.name
        assert hints[tool.name]["readOnlyHint"] is tool.read_only
    assert hints["shell_run"]["openWorldHint"]
    assert hints["bash"]["readOnlyHint"]
    assert hints["bash"]["idempotentHint"]


@proves("sandbox-tools.list")
def test_a_misspelt_parameter_is_refused_by_every_schema(tmp_path: Path) -> None:
    for tool in listed(tmp_path):
        schema = msgspec.convert(tool["inputSchema"], dict[str, object])
        assert schema["additionalProperties"] is False, tool["name"]
    assert all(DEFINITIONS[tool.name] is tool for tool in SANDBOX_TOOLS)


@proves("sandbox-tools.options")
def test_the_command_line_names_session_agent_environment_and_mount() -> None:
    options = parse_options(["--toolset", "sandbox", "--session=a", "--agent", "b", "--environment", "c", "--mount", ".:ro"])

    assert options.tools == "sandbox"
    assert options.sandbox == SandboxSession("a", "b", "c", ".:ro")
    assert parse_options(["--toolset", "sandbox"]).sandbox == SandboxSession("default", "default", None, None)


@proves("sandbox-tools.options")
@pytest.mark.parametrize("option", ["session", "agent", "environment", "mount"])
def test_the_options_belong_to_the_toolset_sandbox_alone(option: str) -> None:
    for toolset in ([], ["--toolset", "workflows"], ["--toolset", "orchestrator"]):
        with pytest.raises(UsageProblem, match=f"--{option} belongs to the toolset sandbox"):
            parse_options([*toolset, f"--{option}", "x"])


@proves("sandbox-tools.session")
@pytest.mark.parametrize(
    ("query", "session"),
    [
        (b"", ""),
        (b"session=work", "work"),
        (b"a=1&session=a%2Db&session=later", "a-b"),
        (b"&&&=&session", ""),
        (b"\xff\xfesession=%zz", ""),
    ],
)
def test_the_address_names_a_session(query: bytes, session: str) -> None:
    assert read_session(query) == session
    assert endpoint_path("sandbox") == "/mcp/sandbox"
