"""The record of an agent session: the fold of its events, of bounded size however long the session lives.

Only `fold` changes a record. It follows the transition table: an event of a run that has ended, or of another run, changes
nothing, so a late writer cannot revive an ended run. Replaying the events gives the same record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from fidelio.errors.ledger import damaged_value
from fidelio.ledger.unit_of_work import RecordEvent
from fidelio.orchestrator.record.model import Permissions, RunState, Usage
from fidelio.orchestrator.record.rules import END_STATES, can_transition, was_cut_off
from fidelio.processes.table import ProcessIdentity

SESSION_CREATED = "session.created"
RUN_QUEUED = "run.queued"
RUN_STARTING = "run.starting"
RUN_PROCESS = "run.process"
RUN_CONVERSATION = "run.conversation"
AGENT_SAID = "agent.said"
AGENT_CALLED = "agent.called"
AGENT_RETURNED = "agent.returned"
RUN_USED = "run.used"
RUN_WAITING = "run.waiting"
RUN_GOING_ON = "run.going-on"
RUN_STOP_REQUESTED = "run.stop-requested"
RUN_AGAIN = "run.again"
MESSAGE_QUEUED = "message.queued"
MESSAGE_DELIVERED = "message.delivered"
WORKTREE_CREATED = "worktree.created"
CALLBACK_DELIVERED = "callback.delivered"
SESSION_DELETED = "session.deleted"
END_EVENT_BY_STATE: Mapping[RunState, str] = MappingProxyType(
    {"succeeded": "run.succeeded", "failed": "run.failed", "stopped": "run.stopped", "lost": "run.lost"}
)
END_EVENTS = tuple(END_EVENT_BY_STATE.values())
RUN_EVENTS = (RUN_QUEUED, RUN_STARTING, RUN_USED, AGENT_CALLED, RUN_WAITING, RUN_GOING_ON, RUN_STOP_REQUESTED, *END_EVENTS)


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest run. `prompt_seq` and `result_seq` are the sequence numbers of the events with its prompt and its result.

    `blueprint_blob` is the digest of the blueprint that it began with. `part` counts the calls of its executor (a second call
    when the result does not fit the schema), `spent` and `spent_bytes` the usage of earlier calls. `proof` is the digest of the
    secret with which the process proves its exit status; `is_counted`: its work counts towards the limits of runs that no
    person asked for. `reported_events` counts what the executor has reported since the
    current call began: an adopted process reports everything again from its beginning.
    """

    id: str = ""
    number: int = 0
    state: RunState = "queued"
    reason: str = ""
    detail: str = ""
    blueprint_hash: str = ""
    blueprint_blob: str = ""
    prompt_seq: int = msgspec.field(default=0, name="asked")
    result_seq: int = msgspec.field(default=0, name="ended")
    resumes: str = ""
    fresh: str = ""
    host: str = ""
    fence: int = 0
    part: int = 1
    spent: Usage = Usage()
    spent_bytes: int = 0
    process: ProcessIdentity | None = None
    proof: str = ""
    is_counted: bool = msgspec.field(default=False, name="counted")
    reported_events: int = msgspec.field(default=0, name="told")
    usage: Usage = Usage()
    tool_calls: int = 0
    last_activity: str = ""
    questions: tuple[str, ...] = ()
    # Requests of another session that the run waits for; it does not close them.
    awaited: tuple[str, ...] = ()
    waiting_since: int = 0
    waited_ms: int = 0
    stop_by: str = ""
    stop_reason: str = ""
    queued_at: int = 0
    started_at: int | None = None
    ended_at: int | None = None


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session. `messages` are the sequence numbers of queued messages; `lost_in_a_row` limits automatic resuming.

    `servers` is the digest of the MCP servers that were added at the start: they may hold keys, which must not be in a record.
    `proven`: a run has succeeded in this conversation, so the agent has known it. `max_depth` and `most` are what the session
    that started this one allows: levels of children and permissions. `spent_unasked` and `unasked_ms` are the usage and the
    working time of the runs since a person last asked for one; `person_waits`: a queued message is from a person.
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
    # The name of the sandbox session that it shares with others; empty: its own.
    sandbox: str = ""
    max_depth: int | None = None
    most: Permissions | None = None
    spent_unasked: Usage = Usage()
    unasked_ms: int = 0
    person_waits: bool = False
    lost_in_a_row: int = 0
    run: RunRecord = RunRecord()


def fold(record: AgentRecord, events: Iterable[RecordEvent]) -> AgentRecord:
    """The record after these events. Events of other packages, such as the inbox, change nothing."""
    for event in events:
        if event.type in FOLDED_EVENTS:
            record = _SESSION_STEPS.get(event.type, _fold_run)(record, event)
    return record


def next_state(state: RunState, type_: str) -> RunState | None:
    """The state after an event; None where the transition table does not allow the event."""
    if state in END_STATES:
        return None
    if type_ == RUN_STOP_REQUESTED:
        return state
    if type_ in _ACTIVITY_EVENTS:
        return {"queued": None, "starting": "running", "waiting": "waiting"}.get(state, "running")
    following = _NEXT_STATES[type_]
    return following if can_transition(state, following) else None


def decode_record(raw: str) -> AgentRecord:
    """Decode a record from the JSON in the ledger."""
    try:
        return msgspec.json.decode(raw, type=AgentRecord)
    except msgspec.MsgspecError as error:
        raise damaged_value("record of a session", error) from error


def _fold_run(record: AgentRecord, event: RecordEvent) -> AgentRecord:
    state = next_state(record.run.state, event.type)
    if state is None or event.body.get("run") != record.run.id:
        return record
    step = _RUN_STEPS.get(event.type)
    run = step(record.run, event) if step else record.run
    # While other questions are open, the run still waits.
    after = replace(record, run=replace(run, state="waiting" if run.questions or run.awaited else state))
    linked = _LINKED_STEPS.get(event.type)
    return linked(after, event) if linked else after


def _fold_created(record: AgentRecord, event: RecordEvent) -> AgentRecord:
    known = {key: value for key, value in event.body.items() if key in AgentRecord.__struct_fields__}
    return msgspec.convert(msgspec.to_builtins(record) | known, AgentRecord)


def _fold_queued(record: AgentRecord, event: RecordEvent) -> AgentRecord:
    if record.run.number and record.run.state not in END_STATES:
        return record
    body = event.body
    run = RunRecord(
        id=body["run"],
        number=record.run.number + 1,
        blueprint_hash=body.get("blueprint_hash", ""),
        prompt_seq=event.seq,
        resumes=body.get("resumes", ""),
        fresh=body.get("fresh", ""),
        is_counted="asked" in body,
        queued_at=event.time,
    )
    # Earlier versions did not record who asked. Their runs count as asked for, and are not counted: the record stays theirs.
    if not body.get("asked", True):
        return replace(record, run=run)
    return replace(record, run=run, spent_unasked=Usage(), unasked_ms=0, person_waits=False)


def _fold_message(record: AgentRecord, event: RecordEvent) -> AgentRecord:
    person_waits = record.person_waits or event.body.get("asked", False)
    return replace(record, messages=(*record.messages, event.seq), person_waits=person_waits)


def _fold_delivered(record: AgentRecord, event: RecordEvent) -> AgentRecord:
    delivered = set(event.body["messages"])
    return replace(record, messages=tuple(seq for seq in record.messages if seq not in delivered))


def _fold_worktree(record: AgentRecord, event: RecordEvent) -> AgentRecord:
    body = event.body
    return replace(record, worktree=body["path"], branch=body["branch"], base=body["base"], prefix=body["prefix"])


def _fold_starting(run: RunRecord, event: RecordEvent) -> RunRecord:
    return replace(
        run,
        fresh=event.body["fresh"],
        host=event.body["host"],
        fence=event.body.get("fence", 0),
        blueprint_hash=event.body.get("blueprint_hash", run.blueprint_hash),
        blueprint_blob=event.body.get("blueprint_blob", ""),
        started_at=event.time,
    )


def _fold_process(run: RunRecord, event: RecordEvent) -> RunRecord:
    identity = ProcessIdentity(pid=event.body["pid"], started=event.body["started"])
    return replace(run, process=identity, proof=event.body.get("proof", ""), reported_events=0)


def _fold_again(run: RunRecord, event: RecordEvent) -> RunRecord:
    spent = msgspec.convert(event.body["spent"], Usage) if "spent" in event.body else run.usage
    return replace(
        run,
        part=run.part + 1,
        process=None,
        reported_events=0,
        fresh=event.body.get("fresh", run.fresh),
        usage=spent,
        spent=spent,
        spent_bytes=event.body.get("bytes", 0),
    )


def _fold_said(run: RunRecord, event: RecordEvent) -> RunRecord:
    return replace(run, reported_events=run.reported_events + 1, last_activity=event.body.get("brief", run.last_activity))


def _fold_called(run: RunRecord, event: RecordEvent) -> RunRecord:
    return replace(
        run,
        reported_events=run.reported_events + 1,
        tool_calls=run.tool_calls + 1,
        last_activity=f"uses {event.body['tool']}"[:120],
    )


def _fold_usage(run: RunRecord, event: RecordEvent) -> RunRecord:
    return replace(run, usage=msgspec.convert(event.body["usage"], Usage))


def _fold_waiting(run: RunRecord, event: RecordEvent) -> RunRecord:
    since = run.waiting_since if run.questions or run.awaited else event.time
    if event.body.get("of_session"):
        return replace(run, awaited=(*run.awaited, event.body["request"]), waiting_since=since)
    return replace(run, questions=(*run.questions, event.body["request"]), waiting_since=since)


def _fold_going_on(run: RunRecord, event: RecordEvent) -> RunRecord:
    left = tuple(request for request in run.questions if request != event.body["request"])
    awaited = tuple(request for request in run.awaited if request != event.body["request"])
    waited = run.waited_ms if left or awaited else run.waited_ms + max(0, event.time - run.waiting_since)
    return replace(run, questions=left, awaited=awaited, waited_ms=waited)


def _fold_stop_requested(run: RunRecord, event: RecordEvent) -> RunRecord:
    return replace(run, stop_by=run.stop_by or event.body["by"], stop_reason=run.stop_reason or event.body["reason"])


def _fold_end(run: RunRecord, event: RecordEvent) -> RunRecord:
    return replace(
        run,
        reason=event.body.get("reason", ""),
        detail=event.body.get("detail", ""),
        usage=msgspec.convert(event.body.get("usage", {}), Usage),
        process=None,
        questions=(),
        awaited=(),
        result_seq=event.seq,
        ended_at=event.time,
    )


def _fold_conversation(record: AgentRecord, event: RecordEvent) -> AgentRecord:
    return replace(record, conversation=event.body["conversation"])


def _clear_conversation(record: AgentRecord, event: RecordEvent) -> AgentRecord:
    return replace(record, conversation="", proven=False) if "fresh" in event.body else record


def _update_after_end(record: AgentRecord, event: RecordEvent) -> AgentRecord:
    lost = record.lost_in_a_row + 1 if was_cut_off(record.run.state, record.run.reason) else 0
    proven = record.proven or (record.run.state == "succeeded" and bool(record.conversation))
    after = replace(record, lost_in_a_row=lost, proven=proven, changes=event.body.get("changes", record.changes))
    return _count_work(after, event.time) if record.run.is_counted and record.run.started_at is not None else after


def _count_work(record: AgentRecord, now: int) -> AgentRecord:
    run = record.run
    # Every run counts as a turn, also of an agent that does not report its turns.
    usage = replace(run.usage, turns=max(1, run.usage.turns))
    worked_ms = max(0, now - (run.started_at or now) - run.waited_ms)
    return replace(record, spent_unasked=record.spent_unasked + usage, unasked_ms=record.unasked_ms + worked_ms)


_SESSION_STEPS: Mapping[str, Callable[[AgentRecord, RecordEvent], AgentRecord]] = MappingProxyType(
    {
        SESSION_CREATED: _fold_created,
        RUN_QUEUED: _fold_queued,
        MESSAGE_QUEUED: _fold_message,
        MESSAGE_DELIVERED: _fold_delivered,
        WORKTREE_CREATED: _fold_worktree,
    }
)
_RUN_STEPS: Mapping[str, Callable[[RunRecord, RecordEvent], RunRecord]] = MappingProxyType(
    {
        RUN_STARTING: _fold_starting,
        RUN_PROCESS: _fold_process,
        AGENT_SAID: _fold_said,
        AGENT_CALLED: _fold_called,
        AGENT_RETURNED: _fold_said,
        RUN_USED: _fold_usage,
        RUN_WAITING: _fold_waiting,
        RUN_GOING_ON: _fold_going_on,
        RUN_STOP_REQUESTED: _fold_stop_requested,
        RUN_AGAIN: _fold_again,
        **dict.fromkeys(END_EVENTS, _fold_end),
    }
)
_LINKED_STEPS: Mapping[str, Callable[[AgentRecord, RecordEvent], AgentRecord]] = MappingProxyType(
    {
        RUN_CONVERSATION: _fold_conversation,
        RUN_AGAIN: _clear_conversation,
        **dict.fromkeys(END_EVENTS, _update_after_end),
    }
)
_ACTIVITY_EVENTS = frozenset({RUN_PROCESS, RUN_CONVERSATION, AGENT_SAID, AGENT_CALLED, AGENT_RETURNED, RUN_USED})
_NEXT_STATES: Mapping[str, RunState] = MappingProxyType(
    {
        RUN_STARTING: "starting",
        RUN_WAITING: "waiting",
        RUN_GOING_ON: "running",
        RUN_AGAIN: "running",
        **{type_: state for state, type_ in END_EVENT_BY_STATE.items()},
    }
)
FOLDED_EVENTS = frozenset({*_SESSION_STEPS, *_ACTIVITY_EVENTS, *_NEXT_STATES, RUN_STOP_REQUESTED})
