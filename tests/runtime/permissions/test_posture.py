"""What permissions_check and permissions_describe say before a call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime.durable_shell import CommandRecord, ShellRecord
from fidelio.runtime.permissions.posture import check_call, describe_permissions
from fidelio.runtime.record import ApprovalRecord, RuntimeRecord
from fidelio.runtime.tools.definitions import DEFINITIONS, SANDBOX_TOOL_NAMES
from fidelio.toolkit import read_arguments
from tests.support import proves

NOW = 1_000
ALL = SANDBOX_TOOL_NAMES
COMMANDS = [
    "cat a",
    "cat -n a",
    "ls -la",
    "ls a b",
    "head -n 5 f",
    "sed -n '10,20p' f",
    "wc -l f",
    "find . -type f -name '*.py'",
    "grep -rn foo src",
    "rg -i foo",
    "echo hi",
    "cat a; rm -rf b",
    "cat a | wc",
    "ls > out",
    "cat $(x)",
    "FOO=1 ls",
    "git status",
]
RUNNING = CommandRecord(id="cmd_1", tool="shell_exec", command="sleep 9", cwd="/workspace", started_at=1)
SHELLS = [
    ShellRecord(),
    ShellRecord(shell_id="sh_1", is_open=True),
    ShellRecord(shell_id="sh_1", is_open=True, commands=(RUNNING,)),
    ShellRecord(shell_id="sh_1", cwd="/workspace/project"),
]


def check(command: str, record: RuntimeRecord | None = None, tools: frozenset[str] = ALL) -> dict[str, Any]:
    return check_call("shell_run", {"command": command}, record or RuntimeRecord(), None, tools, now=NOW)


def suggestions(value: object) -> list[dict[str, Any]]:
    """Every suggested call in a result, at any depth."""
    if isinstance(value, dict):
        own = [value] if isinstance(value.get("tool"), str) and "args" in value else []
        return own + [found for item in value.values() for found in suggestions(item)]
    return [found for item in value for found in suggestions(item)] if isinstance(value, list) else []


@proves("runtime.permission-tools")
@pytest.mark.parametrize(
    ("command", "tool"),
    [
        ("cat a", "read"),
        ('cat "my file.md"', "read"),
        ("cat -n a", "bash"),
        ("head -n 5 a", "read"),
        ("tail a", "read"),
        ("sed -n '10,20p' a", "read"),
        ("sed -n 20,10p f", "shell_describe"),
        ("wc -l a", "read"),
        ("wc f", "bash"),
        ("ls", "glob"),
        ("ls a b", "bash"),
        ("find . -name x", "glob"),
        ("grep foo a", "grep"),
        ("rg -i foo", "grep"),
        ("rg -g G x", "shell_describe"),
        ("echo hi", "shell_describe"),
        ("git status", "shell_describe"),
        ("FOO=1 ls", "shell_describe"),
        ("cat a; rm -rf b", "shell_describe"),
        ("ls > out", "shell_describe"),
        ("cat a | wc", "shell_describe"),
        ("cat $(x)", "shell_describe"),
        ("cat `x`", "shell_describe"),
        ("cat <(x)", "shell_describe"),
        ("cat a &", "shell_describe"),
    ],
)
def test_the_next_step_for_a_command_is_the_cheapest_call_that_does_the_same(command: str, tool: str) -> None:
    assert check(command)["nextStep"]["tool"] == tool


@proves("runtime.permission-tools")
@given(
    st.sampled_from(COMMANDS),
    st.sampled_from(SHELLS),
    st.sampled_from(sorted(DEFINITIONS)),
    st.frozensets(st.sampled_from(sorted(ALL))),
)
def test_every_suggested_call_is_valid_and_one_that_the_caller_has(
    command: str, shell: ShellRecord, name: str, tools: frozenset[str]
) -> None:
    approval = ApprovalRecord(request="r_1", digest="d", tool="shell_run", expires=NOW, command=command)
    record = RuntimeRecord(shell=shell, approvals={"r_1": approval})
    results = [
        check_call(name, {"command": command}, record, None, tools, now=NOW),
        describe_permissions(record, None, tools),
    ]

    for found in suggestions(results):
        assert found["tool"] in tools
        read_arguments(found["tool"], DEFINITIONS[found["tool"]].parameters, found["args"])


@proves("runtime.permission-tools", "runtime.policy")
def test_sandbox_execute_is_checked_as_the_tool_that_its_action_is() -> None:
    shell = {"name": "run_shell", "input": {"command": "make"}}
    read = {"name": "read_text", "input": {"path": "a"}}

    asks, runs = (check_call("sandbox_execute", each, RuntimeRecord(), None, ALL, now=NOW) for each in (shell, read))

    assert (asks["requiresConfirmation"], runs["requiresConfirmation"]) == (True, False)


@proves("runtime.permission-tools")
def test_an_unknown_action_does_not_exist() -> None:
    known, unknown = (
        check_call("sandbox_execute", {"name": name}, RuntimeRecord(), None, ALL, now=NOW) for name in ("stat", "nothing")
    )

    assert (known["exists"], unknown["exists"], unknown["allowed"]) == (True, False, False)


@proves("runtime.permission-tools")
@pytest.mark.parametrize("name", ["nothing", "", "shell_run\n"])
def test_an_unknown_tool_is_an_answer_and_no_error(name: str) -> None:
    found = check_call(name, {}, RuntimeRecord(), None, ALL, now=NOW)

    assert (found["exists"], found["allowed"], found["nextStep"]) == (False, False, None)


@proves("runtime.permission-tools")
def test_a_tool_that_the_caller_does_not_have_does_not_exist_for_it() -> None:
    assert check("make", tools=ALL - {"shell_run"})["exists"] is False


@proves("runtime.permission-tools")
def test_a_blocked_command_that_only_reads_is_suggested_as_a_reading_call() -> None:
    blocked = ApprovalRecord(request="r_1", digest="d", tool="shell_run", expires=NOW, command="cat notes", cwd="/workspace/a")

    found = describe_permissions(RuntimeRecord(approvals={"r_1": blocked}), None, ALL)

    assert found["pendingToolConfirmationRequest"]["requestId"] == "r_1"
    assert (found["nextShellStep"]["tool"], found["nextShellStep"]["args"]["path"]) == ("read", "/workspace/a/notes")
    assert set(found["alwaysAskTools"]) >= {"shell_run", "shell_exec", "resources_promote_to_substrate"}
    assert set(found["outcomeGatedTools"]) == {"resources_promote_to_substrate", "resources_restore_version"}


@proves("runtime.permission-tools")
def test_without_an_outcome_the_verdict_says_so_and_shared_writes_still_name_the_gate() -> None:
    for found in (check("make"), describe_permissions(RuntimeRecord(), None, ALL)):
        assert found["outcomeEvaluation"]["status"] == "missing_outcome"
        assert (found["nextOutcomeStep"], found["contextPressure"]) == (None, None)
    assert check("make")["requiresOutcomePass"] is False
