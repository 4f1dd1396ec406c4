"""The table of actions: parameters are bounded, and what is wrong is refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fidelio.sandbox.actions import ACTIONS
from fidelio.sandbox.inside import lines, search
from fidelio.sandbox.inside.files import ACTIONS as INLINE
from fidelio.sandbox.inside.files import SCANS
from tests.support import proves

_HOST_ONLY = {"read_bytes", "write_bytes", "digest", "list_tree", "remove"}


@proves("sandbox.action-table")
def test_there_are_eighteen_actions_and_the_file_actions_are_implemented_inside() -> None:
    inside = {*INLINE, *SCANS}

    assert len(ACTIONS) == 18
    assert {name for name, action in ACTIONS.items() if not action.runs_commands} == inside - _HOST_ONLY
    assert {action.effect for action in ACTIONS.values()} == {"read", "write", "execute", "shell"}


@proves("sandbox.action-table")
@pytest.mark.parametrize(
    ("action", "arguments", "name"),
    [
        ("read_text", {}, "path"),
        ("read_text", {"path": 3}, "path"),
        ("read_text", {"path": ""}, "path"),
        ("read_text", {"path": "a", "lineCount": 0}, "lineCount"),
        ("read_text", {"path": "a", "maxChars": "5"}, "maxChars"),
        ("read_text", {"path": "a", "max": 5}, "max"),
        ("write_text", {"path": "a"}, "content"),
        ("replace_text", {"path": "a", "oldText": "", "newText": "b"}, "oldText"),
        ("glob_entries", {"path": "a", "pattern": "*", "kind": "link"}, "kind"),
        ("glob_entries", {"path": "a", "pattern": "*", "limit": 1_001}, "limit"),
        ("grep_text", {"path": "a", "query": "b", "regex": "yes"}, "regex"),
        ("run_command", {"command": "ls", "args": "-l"}, "args"),
        ("run_command", {"command": "ls", "args": ["-l", 3]}, "args"),
        ("run_shell", {"command": "ls", "timeoutMs": 60_001}, "timeoutMs"),
        ("wait_persistent_shell", {"timeoutMs": 45_001}, "timeoutMs"),
        ("inspect", {"path": "a"}, "path"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(action: str, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=name):
        msgspec.convert(arguments, ACTIONS[action].parameters)


@proves("sandbox.action-table")
def test_the_bounds_of_the_table_are_those_of_the_actions_inside() -> None:
    schema = msgspec.json.schema(ACTIONS["read_text"].parameters)["$defs"]["ReadTextParameters"]["properties"]
    found = msgspec.json.schema(ACTIONS["glob_entries"].parameters)["$defs"]["GlobParameters"]["properties"]

    assert schema["maxChars"]["maximum"] == lines.MAX_CHARS
    assert schema["lineCount"]["anyOf"][0]["maximum"] == lines.MAX_LINES
    assert found["limit"]["maximum"] == search.MAX_FOUND
