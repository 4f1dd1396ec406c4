"""Permission decisions that all executors share."""

from __future__ import annotations

from typing import get_args

import pytest

from fidelio.orchestrator.blueprints.model import PermissionMode, Permissions
from fidelio.orchestrator.executors.common import Change, PermissionDecision, decide_permission, mcp_tool_name
from tests.support import proves

SHELL = ("shell",)


@proves("agents.permissions")
@pytest.mark.parametrize(
    ("mode", "nothing", "files", "something"),
    [
        ("read", "allow", "deny", "deny"),
        ("ask", "allow", "ask", "ask"),
        ("edit", "allow", "allow", "ask"),
        ("full", "allow", "allow", "allow"),
    ],
)
def test_each_mode_says_what_is_asked(
    mode: PermissionMode, nothing: PermissionDecision, files: PermissionDecision, something: PermissionDecision
) -> None:
    changes: tuple[Change, ...] = get_args(Change)

    assert [decide_permission(Permissions(mode=mode), SHELL, change) for change in changes] == [nothing, files, something]


@proves("agents.permissions")
@pytest.mark.parametrize("mode", get_args(PermissionMode))
def test_what_is_denied_is_denied_in_every_mode_even_when_it_is_allowed_too(mode: PermissionMode) -> None:
    permissions = Permissions(mode=mode, allow=("shell",), deny=("sh*",))

    assert decide_permission(permissions, SHELL, "nothing") == "deny"


@proves("agents.permissions")
@pytest.mark.parametrize(
    ("entry", "is_allowed"), [("mcp__a", True), ("mcp__a__read", True), ("mcp__a__r", False), ("mcp__", False)]
)
def test_a_server_is_named_with_all_its_tools_or_one_of_them(entry: str, is_allowed: bool) -> None:
    permissions = Permissions(mode="read", allow=(entry,))

    assert (decide_permission(permissions, [mcp_tool_name("a", "read")], "something") == "allow") is is_allowed
