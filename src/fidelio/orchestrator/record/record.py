"""The record of an agent session: what its events add up to, bounded however long the session lives.

`fold` is the only way a record changes. It keeps to the transition table: an event of a run that is over, or of another run,
changes nothing, so a late writer cannot bring a dead run back. Replaying the events gives the same record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from fidelio.orchestrator.record.model import RunState, Usage
from fidelio.orchestrator.record.rules import ENDED, may_become
from fidelio.processes.table import ProcessIdentity

CREATED = "session.created"
QUEUED = "run.queued"
STARTING = "run.starting"
PROCESS = "run.process"
CONVERSATION = "run.conversation"
SAID = "agent.said"
CALLED = "agent.called"
RETURNED = "agent.returned"
USED = "run.used"
WAITING = "run.waiting"
GOING_ON = "run.going-on"
STOP_REQUESTED = "run.stop-requested"
AGAIN = "run.again"
MESSAGE = "message.queued"
DELIVERED = "message.delivered"
WORKTREE = "worktree.created"
CALLED_BACK = "callback.delivered"
DELETED = "session.deleted"
END_OF: Mapping[RunState, str] = MappingProxyType(
    {"succeeded": "run.succeeded", "failed": "run.failed", "stopped": "run.stopped", "lost": "run.lost"}
)
ENDS = tuple(END_OF.values())
ABOUT_RUNS = (QUEUED, STARTING, USED, CALLED, WAITING, GOING_ON, STOP_REQUESTED, *ENDS)


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest run. `asked` is the seq of the event that holds its prompt, `ended` of the one that holds its result.

    `blueprint_blob` is the digest of the blueprint it has begun with. `part` counts how often an executor was called for it (a
    second time when its result did not fit the schema), `spent` and `spent_bytes` what the parts before have cost, `told` what
    was said since then: an adopted process tells everything again from its beginning.
    """

    id: str = ""
    number: int = 0
    state: RunState = "queued"
    reason: str = ""
    detail: str = ""
    blueprint_hash: str = ""
    blueprint_blob: str = ""
    asked: int = 0
    ended: int = 0
    resumes: str = ""
    fresh: str = ""
    host: str = ""
    fence: int = 0
    part: int = 1
    spent: Usage = Usage()
    spent_bytes: int = 0
    process: ProcessIdentity | None = None
    told: int = 0
    usage: Usage = Usage()
    tool_calls: int = 0
    last_activity: str = ""
    questions: tuple[str, ...] = ()
    waiting_since: int = 0
    waited_ms: int = 0
    stop_by: str = ""
    stop_reason: str = ""
    queued_at: int = 0
    started_at: int | None = None
    ended_at: int | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session. `messages` are the seqs of those that wait for the next turn; `lost_in_a_row` bounds automatic resuming.

    `servers` is the digest of what was given beside the blueprint: it may hold keys, which have no place in a record.
    `proven`: a turn has ended well in this conversation, so the agent did know it once.
    """

    project: str = ""
    blueprint: str = ""
    executor: str = ""
    model: str = ""
    servers: str = ""
    parent: str = ""
    depth: int = 0
    callback: bool = False
    wants_worktree: bool = False
    worktree: str = ""
    branch: str = ""
    base: str = ""
    prefix: str = ""
    changes: str = ""
    conversation: str = ""
    proven: bool = False
    messages: tuple[int, ...] = ()
    lost_in_a_row: int = 0
    run: RunRecord = RunRecord()


class Fact(Protocol):
    """What `fold` reads of an event."""

    @property
    def seq(self) -> int: ...
    @property
    def type(self) -> str: ...
    @property
    def time(self) -> int: ...
    @property
    def body(self) -> dict[str, Any]: ...


def fold(record: Record, events: Iterable[Fact]) -> Record:
    """The record after these events; those of other rooms, such as the inbox, change nothing."""
    for event in events:
        if event.type in _KNOWN:
            told = _Told(event.seq, event.type, event.time, event.body)
            step = _OF_SESSION.get(event.type, _fold_run)
            record = step(record, told)
    return record


def state_after(state: RunState, type_: str) -> RunState | None:
    """The state an event leads to; None when it comes too late, or too early."""
    if state in ENDED:
        return None
    if type_ == STOP_REQUESTED:
        return state
    if type_ in _SIGNS_OF_LIFE:
        return {"queued": None, "starting": "running", "waiting": "waiting"}.get(state, "running")
    following = _LEADS_TO[type_]
    return following if may_become(state, following) else None


def read(raw: str) -> Record:
    """A record as the ledger keeps it."""
    return msgspec.json.decode(raw, type=Record)


class _Told(msgspec.Struct, frozen=True):
    """An event whose body is read once."""

    seq: int
    type: str
    time: int
    body: dict[str, Any]


def _fold_run(record: Record, event: _Told) -> Record:
    state = state_after(record.run.state, event.type)
    if state is None or event.body.get("run") != record.run.id:
        return record
    step = _RUN_STEPS.get(event.type)
    run = step(record.run, event) if step else record.run
    # Of several questions one may be answered: then the run still waits.
    after = replace(record, run=replace(run, state="waiting" if run.questions else state))
    linked = _LINKED_STEPS.get(event.type)
    return linked(after, event) if linked else after


def _created(record: Record, event: _Told) -> Record:
    known = {key: value for key, value in event.body.items() if key in Record.__struct_fields__}
    return msgspec.convert(msgspec.to_builtins(record) | known, Record)


def _queued(record: Record, event: _Told) -> Record:
    if record.run.number and record.run.state not in ENDED:
        return record
    body = event.body
    run = RunRecord(
        id=body["run"],
        number=record.run.number + 1,
        blueprint_hash=body.get("blueprint_hash", ""),
        asked=event.seq,
        resumes=body.get("resumes", ""),
        fresh=body.get("fresh", ""),
        queued_at=event.time,
    )
    return replace(record, run=run)


def _message(record: Record, event: _Told) -> Record:
    return replace(record, messages=(*record.messages, event.seq))


def _delivered(record: Record, event: _Told) -> Record:
    gone = set(event.body["messages"])
    return replace(record, messages=tuple(seq for seq in record.messages if seq not in gone))


def _worktree(record: Record, event: _Told) -> Record:
    body = event.body
    return replace(record, worktree=body["path"], branch=body["branch"], base=body["base"], prefix=body["prefix"])


def _starting(run: RunRecord, event: _Told) -> RunRecord:
    return replace(
        run,
        fresh=event.body["fresh"],
        host=event.body["host"],
        fence=event.body.get("fence", 0),
        blueprint_hash=event.body.get("blueprint_hash", run.blueprint_hash),
        blueprint_blob=event.body.get("blueprint_blob", ""),
        started_at=event.time,
    )


def _process(run: RunRecord, event: _Told) -> RunRecord:
    return replace(run, process=ProcessIdentity(pid=event.body["pid"], started=event.body["started"]), told=0)


def _again(run: RunRecord, event: _Told) -> RunRecord:
    spent = msgspec.convert(event.body["spent"], Usage) if "spent" in event.body else run.usage
    return replace(
        run,
        part=run.part + 1,
        process=None,
        told=0,
        fresh=event.body.get("fresh", run.fresh),
        usage=spent,
        spent=spent,
        spent_bytes=event.body.get("bytes", 0),
    )


def _said(run: RunRecord, event: _Told) -> RunRecord:
    return replace(run, told=run.told + 1, last_activity=event.body.get("brief", run.last_activity))


def _called(run: RunRecord, event: _Told) -> RunRecord:
    return replace(run, told=run.told + 1, tool_calls=run.tool_calls + 1, last_activity=f"uses {event.body['tool']}"[:120])


def _used(run: RunRecord, event: _Told) -> RunRecord:
    return replace(run, usage=msgspec.convert(event.body["usage"], Usage))


def _waiting(run: RunRecord, event: _Told) -> RunRecord:
    since = run.waiting_since if run.questions else event.time
    return replace(run, questions=(*run.questions, event.body["request"]), waiting_since=since)


def _going_on(run: RunRecord, event: _Told) -> RunRecord:
    left = tuple(request for request in run.questions if request != event.body["request"])
    waited = run.waited_ms if left else run.waited_ms + max(0, event.time - run.waiting_since)
    return replace(run, questions=left, waited_ms=waited)


def _stop_requested(run: RunRecord, event: _Told) -> RunRecord:
    return replace(run, stop_by=run.stop_by or event.body["by"], stop_reason=run.stop_reason or event.body["reason"])


def _ended(run: RunRecord, event: _Told) -> RunRecord:
    return replace(
        run,
        reason=event.body.get("reason", ""),
        detail=event.body.get("detail", ""),
        usage=msgspec.convert(event.body.get("usage", {}), Usage),
        process=None,
        questions=(),
        ended=event.seq,
        ended_at=event.time,
    )


def _conversation(record: Record, event: _Told) -> Record:
    return replace(record, conversation=event.body["conversation"])


def _forget_conversation(record: Record, event: _Told) -> Record:
    return replace(record, conversation="", proven=False) if "fresh" in event.body else record


def _after_end(record: Record, event: _Told) -> Record:
    lost = record.lost_in_a_row + 1 if record.run.state == "lost" else 0
    proven = record.proven or (record.run.state == "succeeded" and bool(record.conversation))
    return replace(record, lost_in_a_row=lost, proven=proven, changes=event.body.get("changes", record.changes))


_OF_SESSION: Mapping[str, Callable[[Record, _Told], Record]] = MappingProxyType(
    {CREATED: _created, QUEUED: _queued, MESSAGE: _message, DELIVERED: _delivered, WORKTREE: _worktree}
)
_RUN_STEPS: Mapping[str, Callable[[RunRecord, _Told], RunRecord]] = MappingProxyType(
    {
        STARTING: _starting,
        PROCESS: _process,
        SAID: _said,
        CALLED: _called,
        RETURNED: _said,
        USED: _used,
        WAITING: _waiting,
        GOING_ON: _going_on,
        STOP_REQUESTED: _stop_requested,
        AGAIN: _again,
        **dict.fromkeys(ENDS, _ended),
    }
)
_LINKED_STEPS: Mapping[str, Callable[[Record, _Told], Record]] = MappingProxyType(
    {
        CONVERSATION: _conversation,
        AGAIN: _forget_conversation,
        **dict.fromkeys(ENDS, _after_end),
    }
)
_SIGNS_OF_LIFE = frozenset({PROCESS, CONVERSATION, SAID, CALLED, RETURNED, USED})
_LEADS_TO: Mapping[str, RunState] = MappingProxyType(
    {
        STARTING: "starting",
        WAITING: "waiting",
        GOING_ON: "running",
        AGAIN: "running",
        **{type_: state for state, type_ in END_OF.items()},
    }
)
_KNOWN = frozenset({*_OF_SESSION, *_SIGNS_OF_LIFE, *_LEADS_TO, STOP_REQUESTED})
