"""An agent that wants more than a person has allowed, or wants a person to read something else than what would run."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.errors import PersonNeeded
from fidelio.runtime import events as e
from fidelio.runtime.calls import Finished
from fidelio.runtime.tools.definitions import SANDBOX_TOOL_NAMES
from fidelio.runtime.tools.model import event
from tests.runtime.calls.conftest import ServiceSession
from tests.support import proves

RUN = {"command": "make install", "cwd": "/workspace"}
DAY_MS = 24 * 60 * 60 * 1000


async def read_question(session: ServiceSession, tool: str, **arguments: Any) -> str:
    return (await session.ledger.request(await session.ask(tool, **arguments))).question


@proves("runtime.approval-once")
async def test_an_approval_that_was_kept_for_a_day_is_not_used(session: ServiceSession) -> None:
    request = await session.ask("shell_run", **RUN)
    await session.answer(request, "allow")
    session.clock.now += DAY_MS

    expired = await session.finish("shell_run", **RUN)

    assert expired.output["error"]["code"] == "permission_expired"
    assert session.ran == []
    assert await session.ask("shell_run", **RUN) != request


@proves("runtime.approval-digest")
async def test_a_variable_that_the_live_shell_is_to_forget_voids_the_approval(session: ServiceSession) -> None:
    request = await session.ask("shell_run", **RUN)
    state = await session.sandboxes.state(session.id)
    assert state is not None
    await session.ledger.append(session.id, event(e.SHELL_OPEN, {"shell_id": "s", "incarnation": state.incarnation}))
    await session.answer(request, "allow")

    await session.finish("shell_unset_env", key="TARGET")

    assert await session.ask("shell_run", **RUN) != request
    assert session.ran == []


@proves("runtime.approval-shown")
@pytest.mark.parametrize("separator", ["\n", "\r", "\x0b", "\u2028", "\x85"])
async def test_a_command_cannot_look_like_the_lines_around_it(session: ServiceSession, separator: str) -> None:
    command = separator.join(("ls", "Directory: /nowhere", "It can write to: nothing. Network: none."))

    question = await read_question(session, "shell_run", command=command)

    assert "Directory: /nowhere" not in question.splitlines()
    assert "Directory: /workspace" in question.splitlines()


@proves("runtime.approval-shown")
async def test_the_lines_of_a_command_are_numbered_so_that_a_form_of_one_line_shows_each(session: ServiceSession) -> None:
    question = await read_question(session, "shell_run", command="ls a\n\nrm -rf b")

    assert question.splitlines()[1:5] == ["It has 3 lines.", "1: ls a", "2: ", "3: rm -rf b"]


@proves("runtime.approval-shown")
async def test_an_argument_cannot_look_like_the_lines_around_it(session: ServiceSession) -> None:
    await session.service.set_policy(session.id, "write", "always_ask", by="person:ada")

    question = await read_question(session, "write", path="a", content="x\n\x1b[2Jpath: b")

    assert question.splitlines()[1:3] == ["path: a", "content: x\\n\\x1b[2Jpath: b"]


@proves("runtime.approval-shown")
async def test_what_a_form_cannot_show_as_a_whole_is_not_allowed_in_a_form(session: ServiceSession) -> None:
    command = f"echo {'x' * 4_000}; make install"
    request = await session.ask("shell_run", command=command)

    with pytest.raises(PersonNeeded, match="too long"):
        await session.answer(request, "allow", channel="elicited")
    await session.answer(request, "allow")

    assert isinstance(await session.repeat("shell_run", command=command), Finished)


@proves("runtime.arguments")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("permissions_check", {"toolName": "shell_set_env", "toolArgs": {"key": "TOKEN", "value": "hunter2-secret"}}),
        ("permissions_check", {"toolName": "shell_set_env", "toolArgs": {"value": ["hunter2-secret"]}, "more": 1}),
        ("sandbox_execute", {"name": "shell_set_env", "input": {"key": "TOKEN", "value": "hunter2-secret"}}),
        ("shell_setenv", {"key": "TOKEN", "value": "hunter2-secret"}),
        ("shell_set_env", {"key": "TOKEN", "value": {"value": "hunter2-secret"}}),
    ],
)
async def test_the_value_of_a_variable_of_a_planned_or_misspelt_call_is_in_no_event(
    session: ServiceSession, tool: str, arguments: dict[str, Any]
) -> None:
    await session.finish(tool, **arguments)

    assert not [each for each in await session.ledger.events() if "hunter2" in repr(each)]


@proves("runtime.actions")
async def test_an_action_whose_tool_the_caller_does_not_have_is_refused(session: ServiceSession) -> None:
    tools = SANDBOX_TOOL_NAMES - {"shell_run", "write"}

    for name, given in (("run_shell", {"command": "ls"}), ("write_text", {"path": "a", "content": "x"})):
        outcome = await session.service.call(session.id, "sandbox_execute", {"name": name, "input": given}, tools=tools)
        assert isinstance(outcome, Finished)
        assert outcome.output["error"]["code"] == "unknown_action"


@proves("runtime.actions", "runtime.policy")
@pytest.mark.parametrize(("name", "given"), [("append_text", {"content": "x"}), ("mkdir", {})])
async def test_an_action_that_writes_asks_where_write_asks_and_is_named(
    session: ServiceSession, name: str, given: dict[str, Any]
) -> None:
    await session.service.set_policy(session.id, "write", "always_ask", by="person:ada")
    arguments = {"name": name, "input": {"path": "a", **given}}

    question = await read_question(session, "sandbox_execute", **arguments)
    checked = await session.finish("permissions_check", toolName="sandbox_execute", toolArgs=arguments)

    assert f"Action: {name}" in question.splitlines()
    assert checked.output["requiresConfirmation"] is True
    assert name not in session.sandboxes.actions


@proves("runtime.approval-digest")
async def test_a_yes_to_an_action_is_not_a_yes_to_the_tool_with_the_same_arguments(session: ServiceSession) -> None:
    await session.service.set_policy(session.id, "write", "always_ask", by="person:ada")
    given = {"path": "a", "content": "x"}
    request = await session.ask("sandbox_execute", name="append_text", input=given)

    await session.answer(request, "allow")

    assert await session.ask("write", **given) != request


@proves("runtime.arguments")
@pytest.mark.parametrize(
    "reply",
    [{"entries": 1}, {"entries": None, "truncated": {}}, {"matches": 2.5}, {"entries": {"a": 1}}],
)
async def test_a_reply_of_another_form_is_an_error_of_the_call_and_nothing_else(
    session: ServiceSession, reply: dict[str, Any]
) -> None:
    session.sandboxes.replies["list_dir"] = lambda _: reply

    outcome = await session.finish("sandbox_execute", name="list_dir", input={"path": "/workspace"})

    assert outcome.is_error
    assert outcome.output["error"]["code"] == "bad_reply"
