"""Which read-only call fits a message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime.notes.read_first import find_read_first
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.toolkit import read_arguments
from tests.support import proves

SEARCH = {"path": "/workspace", "caseSensitive": False}


@proves("notes.read-first")
@pytest.mark.parametrize(
    ("message", "tool", "args"),
    [
        ("Quote the first line of SOUL.md verbatim", "read", {"path": "/workspace/agent/SOUL.md"}),
        ("what is in memory.md?", "read", {"path": "/workspace/agent/MEMORY.md"}),
        ("What happened in the last command?", "shell_read_last_output", {}),
        ("show me stderr", "shell_read_last_output", {}),
        ("Please open /workspace/notes/plan.txt", "read", {"path": "/workspace/notes/plan.txt"}),
        ("read src/app.py and explain", "read", {"path": "/workspace/src/app.py"}),
        ('find "retry budget" in the code', "grep", {**SEARCH, "query": "retry budget"}),
        ("search for parse_config", "grep", {**SEARCH, "query": "parse_config"}),
        ("where is the function loadUser defined?", "grep", {**SEARCH, "query": "loadUser"}),
        ("grep widgets", "grep", {**SEARCH, "query": "widgets"}),
        ("list all files", "glob", {"path": "/workspace", "pattern": "**/*", "limit": 40}),
        ("What files are there? ls please", "glob", {"path": "/workspace", "pattern": "**/*", "limit": 40}),
        ("what is the current directory", "bash", {"command": "pwd", "args": []}),
    ],
)
def test_a_message_leads_to_the_call_that_answers_it(message: str, tool: str, args: dict[str, Any]) -> None:
    found = find_read_first(message, has_last_command=True)

    assert found is not None
    assert found[1:] == (tool, args)


@proves("notes.read-first")
@pytest.mark.parametrize(
    "message",
    [
        "Edit SOUL.md and add a line",
        "Change src/app.py so that it prints the version",
        "Thanks!",
        "read /etc/passwd",
        "Summarise our plan",
        "",
    ],
)
def test_other_messages_lead_to_nothing(message: str) -> None:
    assert find_read_first(message, has_last_command=False) is None


@proves("notes.read-first")
@pytest.mark.parametrize("verb", ["find", "search", "grep", "locate", "contains", "match", "where is", "which file"])
def test_the_verb_of_a_search_is_never_what_is_searched_for(verb: str) -> None:
    found = find_read_first(f"{verb} widget", has_last_command=False)

    assert found == ("search", "grep", {**SEARCH, "query": "widget"})
    assert find_read_first(f"{verb}", has_last_command=False) is None


@proves("notes.read-first")
def test_without_a_last_command_there_is_no_output_to_read() -> None:
    assert find_read_first("show me stdout", has_last_command=False) is None


@proves("notes.read-first")
@given(st.text(alphabet=st.sampled_from("find read SOUL.md \"'`/ab._-<>\n?"), max_size=80), st.booleans())
def test_every_suggestion_is_accepted_by_its_tool(message: str, has_last_command: bool) -> None:
    found = find_read_first(message, has_last_command=has_last_command)

    if found is not None:
        read_arguments(found[1], DEFINITIONS[found[1]].parameters, found[2])
