"""The decision whether a call may run. Pure.

Decided for the effect and not for the name that asked for it: `sandbox_execute` with `run_shell` is decided as `shell_run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from fidelio.errors import UsageProblem
from fidelio.inbox import PROVEN
from fidelio.runtime.record import AllowedPattern, RuntimeRecord
from fidelio.runtime.tools.model import Policy, ToolDefinition
from fidelio.sandbox.commands.parse import parse_command

# The tools whose arguments are a command for a shell.
SHELL_COMMANDS = frozenset({"shell_run", "shell_exec"})
_SHELL = "bash"
POLICIES: tuple[Policy, ...] = ("always_allow", "always_ask", "auto", "proven")
ANY = "*"


class PermissionDecision(msgspec.Struct, frozen=True):
    """`project`: the call runs as the read-only tool that does the same. `reason` is for people and models."""

    access: Literal["allow", "ask", "project"]
    reason: str = ""


def takes_command(definition: ToolDefinition) -> bool:
    """Whether the arguments of a tool are a command for a shell. The `bash` of our own toolset runs none."""
    return definition.name in SHELL_COMMANDS or (definition.name == _SHELL and definition.group == "shell")


def find_policy(definition: ToolDefinition, record: RuntimeRecord, action: str = "") -> Policy:
    """The policy of a tool in a session: the session's own for the action or the tool, else that of the definition."""
    own = record.policies.get(action) or record.policies.get(definition.name)
    return next((policy for policy in POLICIES if policy == own), definition.policy)


def decide(
    definition: ToolDefinition, record: RuntimeRecord, command: str, *, is_read_only: bool, now: int, action: str = ""
) -> PermissionDecision:
    """Decide about a call. `command` is the text that a shell would run; `is_read_only`: it has a read-only projection."""
    policy = find_policy(definition, record, action)
    if policy == "always_allow":
        return PermissionDecision("allow", "The policy of this tool is always_allow.")
    if policy == PROVEN:
        # Before the patterns: who may allow one at a terminal has not signed for the commands that it covers.
        return PermissionDecision("ask", "The policy of this tool is proven: each call needs a signed yes.")
    if policy == "auto" and definition.read_only and definition.group == "files":
        return PermissionDecision("allow", "The tool only reads.")
    if takes_command(definition):
        if pattern := find_pattern(record.allowed, command, now=now):
            return PermissionDecision("allow", f"{pattern.by} allowed {pattern.pattern!r} in this session.")
        if policy == "auto" and is_read_only:
            return PermissionDecision("project", "The command only reads, so the read-only tool runs instead.")
    return PermissionDecision("ask", f"The policy of this tool is {policy}.")


def find_pattern(allowed: Sequence[AllowedPattern], command: str, *, now: int) -> AllowedPattern | None:
    """The pattern that covers a command; None if there is none, or if the command is not plain."""
    current = [pattern for pattern in allowed if pattern.expires > now]
    words = parse_command(command) if current else None
    if words is None:
        return None
    return next((pattern for pattern in current if _matches(read_pattern(pattern.pattern), words)), None)


def read_pattern(text: str) -> tuple[str, ...]:
    """The words of a pattern. The first is the program; `*` stands for a word, at the end for any number of words."""
    words = tuple(text.split())
    if not words or ANY in words[0]:
        raise UsageProblem(f"{text!r} does not name a program.", remedy="Write the program first, for example: pytest *")
    return words


def _matches(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    has_rest = len(pattern) > 1 and pattern[-1] == ANY
    fixed = pattern[:-1] if has_rest else pattern
    if len(words) < len(fixed) or (not has_rest and len(words) != len(fixed)):
        return False
    return all(expected in (ANY, word) for expected, word in zip(fixed, words, strict=False))
