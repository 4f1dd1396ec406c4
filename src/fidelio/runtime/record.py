"""The record of a runtime session, folded from its events. Pure: no clock, no I/O.

It holds what the next call needs and nothing that grows without bound: the newest commands with previews, open approvals, the
staged drafts. Whole outputs and older commands are read from the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from fidelio.errors import SessionNotFound
from fidelio.errors.ledger import damaged_value
from fidelio.ledger.encoding import DELETED, session_deleted
from fidelio.ledger.model import Session
from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e
from fidelio.runtime.durable_shell import SHELL_FOLDS, ShellFold, ShellRecord

# Answers of these assurances are a person's; a model's relayed answer and a timer's are not.
PERSONAL = frozenset({"local", "elicited", "proven"})

# Drafts that are kept in the record; an older one is only a file of the workspace then.
MAX_DRAFTS = 100

ApprovalState = Literal["open", "allowed", "denied"]


class ApprovalRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for a person's yes to exact arguments. `digest` covers everything that the approval is bound to."""

    request: str
    digest: str
    tool: str
    expires: int
    state: ApprovalState = "open"
    message: str = ""
    by: str = ""
    # The blocked command, for the tools that suggest a read-only way.
    command: str = ""
    cwd: str = ""
    opened_at: int = 0


class AllowedPattern(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pattern of commands that a person allows until a moment: `pytest *`."""

    pattern: str
    expires: int
    by: str


class StagedDraft(msgspec.Struct, frozen=True):
    """A file of the substrate that was copied into the workspace."""

    source_path: str
    source_digest: str
    target_digest: str
    staged_at: int


class SandboxRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last sandbox of the session. `incarnation` is empty while none is live on record."""

    level: str = ""
    incarnation: str = ""
    closed_because: str = ""
    # The last connection through the proxy that is on record, and the log that it is numbered in.
    network_log: str = ""
    network_seen: int = 0


class RuntimeRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of a session, or of a store (`role`): the shared files of an agent, the environments, the vaults."""

    seq: int = 0
    role: Literal["session", "store"] = "session"
    status: str = "idle"
    agent: str = ""
    project: str = ""
    # The name of the directory below `<home>/sandboxes`.
    directory: str = ""
    environment: str = ""
    environment_version: int = 0
    # The user's project: how it is mounted (`ro`, `rw`, `copy`), and which directory.
    mount_mode: str = ""
    mount_source: str = ""
    vaults: tuple[str, ...] = ()
    policies: dict[str, str] = {}
    sandbox: SandboxRecord = SandboxRecord()
    shell: ShellRecord = ShellRecord()
    approvals: dict[str, ApprovalRecord] = {}
    allowed: tuple[AllowedPattern, ...] = ()
    drafts: dict[str, StagedDraft] = {}

    def find_approval(self, digest: str) -> ApprovalRecord | None:
        return next((approval for approval in self.approvals.values() if approval.digest == digest), None)


Fold = Callable[[RuntimeRecord, RecordEvent], RuntimeRecord]


def _start(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    body = event.body
    return replace(
        record,
        role=body.get("role", "session"),
        agent=body.get("agent", ""),
        project=body.get("project", ""),
        directory=body.get("directory", ""),
        environment=body.get("environment", ""),
        environment_version=body.get("environment_version", 0),
        mount_mode=body.get("mount_mode", ""),
        mount_source=body.get("mount_source", ""),
        vaults=tuple(body.get("vaults", ())),
        policies=dict(body.get("policies", {})),
    )


def _configure(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    """A person changed the environment, the vaults, the mount or the policies of the session."""
    names = ("environment", "environment_version", "mount_mode", "mount_source")
    changed: dict[str, Any] = {name: event.body[name] for name in names if name in event.body}
    if "vaults" in event.body:
        changed["vaults"] = tuple(event.body["vaults"])
    if "policies" in event.body:
        changed["policies"] = {**record.policies, **event.body["policies"]}
    return replace(record, **changed)


def _end(record: RuntimeRecord, _: RecordEvent) -> RuntimeRecord:
    return replace(record, status="terminated", approvals={})


def _start_sandbox(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    started = replace(record.sandbox, level=event.body["level"], incarnation=event.body["incarnation"], closed_because="")
    return replace(record, sandbox=started)


def _close_sandbox(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    closed = replace(record.sandbox, incarnation="", closed_because=event.body.get("reason", ""))
    return replace(record, sandbox=closed)


def _use_network(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    return replace(record, sandbox=replace(record.sandbox, network_log=event.body["log"], network_seen=event.body["number"]))


def _request_approval(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    body = event.body
    approval = ApprovalRecord(
        request=body["request"],
        digest=body["digest"],
        tool=body["tool"],
        expires=body["expires"],
        command=body.get("command", ""),
        cwd=body.get("cwd", ""),
        opened_at=event.time,
    )
    return replace(record, approvals={**record.approvals, approval.request: approval})


def _answer(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    body = event.body
    approval = record.approvals.get(body.get("request", ""))
    if approval is None or approval.state != "open" or body.get("assurance") not in PERSONAL:
        return record
    state: ApprovalState = "allowed" if body.get("option") == "allow" else "denied"
    answered = replace(approval, state=state, message=body.get("text", ""), by=body.get("by", ""))
    return replace(record, approvals={**record.approvals, approval.request: answered})


def _end_approval(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    rest = {request: approval for request, approval in record.approvals.items() if request != event.body["request"]}
    return replace(record, approvals=rest)


def _allow_pattern(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    body = event.body
    pattern = AllowedPattern(body["pattern"], body["expires"], body["by"])
    others = (allowed for allowed in record.allowed if allowed.pattern != pattern.pattern)
    return replace(record, allowed=(*others, pattern))


def _in_shell(change: ShellFold) -> Fold:
    """The fold of the record that a fold of its shell is."""

    def fold_shell(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
        return replace(record, shell=replace(change(record.shell, event), updated_at=event.time))

    return fold_shell


def _add_draft(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    body = event.body
    draft = StagedDraft(body["source_path"], body["source_digest"], body["target_digest"], event.time)
    # By time: the stored record does not keep the order of its keys.
    others = sorted(record.drafts.items(), key=lambda item: (item[1].staged_at, item[0]))
    newest = [(path, other) for path, other in others if path != body["target_path"]][1 - MAX_DRAFTS :]
    return replace(record, drafts={**dict(newest), body["target_path"]: draft})


def _promote(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    """A promoted draft is based on what it has become. The names are those of the promotion: its source is the draft."""
    body = event.body
    draft = record.drafts.get(body.get("source_path", ""))
    if draft is None or draft.source_path != body.get("target_path"):
        return record
    digest = body["content_digest"]
    promoted = replace(draft, source_digest=digest, target_digest=digest)
    return replace(record, drafts={**record.drafts, body["source_path"]: promoted})


_FOLDS: dict[str, Fold] = {
    e.STARTED: _start,
    e.CONFIGURED: _configure,
    e.ENDED: _end,
    e.SANDBOX_STARTED: _start_sandbox,
    e.SANDBOX_CLOSED: _close_sandbox,
    e.NETWORK_USED: _use_network,
    e.APPROVAL_REQUESTED: _request_approval,
    e.REQUEST_ANSWERED: _answer,
    e.APPROVAL_USED: _end_approval,
    e.APPROVAL_ENDED: _end_approval,
    e.PERMISSION_ALLOWED: _allow_pattern,
    e.STAGED: _add_draft,
    e.PROMOTED: _promote,
    **{type_: _in_shell(change) for type_, change in SHELL_FOLDS.items()},
}


def fold(record: RuntimeRecord, events: Iterable[RecordEvent]) -> RuntimeRecord:
    for event in events:
        change = _FOLDS.get(event.type)
        record = replace(record if change is None else change(record, event), seq=event.seq)
    return record


# Keys of event bodies whose values are ids, states, names or digests, and no text of an agent or a person.
_STRUCTURE = """
role agent project directory environment environment_version mount_mode mount_source vaults policies.* level incarnation request
digest tool expires option assurance by shell_id pty by_command set.* unset variables.* command_id state signal timed_out
source_path source_digest target_digest target_path content_digest pattern
"""


class RuntimeRecords:
    """The `RecordType` of runtime sessions."""

    structure = frozenset(_STRUCTURE.split())
    folded = frozenset(_FOLDS)

    def check(self, session: Session) -> None:
        if session.kind != "runtime":
            raise SessionNotFound(f"Session {session.id} is not a runtime session.", remedy="Use the name of one.")
        if session.status == DELETED:
            raise session_deleted(session.id)

    def read(self, raw: str) -> RuntimeRecord:
        try:
            return _DECODER.decode(raw)
        except msgspec.MsgspecError as error:
            raise damaged_value("record of a session", error) from error

    def fold(self, record: RuntimeRecord, events: Iterable[RecordEvent]) -> RuntimeRecord:
        return fold(record, events)

    def seq(self, record: RuntimeRecord) -> int:
        return record.seq

    def status(self, record: RuntimeRecord) -> tuple[str, None]:
        return record.status, None


_DECODER = msgspec.json.Decoder(RuntimeRecord)
