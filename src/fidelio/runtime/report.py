"""Report on a runtime session, folded from its events: tools, commands, approvals, promotions, sandboxes. Pure.

It also lists what a person has done to ask less or to let more through: policies, patterns, vaults, applied changes.

A runtime session follows no definition, so there is nothing to compare it with. What counts as a difference is what its record
leaves open: calls and commands whose end is unknown because a process died.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from fidelio.inbox import PROVEN
from fidelio.ledger.encoding import SESSION_DELETED
from fidelio.ledger.model import Event
from fidelio.runtime import events as e

T = TypeVar("T")
# As many entries of a kind as a report lists; the counts are of all.
LISTED = 200


class ReportedTool(msgspec.Struct):
    """How often a tool was called, and how many of the calls were refused or failed."""

    calls: int = 0
    errors: int = 0


class ReportedCommand(msgspec.Struct):
    """A command of the shell or of `bash`. `state`: running, completed or lost."""

    id: str
    at: int
    tool: str
    command: str
    cwd: str
    state: str = "running"
    exit_code: int | None = None
    timed_out: bool = False
    duration_ms: int = 0


class ReportedApproval(msgspec.Struct):
    """A request for a person's yes. `state`: open, allow, deny, expired or dismissed; `used`: the call was carried out.

    `demanded` is `proven` if the yes had to be signed, `fingerprint` that of the key which has signed the answer.
    """

    request: str
    at: int
    tool: str
    command: str = ""
    state: str = "open"
    by: str = ""
    channel: str = ""
    assurance: str = ""
    after_ms: int = 0
    comment: str = ""
    used: bool = False
    demanded: str = ""
    fingerprint: str = ""


class ReportedPolicy(msgspec.Struct):
    """A policy of a tool that was changed in this session."""

    at: int
    tool: str
    policy: str
    by: str


class ReportedPattern(msgspec.Struct):
    """A pattern of commands that run without asking, up to `expires`."""

    at: int
    pattern: str
    expires: int
    by: str


class ReportedVaults(msgspec.Struct):
    """The vaults that are attached to the session from a moment on."""

    at: int
    vaults: list[str]
    by: str


class ReportedChanges(msgspec.Struct):
    """Changes of the copy of a project that were brought back. `paths` are the first ones of `count`."""

    at: int
    by: str
    count: int
    paths: list[str]


class RuntimeReport(msgspec.Struct, kw_only=True):
    """What happened in a session. `open_calls` are calls without a result; `store` says what a store holds."""

    session: str
    name: str = ""
    role: str = "session"
    store: str = ""
    deleted_at: int | None = None
    deleted_by: str = ""
    agent: str = ""
    project: str = ""
    environment: str = ""
    environment_version: int = 0
    mount_mode: str = ""
    mount_source: str = ""
    started_at: int | None = None
    ended_at: int | None = None
    ended_by: str = ""
    levels: list[str] = msgspec.field(default_factory=list)
    closed: list[str] = msgspec.field(default_factory=list)
    tools: dict[str, ReportedTool] = msgspec.field(default_factory=dict)
    commands: dict[str, ReportedCommand] = msgspec.field(default_factory=dict)
    command_count: int = 0
    approvals: dict[str, ReportedApproval] = msgspec.field(default_factory=dict)
    policies: list[ReportedPolicy] = msgspec.field(default_factory=list)
    allowed: list[ReportedPattern] = msgspec.field(default_factory=list)
    vaults: list[ReportedVaults] = msgspec.field(default_factory=list)
    applied: list[ReportedChanges] = msgspec.field(default_factory=list)
    promoted: list[str] = msgspec.field(default_factory=list)
    hosts: dict[str, int] = msgspec.field(default_factory=dict)
    redacted: int = 0
    open_calls: dict[str, str] = msgspec.field(default_factory=dict)
    # Calls of a model that wait for a person or the caller, or have not begun: nothing of them is unknown.
    waiting_calls: set[str] = msgspec.field(default_factory=set)

    @property
    def differences(self) -> list[str]:
        """What the record leaves open."""
        calls = [
            f"The end of the call {call} of {tool} is unknown."
            for call, tool in self.open_calls.items()
            if call not in self.waiting_calls
        ]
        lost = [command for command in self.commands.values() if command.state == "lost"]
        unsigned = [
            f"The request {approval.request} demanded a signed yes, and got one without a signature."
            for approval in self.approvals.values()
            if approval.demanded == PROVEN and approval.state == "allow" and approval.assurance != PROVEN
        ]
        ends = [f"The end of the command {command.id} is unknown: {command.command}" for command in lost]
        return [*calls, *ends, *unsigned]

    def add(self, event: Event) -> None:
        """Add an event. Events that a redaction has emptied are counted; their time and actor are still there."""
        if event.type == e.STARTED:
            self.started_at = event.time
        if event.redacted:
            self.redacted += 1
        elif step := _STEPS.get(event.type):
            step(self, event)


def _start(report: RuntimeReport, event: Event) -> None:
    for name in ("role", "agent", "project"):
        setattr(report, name, event.body.get(name, getattr(report, name)))
    _configure(report, event)


def _configure(report: RuntimeReport, event: Event) -> None:
    body = event.body
    for name in ("environment", "environment_version", "mount_mode", "mount_source"):
        setattr(report, name, body.get(name, getattr(report, name)))
    for tool, policy in body.get("policies", {}).items():
        _append(report.policies, ReportedPolicy(event.time, str(tool), str(policy), event.actor))
    vaults = list(map(str, body.get("vaults", ())))
    # A session begins without vaults unless it says otherwise.
    if "vaults" in body and (vaults or report.vaults):
        _append(report.vaults, ReportedVaults(event.time, vaults, event.actor))


def _end(report: RuntimeReport, event: Event) -> None:
    report.ended_at, report.ended_by = event.time, event.actor


def _delete(report: RuntimeReport, event: Event) -> None:
    report.deleted_at, report.deleted_by = event.time, event.actor


def _use_tool(report: RuntimeReport, event: Event) -> None:
    name = str(event.body.get("name", ""))
    report.tools.setdefault(name, ReportedTool()).calls += 1
    call = str(event.body.get("id", ""))
    report.open_calls[call] = name
    if event.body.get("wake_id"):
        # A model has asked for it. Whether it begins is decided later.
        report.waiting_calls.add(call)


def _start_span(report: RuntimeReport, event: Event) -> None:
    report.waiting_calls.discard(str(event.body.get("tool_use_id", "")))


def _return_result(report: RuntimeReport, event: Event) -> None:
    report.open_calls.pop(str(event.body.get("tool_use_id", "")), None)
    if event.body.get("is_error"):
        report.tools.setdefault(str(event.body.get("name", "")), ReportedTool()).errors += 1


def _start_sandbox(report: RuntimeReport, event: Event) -> None:
    level = str(event.body.get("level", ""))
    if level not in report.levels:
        report.levels.append(level)


def _close_sandbox(report: RuntimeReport, event: Event) -> None:
    _append(report.closed, str(event.body.get("reason", "")))


def _use_network(report: RuntimeReport, event: Event) -> None:
    host = str(event.body.get("host", ""))
    report.hosts[host] = report.hosts.get(host, 0) + 1


def _start_command(report: RuntimeReport, event: Event) -> None:
    body = event.body
    report.command_count += 1
    words = (str(body.get("command", "")), *map(str, body.get("args", ())))
    identifier = str(body.get("command_id", ""))
    report.commands[identifier] = ReportedCommand(
        identifier, event.time, str(body.get("tool", "")), " ".join(words), str(body.get("cwd", ""))
    )
    _drop_oldest(report.commands)


def _end_command(report: RuntimeReport, event: Event) -> None:
    body = event.body
    command = report.commands.get(str(body.get("command_id", "")))
    if command is not None:
        command.state = str(body.get("state", "completed"))
        command.exit_code = body.get("exit_code")
        command.timed_out = bool(body.get("timed_out", False))
        command.duration_ms = int(body.get("duration_ms", 0))


def _request_approval(report: RuntimeReport, event: Event) -> None:
    body = event.body
    request = str(body.get("request", ""))
    if "tool_use_id" in body:
        report.waiting_calls.add(str(body["tool_use_id"]))
    approval = ReportedApproval(request, event.time, str(body.get("tool", "")), str(body.get("command", "")))
    approval.demanded = str(body.get("answered_by", ""))
    report.approvals[request] = approval
    _drop_oldest(report.approvals)


def _answer(report: RuntimeReport, event: Event) -> None:
    body = event.body
    approval = report.approvals.get(str(body.get("request", "")))
    if approval is not None:
        approval.state = str(body.get("option", ""))
        approval.by, approval.channel = str(body.get("by", "")), str(body.get("channel", ""))
        approval.assurance, approval.after_ms = str(body.get("assurance", "")), int(body.get("after_ms", 0))
        approval.comment = str(body.get("text", ""))
        approval.fingerprint = str((body.get("proof") or {}).get("fingerprint", ""))


def _use_approval(report: RuntimeReport, event: Event) -> None:
    approval = report.approvals.get(str(event.body.get("request", "")))
    if approval is not None:
        approval.used = True


def _end_approval(report: RuntimeReport, event: Event) -> None:
    approval = report.approvals.get(str(event.body.get("request", "")))
    if approval is not None and approval.state == "open":
        approval.state = str(event.body.get("reason", "dismissed"))


def _allow(report: RuntimeReport, event: Event) -> None:
    body = event.body
    allowed = ReportedPattern(event.time, str(body.get("pattern", "")), int(body.get("expires", 0)), str(body.get("by", "")))
    _append(report.allowed, allowed)


def _apply(report: RuntimeReport, event: Event) -> None:
    body = event.body
    paths = [str(change.get("path", "")) for change in body.get("changes", ())[:LISTED]]
    _append(report.applied, ReportedChanges(event.time, str(body.get("by", "")), int(body.get("count", 0)), paths))


def _promote(report: RuntimeReport, event: Event) -> None:
    _append(report.promoted, str(event.body.get("target_path", "")))


def _append(entries: list[T], entry: T) -> None:
    """Append an entry, and drop the oldest where there are too many."""
    entries.append(entry)
    del entries[:-LISTED]


def _drop_oldest(entries: dict[str, ReportedCommand] | dict[str, ReportedApproval]) -> None:
    if len(entries) > LISTED:
        entries.pop(next(iter(entries)))


_STEPS: Mapping[str, Callable[[RuntimeReport, Event], None]] = {
    e.STARTED: _start,
    e.CONFIGURED: _configure,
    e.ENDED: _end,
    SESSION_DELETED: _delete,
    e.TOOL_USE: _use_tool,
    e.SPAN_STARTED: _start_span,
    e.TOOL_RESULT: _return_result,
    e.SANDBOX_STARTED: _start_sandbox,
    e.SANDBOX_CLOSED: _close_sandbox,
    e.NETWORK_USED: _use_network,
    e.COMMAND_STARTED: _start_command,
    e.COMMAND_ENDED: _end_command,
    e.APPROVAL_REQUESTED: _request_approval,
    e.REQUEST_ANSWERED: _answer,
    e.APPROVAL_USED: _use_approval,
    e.APPROVAL_ENDED: _end_approval,
    e.PERMISSION_ALLOWED: _allow,
    e.PROMOTED: _promote,
    e.PROJECT_APPLIED: _apply,
}
