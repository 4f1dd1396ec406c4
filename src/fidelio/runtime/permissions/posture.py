"""What the permission tools say: may a planned call run, what waits for a person, what can be done meanwhile. Pure.

The verdict about the outcomes is read from the record. What is known of the context of a model is filled in by its wake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelio.clock import format_iso
from fidelio.runtime.outcomes.verdicts import find_gate_step, read_verdict
from fidelio.runtime.permissions.policy import SHELL_COMMANDS, PermissionDecision, decide, find_policy
from fidelio.runtime.record import ApprovalRecord, RuntimeRecord
from fidelio.runtime.shell.live import LiveShell
from fidelio.runtime.shell.plans import (
    Suggestion,
    Tools,
    describe_posture,
    find_status,
    plan_busy,
    plan_next_step,
    plan_recovery,
    read_first_alternatives,
    suggest,
)
from fidelio.runtime.tools.definitions import DEFINITIONS, PERMISSION_OF_ACTION, RUNTIME_TOOLS, TOOL_OF_ACTION
from fidelio.runtime.tools.model import ToolDefinition
from fidelio.sandbox.actions import ACTIONS
from fidelio.sandbox.commands.projection import project
from fidelio.sandbox.model import RUNTIME_LINK

ARTIFACTS = {
    "permissions": f"{RUNTIME_LINK}/permissions.json",
    "permissionPosture": f"{RUNTIME_LINK}/permission-posture.json",
    "permissionPostureMarkdown": f"{RUNTIME_LINK}/permission-posture.md",
}
_NO_VERDICT: Mapping[str, None] = {"outcomeEvaluation": None, "nextOutcomeStep": None, "contextPressure": None}
# The tools whose next step may be to wait for or to repair the shell.
_SHELL_MUTATIONS = frozenset(
    {
        *("shell_set_cwd", "shell_set_env", "shell_unset_env", "shell_open", "shell_restart", "shell_run", "shell_exec"),
        *("shell_close", "shell_send_input"),
    }
)


class PlannedCall:
    """A call that is only planned: the tool that would be carried out, its command and directory."""

    def __init__(self, name: str, arguments: Mapping[str, Any], record: RuntimeRecord) -> None:
        action = str(arguments.get("name", "")) if name == "sandbox_execute" else ""
        if tool := PERMISSION_OF_ACTION.get(action):
            inner = arguments.get("input")
            name, arguments = tool, inner if isinstance(inner, Mapping) else {}
        self.name, self.action = name, action if action not in TOOL_OF_ACTION else ""
        self.definition = DEFINITIONS.get(name) if not action or action in ACTIONS else None
        text, cwd = arguments.get("command"), arguments.get("cwd")
        self.command = text if isinstance(text, str) and name in SHELL_COMMANDS else ""
        self.cwd = cwd if isinstance(cwd, str) and cwd else record.shell.cwd

    def find_alternative(self, tools: Tools) -> Suggestion | None:
        return find_alternative(self.command, self.cwd, tools)


def find_alternative(command: str, cwd: str, tools: Tools) -> Suggestion | None:
    """The read-only call with the same result as a command, if the caller has its tool."""
    found = project(command, cwd) if command else None
    return suggest(tools, found.tool, found.arguments, "It only reads and needs no approval.") if found else None


def _describe_verdict(record: RuntimeRecord, live: LiveShell | None, tools: Tools, *, now: int) -> dict[str, Any]:
    """The verdict about the outcomes, and what to do while it does not allow shared writes."""
    verdict = read_verdict(record, shell_busy=find_status(record.shell, live) == "busy", tools=tools, now=now)
    return {**_NO_VERDICT, "outcomeEvaluation": verdict, "nextOutcomeStep": find_gate_step(verdict, tools)}


def check_call(
    name: str,
    arguments: Mapping[str, Any],
    record: RuntimeRecord,
    live: LiveShell | None,
    tools: Tools,
    *,
    now: int,
    pressure: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The result of permissions_check. `pressure` is that of the model's context."""
    planned = PlannedCall(name, arguments, record)
    definition = planned.definition if name in tools and planned.name in tools else None
    alternative = planned.find_alternative(tools)
    is_judged = planned.name in _SHELL_MUTATIONS or (definition is not None and definition.is_gated)
    verdict = _describe_verdict(record, live, tools, now=now) if is_judged else _NO_VERDICT
    common = {
        "toolName": name,
        "artifactPaths": ARTIFACTS,
        **verdict,
        "contextPressure": pressure,
        "shellMutationPosture": describe_posture(record, live, tools) if planned.name in _SHELL_MUTATIONS else None,
        "readOnlyAlternative": alternative,
        "shellReadFirstAlternatives": _list_alternatives(planned, record, live, tools, alternative),
    }
    if definition is None:
        return {**common, **_UNKNOWN, "nextStep": None, "pendingToolConfirmationRequest": None}
    is_read_only = alternative is not None
    decision = decide(definition, record, planned.command, is_read_only=is_read_only, now=now, action=planned.action)
    pending = next((found for found in record.approvals.values() if found.tool == definition.name), None)
    return {
        **common,
        **_describe_definition(definition, record, decision, planned.action),
        "pendingToolConfirmationRequest": describe_request(pending) if pending else None,
        "nextStep": _find_next_step(planned, record, live, tools, decision, alternative, verdict["nextOutcomeStep"]),
    }


_UNKNOWN: Mapping[str, Any] = {
    "exists": False,
    "allowed": False,
    "permissionPolicy": None,
    "requiresConfirmation": False,
    "requiresOutcomePass": False,
    "ownership": None,
    "effects": [],
    "readOnly": None,
    "destructive": None,
    "interruptBehavior": None,
    "reason": "There is no such tool or action here.",
}


def _describe_definition(
    definition: ToolDefinition, record: RuntimeRecord, decision: PermissionDecision, action: str
) -> dict[str, Any]:
    return {
        "exists": True,
        "allowed": True,
        "permissionPolicy": find_policy(definition, record, action),
        "requiresConfirmation": decision.access == "ask",
        "requiresOutcomePass": definition.is_gated,
        "ownership": definition.ownership,
        "effects": list(definition.effects),
        "readOnly": definition.read_only,
        "destructive": definition.destructive,
        "interruptBehavior": definition.interrupt,
        "reason": decision.reason,
    }


def _list_alternatives(
    planned: PlannedCall, record: RuntimeRecord, live: LiveShell | None, tools: Tools, alternative: Suggestion | None
) -> list[Suggestion]:
    if planned.name not in _SHELL_MUTATIONS:
        return []
    return read_first_alternatives(record, live, tools, preferred=alternative)


def _find_next_step(
    planned: PlannedCall,
    record: RuntimeRecord,
    live: LiveShell | None,
    tools: Tools,
    decision: PermissionDecision,
    alternative: Suggestion | None,
    outcome_step: Suggestion | None,
) -> Suggestion | None:
    """A cheaper call that does the same, else what the shell or the outcome needs, else what explains the permission."""
    steps: list[Suggestion | None] = [alternative]
    if planned.name in _SHELL_MUTATIONS and plan_busy(record.shell, live, tools) is not None:
        steps.append(plan_next_step(record.shell, live, tools))
    if planned.name == "shell_exec":
        steps.append(plan_recovery(record.shell, live, tools))
    if planned.name in SHELL_COMMANDS:
        steps.append(suggest(tools, "shell_describe", {}, "Look at directory, variables and recent commands first."))
    if planned.definition is not None and planned.definition.is_gated:
        steps.append(outcome_step)
    if decision.access == "ask" and planned.name not in SHELL_COMMANDS:
        steps.append(suggest(tools, "permissions_describe", {}, "See what waits for a person already."))
    return next((step for step in steps if step is not None), None)


def describe_permissions(
    record: RuntimeRecord,
    live: LiveShell | None,
    tools: Tools,
    *,
    now: int = 0,
    pressure: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The result of permissions_describe, and the file permission-posture.json. `pressure` is that of the model's context."""
    offered = [tool for tool in RUNTIME_TOOLS if tool.name in tools]
    waiting = [approval for approval in record.approvals.values() if approval.state == "open"]
    blocked = next((approval for approval in waiting if approval.command), None)
    alternative = find_alternative(blocked.command, blocked.cwd or record.shell.cwd, tools) if blocked else None
    return {
        "artifactPaths": ARTIFACTS,
        "pendingToolConfirmationRequest": describe_request(waiting[0]) if waiting else None,
        "pendingToolConfirmationRequests": [describe_request(approval) for approval in record.approvals.values()],
        **_describe_verdict(record, live, tools, now=now),
        "contextPressure": pressure,
        "shellMutationPosture": describe_posture(record, live, tools),
        "readOnlyAlternative": alternative,
        "nextShellStep": alternative or plan_next_step(record.shell, live, tools),
        "shellReadFirstAlternatives": read_first_alternatives(record, live, tools, preferred=alternative),
        "alwaysAskTools": [tool.name for tool in offered if find_policy(tool, record) != "always_allow"],
        "outcomeGatedTools": [tool.name for tool in offered if tool.is_gated],
        "allowedPatterns": [
            {"pattern": allowed.pattern, "until": format_iso(allowed.expires), "by": allowed.by} for allowed in record.allowed
        ],
    }


def describe_request(approval: ApprovalRecord) -> dict[str, Any]:
    """A request of a call, with its state: open, allowed or denied and not yet used."""
    return {
        "requestId": approval.request,
        "toolName": approval.tool,
        "command": approval.command or None,
        "state": approval.state,
        "requestedAt": format_iso(approval.opened_at),
        "expiresAt": format_iso(approval.expires),
    }
