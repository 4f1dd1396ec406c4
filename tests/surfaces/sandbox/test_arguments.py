"""Each tool over MCP with valid, wrong and hostile arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp.types import TextContent

from fidelio.runtime.tools.definitions import SANDBOX_TOOLS
from fidelio.toolkit import input_schema
from tests.support import proves
from tests.surfaces.sandbox.conftest import ToolError, ToolsetClient

HOST_FILE = "/etc/shadow"
# One valid call of each tool, in an order in which each finds what it needs. Those of the last group ask a person.
VALID: list[tuple[str, dict[str, Any]]] = [
    ("sandbox_describe", {}),
    ("write", {"path": "a.txt", "content": "one\ntwo\n"}),
    ("edit", {"path": "a.txt", "oldText": "two", "newText": "2"}),
    ("read", {"path": "a.txt"}),
    ("glob", {"path": "/workspace", "pattern": "*.txt"}),
    ("grep", {"path": "/workspace", "query": "one"}),
    ("bash", {"command": "wc", "args": ["-l", "a.txt"]}),
    ("sandbox_execute", {"name": "list_dir", "input": {"path": "/workspace"}}),
    ("shell_describe", {}),
    ("shell_history", {"limit": 2}),
    ("shell_read_last_output", {}),
    ("shell_set_cwd", {"path": "/workspace"}),
    ("shell_set_env", {"key": "COLOR", "value": "red"}),
    ("shell_unset_env", {"key": "COLOR"}),
    ("shell_open", {}),
    ("shell_restart", {"cwd": "/workspace"}),
    ("shell_wait", {"timeoutMs": 0}),
    ("shell_interrupt", {}),
    ("shell_close", {}),
    ("resources_list", {}),
    ("resources_list_staged_drafts", {}),
    ("vault_list", {}),
    ("permissions_check", {"toolName": "shell_run", "toolArgs": {"command": "ls"}}),
    ("permissions_describe", {}),
]
ASKING: list[tuple[str, dict[str, Any]]] = [
    ("shell_run", {"command": "echo run"}),
    ("shell_exec", {"command": "echo exec"}),
    ("resources_promote_to_substrate", {"sourcePath": "/workspace/a.txt"}),
]
# These need the result of another call: the id of a command or of a version, or a running command.
DEPENDENT = {
    *("shell_read_command", "shell_send_input", "resources_stage_from_substrate", "resources_compare_with_substrate"),
    *("resources_list_versions", "resources_read_version", "resources_restore_version"),
}
PATHS = [HOST_FILE, "../../etc/shadow", "/proc/1/root/etc/shadow", "/proc/self/root/etc/shadow", "link", "a\x00b", "x" * 5_000]


async def error_of(sandbox: ToolsetClient, tool: str, arguments: Any) -> dict[str, Any]:
    result = await sandbox.raw(tool, arguments)
    block = result.content[0]
    assert isinstance(block, TextContent)
    body = json.loads(block.text)
    assert result.is_error, (tool, arguments, body)
    assert body["ok"] is False
    error: dict[str, Any] = body["error"]
    assert set(error) == {"code", "message", "retryable"}
    return error


@proves("sandbox-tools.list", "sandbox-tools.errors")
async def test_every_tool_works_with_valid_arguments(sandbox: ToolsetClient) -> None:
    for tool, arguments in VALID:
        assert isinstance(await sandbox(tool, **arguments), dict), tool
    run, executed, _ = [await sandbox.allowed(tool, **arguments) for tool, arguments in ASKING]

    again = await sandbox("shell_read_command", commandId=run["commandId"])
    staged = await sandbox("resources_stage_from_substrate", sourcePath="a.txt", targetPath="/workspace/b.txt")
    compared = await sandbox("resources_compare_with_substrate", sessionPath="/workspace/b.txt", substratePath="a.txt")
    versions = await sandbox("resources_list_versions", targetPath="a.txt")
    version = versions["versions"][0]["versionId"]
    read = await sandbox("resources_read_version", versionId=version)
    restored = await sandbox("resources_restore_version", versionId=version)
    running = await sandbox.allowed("shell_exec", command="read line; echo got $line", timeoutMs=0)
    await sandbox.allowed("shell_send_input", text="input\n")
    waited = await sandbox("shell_wait", commandId=running["commandId"], timeoutMs=20_000)

    assert (run["output"]["stdout"], executed["output"]["stdout"]) == ("run\n", "exec\n")
    assert "echo run" in json.dumps(again)
    assert all((staged, compared, read))
    assert restored["status"] == "waiting"
    assert "got input" in json.dumps(waited)
    tried = {tool for tool, _ in (*VALID, *ASKING)} | DEPENDENT
    assert tried == {tool.name for tool in SANDBOX_TOOLS}, "a new tool needs a call here"


@proves("sandbox-tools.hostile")
async def test_no_tool_takes_wrong_types_missing_or_unknown_arguments(sandbox: ToolsetClient) -> None:
    for tool in SANDBOX_TOOLS:
        schema = input_schema(tool.parameters)
        unknown = await error_of(sandbox, tool.name, {"nonsense": 1})
        assert "nonsense" in unknown["message"] or schema.get("required"), tool.name
        for name, about in schema.get("properties", {}).items():
            wrong = {"wrong": ["type"]} if about.get("type") != "object" else "text"
            refused = await error_of(sandbox, tool.name, {name: wrong})
            assert "`" in refused["message"] or "required" in refused["message"], (tool.name, refused)
        if required := schema.get("required"):
            missing = await error_of(sandbox, tool.name, {})
            assert any(name in missing["message"] for name in required), (tool.name, missing)
    # The session is usable, and each refusal is on record.
    assert (await sandbox("shell_describe"))["cwd"] == "/workspace"


@proves("sandbox-tools.hostile")
@pytest.mark.parametrize("path", PATHS, ids=[path[:20].replace("\x00", "NUL") for path in PATHS])
async def test_no_path_leads_out_of_the_sandbox(sandbox: ToolsetClient, path: str) -> None:
    await sandbox.allowed("shell_run", command=f"ln -s {HOST_FILE} /workspace/link; true")

    for tool, more in (
        ("read", {}),
        ("write", {"content": "planted"}),
        ("edit", {"oldText": "root", "newText": "planted"}),
        ("grep", {"query": "root"}),
        ("resources_promote_to_substrate", {}),
        ("shell_set_cwd", {}),
    ):
        name = "sourcePath" if tool.startswith("resources") else "path"
        result = await sandbox.raw(tool, {name: path, **more})
        text = "".join(block.text for block in result.content if isinstance(block, TextContent))
        assert "root:" not in text, (tool, path)
        # A link may be replaced in the workspace; what it pointed at is not touched.
        assert result.is_error or tool in ("write", "grep"), (tool, path, text)


@proves("sandbox-tools.hostile")
@pytest.mark.parametrize(
    ("command", "args"),
    [
        ("sh", ["-c", "id"]),
        ("ls; id", []),
        ("find", [".", "-exec", "id", ";"]),
        ("find", [".", "-delete"]),
        ("wc", ["--files0-from=/etc/passwd"]),
        ("grep", ["-f", "/etc/passwd", "a.txt"]),
        ("/tmp/ls", []),
        ("tail", ["-f", "a.txt"]),
    ],
)
async def test_bash_runs_nothing_but_its_list(sandbox: ToolsetClient, command: str, args: list[str]) -> None:
    with pytest.raises(ToolError):
        await sandbox("bash", command=command, args=args)


@proves("sandbox-tools.hostile")
async def test_an_action_is_asked_for_like_the_tool_that_it_is(sandbox: ToolsetClient) -> None:
    waiting = await sandbox("sandbox_execute", name="run_shell", input={"command": "id"})
    unknown = await error_of(sandbox, "sandbox_execute", {"name": "read_bytes", "input": {"path": "/etc/passwd"}})

    assert waiting["status"] == "waiting"
    assert unknown["code"] == "unknown_action"


@proves("sandbox-tools.hostile")
@pytest.mark.parametrize(
    "key", ["LD_PRELOAD", "BASH_ENV", "PATH", "GIT_SSH_COMMAND", "PYTHONSTARTUP", "FIDELIO_RUN", "a=b", "1"]
)
async def test_variables_that_change_what_runs_are_refused(sandbox: ToolsetClient, key: str) -> None:
    with pytest.raises(ToolError):
        await sandbox("shell_set_env", key=key, value="x")
