"""Fold events into the record of a workflow session.

Only `fold` changes a record, and an event contains everything that folding needs (the effect of an option is in the answer that
chose it). So the record can be rebuilt from the ledger at any time, and a changed definition does not change past sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from fidelio.definitions.conditions import is_equal
from fidelio.engine.scope import forget_replaced, keep_replaced
from fidelio.engine.state import (
    ActivityVisit,
    CheckpointAnswer,
    CheckpointInstance,
    ChildSession,
    Fidelity,
    LoopIteration,
    ManifestSummary,
    OpenCheckpoint,
    ParentSession,
    Record,
    Status,
)
from fidelio.errors.ledger import damaged_value

# Names of `state` that other packages import from here.
__all__ = [
    "ActivityVisit",
    "CheckpointAnswer",
    "CheckpointInstance",
    "ChildSession",
    "Fidelity",
    "LoopIteration",
    "OpenCheckpoint",
    "ParentSession",
    "Record",
    "Status",
]

STARTED = "session.started"
RESTORED = "session.restored"
ENTERED = "activity.entered"
STEP_COMPLETED = "step.completed"
LOOP_ADVANCED = "loop.advanced"
ARMED = "checkpoint.armed"
YIELDED = "checkpoint.yielded"
ANSWERED = "request.answered"
RESUMED = "checkpoint.resumed"
VARIABLES_SET = "variables.set"
SKILL_LOADED = "skill.loaded"
CONTENT_LOADED = "content.loaded"
CHILD_STARTED = "child.started"
CHILD_FINISHED = "child.finished"
COMPLETED = "session.completed"
CANCELLED = "session.cancelled"
CALLED = "tool.called"
# Tools whose caller brings an answer; their calls are not those of the agent that waits for one.
_ANSWERING_TOOLS = frozenset({"present_checkpoint", "respond_checkpoint"})

# Prefixes of the authors of variables: an answer, a child session, and actions of the definition.
BY_ANSWER = "checkpoint:"
BY_CHILD = "child:"
BY_STEP = "step:"
BY_DEFINITION = ("entry:", "exit:", BY_STEP)


class EventContent(Protocol):
    """The attributes of an event that exist before it is appended."""

    @property
    def type(self) -> str: ...
    @property
    def body(self) -> Mapping[str, Any]: ...


# `fidelio.ledger.unit_of_work.RecordEvent` is the same protocol; the rules may not import the ledger.
class FoldableEvent(EventContent, Protocol):
    """The attributes of an event that `fold` reads."""

    @property
    def seq(self) -> int: ...
    @property
    def time(self) -> int: ...


class EventDraft(msgspec.Struct, frozen=True):
    """An event that the rules have produced and that is not appended yet."""

    type: str
    body: dict[str, Any]


class ProvisionalEvent(msgspec.Struct, frozen=True):
    """A draft with the sequence number and time that it will have once it is appended."""

    seq: int
    type: str
    time: int
    body: Mapping[str, Any]


def fold(record: Record, events: Iterable[FoldableEvent]) -> Record:
    """The record after these events; events of other packages only advance `seq`."""
    for event in events:
        step = _HANDLERS.get(event.type)
        record = replace(step(record, event) if step else record, seq=event.seq)
    return record


def fold_drafts(record: Record, drafts: Iterable[EventContent], now: int) -> Record:
    """The record as it will be once these drafts are appended."""
    return fold(record, number_drafts(record, drafts, now))


def number_drafts(record: Record, drafts: Iterable[EventContent], now: int) -> list[ProvisionalEvent]:
    return [ProvisionalEvent(seq, draft.type, now, draft.body) for seq, draft in enumerate(drafts, start=record.seq + 1)]


def encode_record(record: Record) -> dict[str, Any]:
    # Through JSON, so that tuples become the lists that will be read back.
    return msgspec.json.decode(msgspec.json.encode(record), type=dict[str, Any])


def decode_record(raw: str) -> Record:
    """Decode a record as the ledger stores it."""
    try:
        return msgspec.json.decode(raw, type=Record)
    except msgspec.MsgspecError as error:
        raise damaged_value("record of a session", error) from error


def _apply_started(record: Record, event: FoldableEvent) -> Record:
    body = event.body
    parent = body.get("parent")
    begun = replace(
        record,
        workflow=body["workflow"],
        version=body["version"],
        definition=body["definition"],
        found_in=body.get("found_in", ""),
        fidelity=body.get("fidelity", "advise"),
        person=bool(body.get("person")),
        parent=msgspec.convert(parent, ParentSession) if parent else None,
        unverified=bool(body.get("unverified")),
        claims_to_continue=body.get("claims_to_continue", ""),
    )
    if claimed := body.get("activity"):
        begun = replace(begun, here=ActivityVisit(claimed, 1), visits=1)
    begun = _set_variables(begun, body.get("variables", {}), body.get("variables_by", "start"))
    return replace(begun, set_by={**begun.set_by, **body.get("settled", {})})


def _apply_restored(_: Record, event: FoldableEvent) -> Record:
    """The session began in another ledger; the event contains its record there."""
    return replace(msgspec.convert(event.body["record"], Record), since=1)


def _apply_entered(record: Record, event: FoldableEvent) -> Record:
    body = event.body
    if body["activity"] == record.activity and not body.get("again"):
        return _note_manifest(replace(record, condition=body.get("condition", "")), body)
    is_over = record.activity and body.get("how") != "loop"
    left = replace(
        _note_manifest(record, body),
        completed=_union(record.completed, [record.activity]) if is_over else record.completed,
        passed=_union(record.passed, body.get("passed", ())),
        condition=body.get("condition", ""),
        forced="",
    )
    return _move_to(left, body)


def _move_to(record: Record, body: Mapping[str, Any]) -> Record:
    how = body.get("how", "next")
    if how == "return" and record.outer:
        *outer, here = record.outer
        return replace(record, here=here, outer=tuple(outer))
    outer = list(record.outer) if how in ("loop", "pass") else []
    if how == "loop":
        outer.append(record.here)
    if outer and (running := outer[-1].running):
        reached = replace(running, entered=body.get("reached", 0), at=body.get("at", running.at))
        outer[-1] = replace(outer[-1], running=reached)
    visits = record.visits + 1
    return replace(record, here=ActivityVisit(body["activity"], visits), outer=tuple(outer), visits=visits)


def _note_manifest(record: Record, body: Mapping[str, Any]) -> Record:
    """Store a summary of the manifest of the activity that is left; the newest for each activity."""
    manifest = body.get("manifest")
    if manifest is None or not record.activity:
        return record
    found = ManifestSummary(record.visit, len(manifest), len(body.get("warnings", ())))
    return replace(record, reported={**record.reported, record.activity: found})


def _apply_step_completed(record: Record, event: FoldableEvent) -> Record:
    body, here = event.body, record.here
    if body["activity"] != here.activity:
        return record
    here = replace(here, loops_over=_union(here.loops_over, body.get("loops_over", ())))
    if not body.get("loop"):
        return replace(record, here=replace(here, at=body["at"], done=(*here.done, body["step"])))
    if here.running is None:
        return record
    running = replace(here.running, at=body["at"], done=(*here.running.done, body["step"]))
    return replace(record, here=replace(here, running=running))


def _apply_loop_advanced(record: Record, event: FoldableEvent) -> Record:
    body, here = event.body, record.here
    if body["activity"] != here.activity:
        return record
    items = body.get("items")
    running = LoopIteration(body["loop"], body["iteration"], None if items is None else tuple(items))
    over, looped = _union(here.loops_over, body.get("loops_over", ())), _union(here.looped, (running.loop,))
    return replace(record, here=replace(here, at=body["at"], running=running, loops_over=over, looped=looped))


def _apply_armed(record: Record, event: FoldableEvent) -> Record:
    entries = event.body["checkpoints"]
    armed = (_build_open_checkpoint(record, event, entry) for entry in entries)
    here = record.here
    for entry in entries:
        here = here.note_request(entry["checkpoint"], entry.get("iteration", 0), entry.get("of", 0))
    return _update_status(replace(record, armed=(*record.armed, *armed), here=here))


def _apply_yielded(record: Record, event: FoldableEvent) -> Record:
    body = event.body
    here = record.here.note_request(body["checkpoint"], body.get("iteration", 0), body.get("of", 0))
    return _update_status(replace(record, open=_build_open_checkpoint(record, event, body), here=here))


def _build_open_checkpoint(record: Record, event: FoldableEvent, body: Mapping[str, Any]) -> OpenCheckpoint:
    return OpenCheckpoint(
        body["checkpoint"],
        record.activity,
        record.visit,
        body["request"],
        event.time,
        body.get("iteration", 0),
        body.get("person", False),
        proven=body.get("proven", False),
    )


def _apply_answered(record: Record, event: FoldableEvent) -> Record:
    request = event.body["request"]
    waiting = next((entry for entry in record.pending if entry.request == request), None)
    if waiting is None:
        return record
    answer = waiting.build_answer(event.body, event.time)
    others = tuple(other for other in record.here.answers if other.checkpoint != answer.checkpoint)
    closed = replace(
        record,
        open=None if record.open is waiting else record.open,
        armed=tuple(entry for entry in record.armed if entry is not waiting),
        here=replace(record.here, answers=(*others, answer)).note_iteration(answer.checkpoint, answer.iteration),
        last=answer,
        skipped=_union(record.skipped, answer.effect.get("skipActivities", ())),
        forced=answer.effect.get("transitionTo") or record.forced,
    )
    author = f"{BY_ANSWER}{answer.activity}/{answer.checkpoint}/{answer.option}"
    effect = answer.effect.get("setVariable", {})
    return _update_status(_set_variables(closed, effect, author, by_person=answer.by_person))


def _apply_resumed(record: Record, _: FoldableEvent) -> Record:
    if record.last is None:
        return record
    return _replace_last_answer(record, replace(record.last, resumed=True))


def _replace_last_answer(record: Record, last: CheckpointAnswer) -> Record:
    answers = tuple(last if answer.instance == last.instance else answer for answer in record.here.answers)
    return replace(record, last=last, here=replace(record.here, answers=answers))


def _apply_variables_set(record: Record, event: FoldableEvent) -> Record:
    body = event.body
    if lists := body.get("loop_items"):
        record = replace(record, here=replace(record.here, loop_items={**record.here.loop_items, **lists}))
    # A report that repeats the value of an answer must not become its author: the value would lose the protection of answers,
    # and that of a child would count as the agent's own.
    repeated = [name for name, value in body["variables"].items() if _is_repeated(record, name, value, body["by"])]
    return _set_variables(record, body["variables"], body["by"], repeated=repeated)


def _is_repeated(record: Record, name: str, value: Any, author: str) -> bool:
    """Whether an agent repeats what an answer or a child has set."""
    by_others = record.set_by.get(name, "").startswith((BY_ANSWER, BY_CHILD))
    return by_others and not author.startswith(BY_DEFINITION) and is_equal(record.variables[name], value)


def _apply_skill_loaded(record: Record, event: FoldableEvent) -> Record:
    return replace(_apply_content_loaded(record, event), skill=event.body["skill"], skill_owner=event.body.get("owner", ""))


def _apply_content_loaded(record: Record, event: FoldableEvent) -> Record:
    """Store the digests of texts that the session loads for the first time. The first text of a reference stays."""
    loaded = event.body.get("loaded")
    return replace(record, loaded={**loaded, **record.loaded}) if loaded else record


def _apply_child_started(record: Record, event: FoldableEvent) -> Record:
    body = event.body
    if not body.get("suspends"):
        return record
    child = ChildSession(body["session"], body["workflow"], body.get("step", ""), tuple(body.get("pass_context", ())))
    here = replace(record.here, started=(*record.here.started, child.workflow))
    return replace(record, children=(*record.children, child), here=here)


def _apply_child_finished(record: Record, event: FoldableEvent) -> Record:
    session = event.body["session"]
    rest = tuple(child for child in record.children if child.session != session)
    return _set_variables(replace(record, children=rest), event.body.get("variables", {}), f"{BY_CHILD}{session}")


def _apply_completed(record: Record, event: FoldableEvent) -> Record:
    body, left = event.body, [record.activity] if record.activity else ()
    completed, passed = _union(record.completed, left), _union(record.passed, body.get("passed", ()))
    after = replace(_note_manifest(record, body), completed=completed, passed=passed)
    return _end(replace(after, condition=body.get("condition", "")), "completed")


def _end(record: Record, status: Status) -> Record:
    here = ActivityVisit(visit=record.visit)
    return replace(record, status=status, here=here, outer=(), forced="", open=None, armed=(), children=())


def _apply_called(record: Record, event: FoldableEvent) -> Record:
    body, last = event.body, record.last
    if body.get("agent_number") == len(record.agents) + 1:
        record = replace(record, agents=(*record.agents, body.get("aid", "")))
    continues = body.get("s") == "ok" and body["name"] not in _ANSWERING_TOOLS
    if continues and last is not None and last.iteration and not last.behind:
        # Any other successful call after an answer shows that the agent continued its work; the caller that answers is not it.
        record = _replace_last_answer(record, replace(last, behind=True))
    return replace(record, since=event.seq + 1) if body.get("closes") else record


def _set_variables(
    record: Record, variables: Mapping[str, Any], author: str, *, by_person: bool = False, repeated: Collection[str] = ()
) -> Record:
    """Set variables. Those in `repeated` have that value already, and keep its author."""
    if not variables:
        return record
    # An action on entry is no choice of an agent, unlike one of a step that the agent reports.
    trusted = by_person or author.startswith("entry:")
    anew, new = author.startswith((BY_CHILD, *BY_DEFINITION)), [name for name in variables if name not in repeated]
    record = forget_replaced(record, variables) if trusted else keep_replaced(record, variables, anew=anew)
    record = record if trusted else replace(record, here=record.here.note_variables(new))
    return replace(
        record,
        variables={**record.variables, **variables},
        set_by={**record.set_by, **dict.fromkeys(new, author)},
        here=replace(record.here, changed=_union(record.here.changed, variables)) if record.activity else record.here,
    )


def _update_status(record: Record) -> Record:
    if record.ended:
        return record
    return replace(record, status="blocked" if record.waiting else "active")


def _union(names: tuple[str, ...], more: Iterable[str]) -> tuple[str, ...]:
    return (*names, *(name for name in dict.fromkeys(more) if name not in names))


_HANDLERS: Mapping[str, Callable[[Record, FoldableEvent], Record]] = {
    STARTED: _apply_started,
    RESTORED: _apply_restored,
    ENTERED: _apply_entered,
    STEP_COMPLETED: _apply_step_completed,
    LOOP_ADVANCED: _apply_loop_advanced,
    ARMED: _apply_armed,
    YIELDED: _apply_yielded,
    ANSWERED: _apply_answered,
    RESUMED: _apply_resumed,
    VARIABLES_SET: _apply_variables_set,
    SKILL_LOADED: _apply_skill_loaded,
    CONTENT_LOADED: _apply_content_loaded,
    CHILD_STARTED: _apply_child_started,
    CHILD_FINISHED: _apply_child_finished,
    COMPLETED: _apply_completed,
    CANCELLED: lambda record, _: _end(record, "cancelled"),
    CALLED: _apply_called,
}
FOLDED_TYPES = frozenset(_HANDLERS)
