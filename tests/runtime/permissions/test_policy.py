"""Whether a call runs, asks, or runs as its projection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import UsageProblem
from fidelio.runtime.permissions.policy import decide, find_pattern, find_policy, read_pattern
from fidelio.runtime.record import AllowedPattern, RuntimeRecord
from fidelio.runtime.tools.definitions import DEFINITIONS
from tests.support import proves

ASKING = {
    *("shell_run", "shell_exec", "shell_send_input"),
    *("resources_promote_to_substrate", "resources_restore_version", "memory_promote_note"),
}
NOW = 1_000
# A word of operators only, such as ==, is none of a plain command.
WORDS = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="-_./="), min_size=1, max_size=8).filter(
    lambda word: word.strip("=") != ""
)


def allow(*patterns: str, expires: int = NOW + 1) -> RuntimeRecord:
    return RuntimeRecord(allowed=tuple(AllowedPattern(pattern, expires, "person:a") for pattern in patterns))


@proves("runtime.policy")
def test_exactly_these_tools_ask_by_default() -> None:
    asking = {
        name
        for name, tool in DEFINITIONS.items()
        if decide(tool, RuntimeRecord(), "rm x", is_read_only=False, now=NOW).access != "allow"
    }

    assert asking == ASKING


@proves("runtime.policy")
@pytest.mark.parametrize(
    ("policy", "command", "is_read_only", "access"),
    [
        ("always_ask", "cat a", True, "ask"),
        ("auto", "cat a", True, "project"),
        ("auto", "rm a", False, "ask"),
        ("always_allow", "rm a", False, "allow"),
    ],
)
def test_the_policy_of_a_session_decides(policy: str, command: str, is_read_only: bool, access: str) -> None:
    record = RuntimeRecord(policies={"shell_run": policy})

    assert decide(DEFINITIONS["shell_run"], record, command, is_read_only=is_read_only, now=NOW).access == access


@proves("runtime.policy")
def test_a_policy_that_is_none_is_not_used() -> None:
    record = RuntimeRecord(policies={"shell_run": "sometimes"})

    assert find_policy(DEFINITIONS["shell_run"], record) == "always_ask"


@proves("runtime.patterns")
@pytest.mark.parametrize(
    ("pattern", "command", "covered"),
    [
        ("pytest *", "pytest -q tests", True),
        ("pytest *", "pytest", True),
        ("pytest", "pytest -q", False),
        ("git * -s", "git status -s", True),
        ("git * -s", "git status", False),
        ("pytest *", "pytest; rm -rf x", False),
        ("pytest *", "pytest $(rm x)", False),
        ("pytest *", "pytest > out", False),
        ("pytest *", "A=1 pytest", False),
        ("pytest *", "pytest | sh", False),
        ("pytest *", "PYTEST", False),
        ("pytest *", "", False),
    ],
)
def test_a_pattern_covers_plain_commands_only(pattern: str, command: str, covered: bool) -> None:
    found = decide(DEFINITIONS["shell_run"], allow(pattern), command, is_read_only=False, now=NOW)

    assert (found.access == "allow") is covered


@proves("runtime.patterns")
def test_a_pattern_ends_with_its_time() -> None:
    assert find_pattern(allow("ls *", expires=NOW).allowed, "ls a", now=NOW) is None
    assert find_pattern(allow("ls *").allowed, "ls a", now=NOW) is not None


@proves("runtime.patterns")
@given(st.lists(WORDS, max_size=3), st.lists(WORDS, max_size=4), st.integers(0, 3))
def test_a_pattern_with_a_rest_covers_exactly_the_commands_that_begin_with_it(
    fixed: list[str], rest: list[str], missing: int
) -> None:
    words = ["./run-it", *fixed]
    allowed = allow(" ".join([*words, "*"])).allowed
    begun = words[: len(words) - missing]

    assert find_pattern(allowed, " ".join([*words, *rest]), now=NOW) is not None
    assert (find_pattern(allowed, " ".join(begun), now=NOW) is not None) is (begun == words)


@proves("runtime.patterns")
@pytest.mark.parametrize("pattern", ["", "  ", "*", "* x", "py*"])
def test_a_pattern_names_its_program(pattern: str) -> None:
    with pytest.raises(UsageProblem, match="program"):
        read_pattern(pattern)
