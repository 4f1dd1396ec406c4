"""A sandbox that lies about commands, and variables that would run a command of their own."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.runtime import events as e
from fidelio.runtime.shell.variables import is_durable, is_refused
from tests.runtime.calls.conftest import DONE, ServiceSession
from tests.runtime.calls.conftest import session as session  # noqa: PLC0414  # a fixture
from tests.support import proves

EVALUATED = (
    *("PS0", "PS1", "PS2", "PS3", "PS4", "RANDOM", "SRANDOM", "SECONDS", "LINENO", "OPTIND", "HISTCMD", "HISTFILE"),
    *("MAILPATH", "PROMPT_COMMAND", "BASH_ENV", "TMOUT", "CDPATH", "MAKEFLAGS", "TAR_OPTIONS", "JAVA_TOOL_OPTIONS"),
)


@proves("runtime.shell-variables")
@pytest.mark.parametrize("name", EVALUATED)
async def test_a_variable_that_bash_or_a_program_evaluates_is_refused(session: ServiceSession, name: str) -> None:
    refused = await session.finish("shell_set_env", key=name, value="a[$(touch /workspace/pwned)]")

    assert refused.output["error"]["code"] == "refused_variable"
    assert is_refused(name)
    assert not is_durable(name, "x")


@proves("runtime.shell-hostile-replies")
@pytest.mark.parametrize(
    "lie",
    [
        {"durationMs": 2**70},
        {"exitCode": 2**70},
        {"exitCode": -(2**70)},
        {"commandId": "cmd_other"},
        {"status": "idle"},
        {"stdout": 5},
        {"environment": {"A": 5}},
    ],
    ids=str,
)
async def test_a_reply_that_cannot_be_true_fails_the_call_and_nothing_else(
    session: ServiceSession, lie: dict[str, Any]
) -> None:
    await session.service.set_policy(session.id, "shell_run", "always_allow", by="person:ada")
    session.sandboxes.replies["run_shell"] = lambda sent: {**DONE, "commandId": sent["commandId"], **lie}

    refused = await session.finish("shell_run", command="make")

    assert refused.output["error"]["code"] == "bad_reply"
    assert (await session.types())[-1] == e.TOOL_RESULT
    assert not (await session.finish("read", path="a")).is_error


@proves("runtime.shell-hostile-replies")
async def test_a_command_in_a_shell_of_its_own_changes_no_directory_and_no_variable(session: ServiceSession) -> None:
    await session.service.set_policy(session.id, "shell_run", "always_allow", by="person:ada")
    lie = {"cwd": "/tmp", "environment": {"A": "b"}, "shell": {"alive": True, "shellId": "x"}}
    session.sandboxes.replies["run_shell"] = lambda sent: {**DONE, "commandId": sent["commandId"], **lie}

    await session.finish("shell_run", command="make")

    shell = (await session.service.load(session.id)).record.shell
    assert (shell.cwd, shell.variables, shell.is_open) == ("/workspace", {}, False)
