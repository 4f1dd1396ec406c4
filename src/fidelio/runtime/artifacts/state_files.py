"""The files about a session as a whole: setup, skills, context, status, newest events, wakes and relatives.

A wake writes them at its beginning and at its end, together with those files of the session that somebody may have changed
between two calls. Only files whose content differs are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.errors import BadRecord, EnvironmentProblem, SessionNotFound
from fidelio.ledger.long_text import shorten_to_line
from fidelio.ledger.model import Event, Session
from fidelio.runtime import events as e
from fidelio.runtime.artifacts.model import Lines, render_body, render_files
from fidelio.runtime.artifacts.session_files import ARTIFACTS, load_facts, load_subject
from fidelio.runtime.artifacts.writing import write_files
from fidelio.runtime.navigation.context import ContextBudget, describe_budget, describe_pressure
from fidelio.runtime.navigation.event_views import PENDING_TYPES, summarize_body
from fidelio.runtime.navigation.log import WakeRange, read_wake_id
from fidelio.runtime.navigation.own_files import has_file, runtime_directory
from fidelio.runtime.navigation.reading import describe_trace
from fidelio.runtime.navigation.summaries import find_relation
from fidelio.runtime.navigation.verdicts import read_standing
from fidelio.runtime.setup.sections import SkillEntry
from fidelio.runtime.setup.setup import SECTION_NAMES, Setup
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext

FEED_EVENTS = 32
TRACES = 24
# The end of the log that is read for both, and more if the last wake is longer.
_READ_EVENTS = 64
_MAX_EVENTS = 512
RELATIVES = 50
SKILLS = 100
_LISTED_ITEMS = 12
_FIRST = "session-status.json"
# Files of the session that answers, people or checks change while no tool is called.
_VOLATILE = frozenset({"session-runtime.json", "permission-posture.json", *("vaults.json", "environment.json")})


class ArtifactState(msgspec.Struct, frozen=True, kw_only=True):
    """What a wake knows. What is None was not looked at, and its files stay as they are."""

    tools: frozenset[str]
    setup: Setup | None = None
    skills: Sequence[SkillEntry] | None = None
    budget: ContextBudget | None = None
    # The newest events and the relatives are written at the end of a wake.
    is_end: bool = False


File = tuple[str, Mapping[str, Any], Lines | None]


async def write_state_artifacts(context: RuntimeContext, session: LoadedRuntime, state: ArtifactState) -> None:
    """Write the files of a session whose content differs from what they should have; all of them the first time."""
    directory = runtime_directory(context, session.record)
    if not has_file(directory, "."):
        return
    is_first = not has_file(directory, _FIRST)
    texts = await _render_session(context, session, state, is_first=is_first)
    files = [*_describe_state(context, session, state)]
    if state.is_end or is_first:
        files += [
            *_describe_log(session, await _read_log(context, session)),
            await _describe_relations(context, session),
        ]
    texts.update(text for name, body, lines in files for text in render_body(name, body, lines))
    write_files(directory, texts, session.id, compares=True)


async def _render_session(
    context: RuntimeContext, session: LoadedRuntime, state: ArtifactState, *, is_first: bool
) -> dict[str, str]:
    try:
        facts = await load_facts(context, session.record)
    except EnvironmentProblem:
        # The wake says so itself; nothing of it belongs into files.
        return {}
    chosen = [file for file in ARTIFACTS if is_first or file.name in _VOLATILE or file.name.startswith("outcome")]
    return render_files(chosen, await load_subject(context, session, facts, state.tools, chosen))


def _describe_state(context: RuntimeContext, session: LoadedRuntime, state: ArtifactState) -> Iterator[File]:
    record = session.record
    yield _FIRST, _describe_status(session, now=context.clock()), None
    if state.setup is not None:
        body = {"sessionId": session.id, "agentId": record.agent, **state.setup.to_json()}
        yield "agent-setup.json", body, _explain_setup
    if state.skills is not None:
        yield "skills.json", _describe_skills(state.skills), None
    if state.budget is not None:
        pressure = describe_pressure(record, state.budget.window, tools=state.tools)
        body = {"sessionId": session.id, "contextBudget": describe_budget(state.budget, record), "pressure": pressure}
        yield "context-budget.json", body, _explain_budget


def _describe_status(session: LoadedRuntime, *, now: int) -> Mapping[str, Any]:
    record, wakes = session.record, session.record.wakes
    pending = read_standing(record, now=now).pending
    return {
        "sessionId": session.id,
        "agentId": record.agent,
        "agentVersion": record.agent_version,
        "parentSessionId": session.session.parent,
        "status": record.status,
        "stopReason": wakes.stop_reason or None,
        "requiresAction": pending is not None,
        "pendingActionKind": pending.kind if pending is not None else None,
        "pendingActionToolName": pending.tool if pending is not None else None,
        "pendingRequests": sorted(record.approvals),
        "pendingEventCount": wakes.pending,
        "turns": wakes.count,
        "currentWakeId": wakes.current or None,
        "lastWakeId": wakes.last or None,
        "latestSummary": wakes.summary or None,
        "queuedWakes": [{"dueAt": format_iso(wake.due), "reason": wake.reason, "note": wake.note} for wake in wakes.queued],
        "usage": msgspec.to_builtins(wakes.usage),
        "setupFingerprint": wakes.setup or None,
        "shell": {"cwd": record.shell.cwd, "isOpen": record.shell.is_open, "variables": sorted(record.shell.variables)},
    }


def _describe_skills(skills: Sequence[SkillEntry]) -> Mapping[str, Any]:
    shown = [{"name": skill.name, "description": skill.description, "source": skill.source} for skill in skills[:SKILLS]]
    return {"count": len(skills), "skills": shown}


def _explain_setup(body: Mapping[str, Any]) -> list[str]:
    sections = body["sections"]
    return [
        "# Setup",
        f"Agent {body['agentId']}, setup {body['fingerprint']}.",
        *(f"- {name}: {_list_items(sections[name])}" for name in SECTION_NAMES),
    ]


def _list_items(section: Mapping[str, Any]) -> str:
    names = [*section["items"]][:_LISTED_ITEMS]
    more = section["count"] - len(names)
    return (", ".join(names) or "none") + (f" and {more} more" if more else "")


def _explain_budget(body: Mapping[str, Any]) -> list[str]:
    budget, pressure = body["contextBudget"], body["pressure"]
    names = ("systemPrompt", "tools", "bootstrapFiles", "skills", "runtimeNotes", "history")
    used = f"{budget['usedTokens']} of {budget['windowTokens']} tokens are used ({budget['usedTokensSource']})"
    return [
        "# Context",
        f"{used}, {budget['reservedReplyTokens']} are kept for the answer. Pressure: {pressure['level']}.",
        *(f"- {name}: {budget[name]['characters']} characters" for name in names),
        *(f"Use {tool}." for tool in pressure["recommendedTools"]),
    ]


async def _read_log(context: RuntimeContext, session: LoadedRuntime) -> tuple[Event, ...]:
    last, started = session.session.last_seq, session.record.wakes.started_seq
    after = max(min(last - _READ_EVENTS, started - 1), last - _MAX_EVENTS, 0)
    return await context.ledger.events(session.id, after=after, limit=_MAX_EVENTS)


def _describe_log(session: LoadedRuntime, events: Sequence[Event]) -> Iterator[File]:
    wakes = session.record.wakes
    shown = [_describe_event(event, wakes.processed_seq) for event in events[-FEED_EVENTS:]]
    feed = {"sessionId": session.id, "pendingEventCount": wakes.pending, "count": len(shown), "events": shown}
    yield "event-feed.json", feed, _explain_feed
    traces = [describe_trace(wake, own) for wake, own in _find_wakes(events)]
    yield "wake-traces.json", {"sessionId": session.id, "count": len(traces), "traces": traces[::-1][:TRACES]}, None


def _describe_event(event: Event, processed_seq: int) -> dict[str, Any]:
    body = event.body
    return {
        "id": event.id,
        "seq": event.seq,
        "type": event.type,
        "createdAt": format_iso(event.time),
        "isPending": event.type in PENDING_TYPES and event.seq > processed_seq,
        "wakeId": body.get("wake_id"),
        "preview": summarize_body(body),
    }


def _explain_feed(body: Mapping[str, Any]) -> list[str]:
    lines = [f"- {event['createdAt']} {event['type']}: {event['preview']}" for event in body["events"]]
    return ["# Newest events", f"{body['pendingEventCount']} events are pending.", *lines]


def _find_wakes(events: Sequence[Event]) -> Iterator[tuple[WakeRange, list[Event]]]:
    """The wakes that begin in these events with their own events, oldest first."""
    started = {wake: event for event in events if event.type == e.SPAN_STARTED and (wake := read_wake_id(event))}
    ended = {wake: event for event in events if event.type == e.SPAN_COMPLETED and (wake := read_wake_id(event))}
    for wake, event in started.items():
        # The text is enough here: decoding every body takes longer than everything else.
        mark = f'"wake_id":"{wake}"'
        own = [other for other in events if other.seq >= event.seq and other.raw is not None and mark in other.raw]
        yield WakeRange(wake, event, ended.get(wake)), own


async def _describe_relations(context: RuntimeContext, session: LoadedRuntime) -> File:
    ledger, own = context.ledger, session.session
    rows = list((await ledger.sessions(parent=own.id, limit=RELATIVES)).items)
    if own.parent is not None:
        rows.append(await ledger.session(own.parent))
    found = [await _describe_relative(context, session, row) for row in rows]
    relatives = [each for each in found if each is not None]
    return (
        "session-relations.json",
        {
            "sessionId": own.id,
            "parent": next((each for each in relatives if each["relation"] == "parent"), None),
            "children": [each for each in relatives if each["relation"] == "child"],
        },
        None,
    )


async def _describe_relative(context: RuntimeContext, own: LoadedRuntime, row: Session) -> dict[str, Any] | None:
    try:
        record = await context.unit.load_record(row)
    except (SessionNotFound, BadRecord):
        return None
    outcome = record.outcomes.active
    return {
        "sessionId": row.id,
        "relation": find_relation(own.session, row),
        "status": record.status,
        "stopReason": record.wakes.stop_reason or None,
        "updatedAt": format_iso(row.updated_at),
        "latestSummary": shorten_to_line(record.wakes.summary, 300) or None,
        "outcomeTitle": outcome.title if outcome is not None else None,
        "outcomeStatus": read_standing(record, now=context.clock()).status,
    }
