"""The record of a runtime session, folded from its events. Pure: no clock, no I/O.

It holds what the next call needs and nothing that grows without bound: the newest commands with previews, open approvals, the
staged drafts. Whole outputs and older commands are read from the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from fidelio.errors import SessionNotFound
from fidelio.errors.ledger import damaged_value
from fidelio.inbox import PROVEN
from fidelio.ledger.encoding import DELETED, session_deleted
from fidelio.ledger.model import Session
from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.runtime import events as e
from fidelio.runtime.attachments import RESOURCE_FOLDS, SessionResource, SessionSkill, read_resource
from fidelio.runtime.credentials.model import CREDENTIAL_FOLDS, CredentialsRecord
from fidelio.runtime.draft_record import DRAFT_FOLDS, StagedDraft
from fidelio.runtime.durable_shell import SHELL_FOLDS, ShellFold, ShellRecord
from fidelio.runtime.memory.record import MEMORY_FOLDS, MemoryRecord
from fidelio.runtime.memory_stores.record import MEMORIES_FOLDS, MemoriesRecord
from fidelio.runtime.outcomes.record import OUTCOME_FOLDS, OutcomesRecord
from fidelio.runtime.snapshots.record import SNAPSHOT_FOLDS, SnapshotRecord
from fidelio.runtime.wakes.record import SHARED_WAKE_FOLDS, WAKE_FOLDS, WakeRecord

# Answers of these assurances are a person's; a model's relayed answer and a timer's are not.
PERSONAL = frozenset({"local", "elicited", PROVEN})

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
    # The call of a model that waits for it; empty for a call of an external client, which repeats it.
    tool_use: str = ""
    # Whether the yes must be signed with a registered key.
    is_proven: bool = False


class AllowedPattern(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pattern of commands that a person allows until a moment: `pytest *`."""

    pattern: str
    expires: int
    by: str


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
    # The most open network of a session that may read this log, if a person has widened it; in a store: the logs of its agent.
    readers: str = ""
    sandbox: SandboxRecord = SandboxRecord()
    shell: ShellRecord = ShellRecord()
    approvals: dict[str, ApprovalRecord] = {}
    allowed: tuple[AllowedPattern, ...] = ()
    drafts: dict[str, StagedDraft] = {}
    # The version of the agent's definition; 0 for a session without a model, which an external client uses.
    agent_version: int = 0
    # A definition that only this session has, in place of that version.
    agent_variant: str = ""
    # The definition that the session began with, where it differs from that version: a fork with another model, a child.
    model: str = ""
    title: str = ""
    tools: tuple[str, ...] = ()
    budget: dict[str, float] = {}
    # What a child began with: its part of the budget of its parent, whatever its own limits are later.
    share: dict[str, float] = {}
    # How many sessions are above it, and the first of them; both empty for a session that nobody delegated to.
    depth: int = 0
    root: str = ""
    is_archived: bool = False
    archived_at: int = 0
    # What the program that began it keeps with it, and the vaults and resources that it attached.
    metadata: dict[str, str] = {}
    vault_ids: tuple[str, ...] = ()
    resources: tuple[SessionResource, ...] = ()
    # The deployment that began it, if any, and the uploaded skills of its agent.
    deployment_id: str = ""
    skills: tuple[SessionSkill, ...] = ()
    wakes: WakeRecord = WakeRecord()
    outcomes: OutcomesRecord = OutcomesRecord()
    memory: MemoryRecord = MemoryRecord()
    memories: MemoriesRecord = MemoriesRecord()
    credentials: CredentialsRecord = CredentialsRecord()
    snapshots: SnapshotRecord = SnapshotRecord()

    @property
    def is_closed(self) -> bool:
        """Whether it has ended or is archived: it has no more wakes."""
        return self.status == "terminated" or self.is_archived

    def find_approval(self, digest: str, tool_use: str) -> ApprovalRecord | None:
        """The approval of a call. Each call of a model has its own, also if it asks for the same as another call."""
        same = (approval for approval in self.approvals.values() if approval.digest == digest)
        return next((approval for approval in same if approval.tool_use == tool_use), None)


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
        agent_version=body.get("agent_version", 0),
        agent_variant=body.get("agent_variant", ""),
        model=body.get("model", ""),
        title=body.get("title", ""),
        tools=tuple(body.get("tools", ())),
        budget=dict(body.get("budget", {})),
        share=dict(body.get("budget", {})) if body.get("depth") else {},
        depth=body.get("depth", 0),
        root=body.get("root", ""),
        metadata=dict(body.get("metadata", {})),
        vault_ids=tuple(body.get("vault_ids", ())),
        resources=tuple(read_resource(item, event.time) for item in body.get("resources", ())),
        deployment_id=body.get("deployment_id", ""),
        skills=tuple(SessionSkill(**item) for item in body.get("skills", ())),
    )


def _configure(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    """A person changed the environment, the vaults, the mount or the policies of the session."""
    sandbox = ("environment", "environment_version", "mount_mode", "mount_source")
    names = (*sandbox, "agent_version", "agent_variant", "model", "title", "metadata", "readers")
    changed: dict[str, Any] = {name: event.body[name] for name in names if name in event.body}
    for name in ("vaults", "vault_ids"):
        if name in event.body:
            changed[name] = tuple(event.body[name])
    if "policies" in event.body:
        changed["policies"] = {**record.policies, **event.body["policies"]}
    if "budget" in event.body:
        changed["budget"] = {**record.budget, **event.body["budget"]}
    return replace(record, **changed)


def _end(record: RuntimeRecord, _: RecordEvent) -> RuntimeRecord:
    return replace(record, status="terminated", approvals={})


def _archive(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    return replace(record, is_archived=True, archived_at=event.time)


def _fork(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    """The conversation is that of another session. Nothing of it is active, waits or counts against the budgets here."""
    fresh = WakeRecord(last=event.body.get("wake_id", ""), processed_seq=event.seq, stop_reason="end_turn")
    shortened = {name: getattr(record.wakes, name) for name in ("compacted_seq", "compacted_messages")}
    return replace(record, wakes=replace(fresh, **shortened), snapshots=SnapshotRecord())


def _receive(record: RuntimeRecord, _: RecordEvent) -> RuntimeRecord:
    """Something was sent: a wake is due, unless a person has to answer first."""
    waits = record.status != "idle" or record.wakes.is_paused
    return record if waits else replace(record, status="rescheduling")


def _idle(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    """The turn has ended. What arrived meanwhile makes another wake due, unless a person has to do something first."""
    if record.status == "terminated":
        return record
    waits = event.body["stop_reason"]["type"] == "requires_action" or event.body.get("waits", False)
    return replace(record, status="rescheduling" if record.wakes.pending and not waits else "idle")


def _set_status(status: str) -> Fold:
    def fold_status(record: RuntimeRecord, _: RecordEvent) -> RuntimeRecord:
        return record if record.status == "terminated" else replace(record, status=status)

    return fold_status


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
        tool_use=body.get("tool_use_id", ""),
        is_proven=body.get("answered_by") == PROVEN,
    )
    return replace(record, approvals={**record.approvals, approval.request: approval})


def _answer(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
    body = event.body
    approval = record.approvals.get(body.get("request", ""))
    if approval is None or approval.state != "open" or body.get("assurance") not in PERSONAL:
        return record
    state: ApprovalState = "allowed" if body.get("option") == "allow" else "denied"
    if state == "allowed" and approval.is_proven and body["assurance"] != PROVEN:
        return record
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


def _in_part(name: str, change: Callable[[Any, RecordEvent], Any]) -> Fold:
    """The fold of the record that a fold of a part is."""

    def fold_part(record: RuntimeRecord, event: RecordEvent) -> RuntimeRecord:
        return replace(record, **{name: change(getattr(record, name), event)})

    return fold_part


_OWN_FOLDS: dict[str, Fold] = {
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
    e.SESSION_ARCHIVED: _archive,
    e.SESSION_FORKED: _fork,
    e.USER_MESSAGE: _receive,
    e.USER_INTERRUPT: _set_status("rescheduling"),
    e.USER_OUTCOME: _receive,
    e.STATUS_RUNNING: _set_status("running"),
    e.STATUS_IDLE: _idle,
    e.STATUS_RESCHEDULED: _set_status("rescheduling"),
}
_PART_FOLDS: Mapping[str, Mapping[str, Callable[[Any, RecordEvent], Any]]] = {
    "wakes": {**WAKE_FOLDS, **SHARED_WAKE_FOLDS},
    "outcomes": OUTCOME_FOLDS,
    "memory": MEMORY_FOLDS,
    "memories": MEMORIES_FOLDS,
    "credentials": CREDENTIAL_FOLDS,
    "drafts": DRAFT_FOLDS,
    "resources": RESOURCE_FOLDS,
    "snapshots": SNAPSHOT_FOLDS,
}
_FOLD_TABLES: tuple[dict[str, Fold], ...] = (
    _OWN_FOLDS,
    {type_: _in_shell(change) for type_, change in SHELL_FOLDS.items()},
    *({type_: _in_part(name, change) for type_, change in folds.items()} for name, folds in _PART_FOLDS.items()),
)
# An event may change several parts, each by a fold of its own.
_FOLDS: dict[str, tuple[Fold, ...]] = {
    type_: tuple(table[type_] for table in _FOLD_TABLES if type_ in table)
    for type_ in dict.fromkeys(type_ for table in _FOLD_TABLES for type_ in table)
}


def fold(record: RuntimeRecord, events: Iterable[RecordEvent]) -> RuntimeRecord:
    for event in events:
        for change in _FOLDS.get(event.type, ()):
            record = change(record, event)
        record = replace(record, seq=event.seq)
    return record


# Keys of event bodies whose values are ids, states, names or digests, and no text of an agent or a person.
_STRUCTURE = """
role agent project directory environment environment_version mount_mode mount_source vaults policies.* level incarnation
request digest tool expires option assurance by shell_id pty by_command set.* unset variables.* command_id state signal
timed_out source_path source_digest target_digest target_path content_digest pattern agent_version agent_variant model tools
budget.* depth root span_kind wake_id tool_use_id custom_tool_use_id id name processed_seq interrupt_seq consumed setup
continues extensions waits learning_id is_unknown due key priority ids every_seconds next stop_reason.type model_usage.*
cost_micros context_tokens through_seq messages outcome_id author max_iterations iteration status trend decision verdict
criteria results snapshot_id files bytes removed is_live resumes vault_ids memory_id operation credential_id readers
digests deployment_id skills runs childSessionId answered_by
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
