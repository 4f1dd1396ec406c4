"""Sessions of agents: begun from a version of an agent, sent events at any time, described and archived."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fidelio.clock import format_iso
from fidelio.errors import RequestClosed, SessionNotFound, UsageProblem
from fidelio.ids import new_session_id
from fidelio.inbox import ClosedRequest, Inbox, dismiss_request
from fidelio.ledger.model import Event, NewEvent, NewSession
from fidelio.ledger.unit_of_work import CommittedSession, SessionDecision
from fidelio.runtime import events as e
from fidelio.runtime.agents.versions import load_agent
from fidelio.runtime.environments.service import Environments
from fidelio.runtime.environments.versions import EnvironmentVersion
from fidelio.runtime.outcomes.decisions import plan_outcome
from fidelio.runtime.outcomes.parsing import Author
from fidelio.runtime.project import parse_mount
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.stores import find_store, refuse_store
from fidelio.runtime.tools.model import LoadedRuntime, RuntimeContext
from fidelio.runtime.vaults import Vaults
from fidelio.runtime.wakes.content import check_content, store_content
from fidelio.runtime.wakes.ending import wake_job
from fidelio.runtime.wakes.rules import find_next, merge_budget
from fidelio.sandbox.directory import create_directory, remove_directory

MAX_SENT = 100
_TYPES = (e.USER_MESSAGE, e.USER_INTERRUPT, e.USER_CONFIRMATION, e.USER_TOOL_RESULT, e.USER_OUTCOME)


class NewAgentSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to begin. `version` None: the newest. `model`, `budget` and `tools` narrow or replace those of the agent.

    `environment_version` None: the version that the name means now. A child takes that of its parent.
    """

    project: str
    agent: str
    name: str | None = None
    version: int | None = None
    model: str = ""
    title: str = ""
    environment: str | None = None
    environment_version: int | None = None
    mount: str | None = None
    vaults: tuple[str, ...] = ()
    budget: Mapping[str, float] = msgspec.field(default_factory=dict)
    tools: tuple[str, ...] = ()
    policies: Mapping[str, str] = msgspec.field(default_factory=dict)
    parent: str | None = None
    depth: int = 0
    root: str = ""


def session_namespace(project: str) -> str:
    """Names of runtime sessions are unique in a project, apart from those of other kinds."""
    return f"runtime:{project}"


async def load_agent_policies(context: RuntimeContext, project: str, agent: str) -> dict[str, str]:
    """The policies that a person has set for the sessions of an agent."""
    store = await find_store(context, "substrate", project=project, agent=agent)
    return {} if store is None else (await context.unit.load(store.id)).record.policies


async def create_session(context: RuntimeContext, request: NewAgentSession) -> str:
    """Begin a session of an agent. Raises `SessionExists` if its name is taken."""
    plan = await plan_session(context, request)
    decision = SessionDecision(None, events=plan.events, create=plan.create)
    try:
        await context.unit.create(plan.session, RuntimeRecord(), decision)
    except BaseException:
        await asyncio.to_thread(remove_directory, plan.directory)
        raise
    return plan.session


class SessionPlan(msgspec.Struct, frozen=True):
    """A session that was checked and whose directory exists, ready to be committed."""

    session: str
    create: NewSession
    events: tuple[NewEvent, ...]
    directory: Path


async def plan_session(context: RuntimeContext, request: NewAgentSession) -> SessionPlan:
    """Check what a session is to begin with, and create its directory. Raises what is wrong with it."""
    agent = await load_agent(context, request.project, request.agent, request.version)
    definition = agent.definition
    _check_price(context, request.model or definition.model, merge_budget(definition.limits, dict(request.budget)).usd)
    await Vaults(context).require(request.vaults)
    environment = await _find_environment(context, request, definition.environment)
    mount = parse_mount(request.mount, Path(request.project))
    directory = await asyncio.to_thread(create_directory, context.home.ensure().path)
    body = {
        "agent": request.agent,
        "agent_version": agent.version,
        "project": request.project,
        "directory": directory.name,
        "environment": environment.name,
        "environment_version": environment.version,
        "vaults": list(request.vaults),
        "policies": {**definition.tools.policies, **await _load_changed_policies(context, request), **request.policies},
        "model": request.model,
        "title": request.title[:200],
        "tools": list(request.tools),
        "budget": dict(request.budget),
        "depth": request.depth,
        "root": request.root,
        **({"mount_mode": mount.mode, "mount_source": mount.source} if mount is not None else {}),
    }
    create = NewSession(kind="runtime", namespace=session_namespace(request.project), name=request.name, parent=request.parent)
    return SessionPlan(new_session_id(), create, (NewEvent(type=e.STARTED, body=body),), directory)


async def _find_environment(context: RuntimeContext, request: NewAgentSession, default: str) -> EnvironmentVersion:
    environments = Environments(context)
    if request.environment is not None and request.environment_version is not None:
        return await environments.load(request.environment, request.environment_version)
    return await environments.resolve(request.environment or default, request.project)


async def _load_changed_policies(context: RuntimeContext, request: NewAgentSession) -> dict[str, str]:
    """What a person has set for the agent. A child has the policies of its parent: newer ones could allow it more."""
    return {} if request.parent is not None else await load_agent_policies(context, request.project, request.agent)


def _check_price(context: RuntimeContext, model: str, usd: float | None) -> None:
    """Refuse a limit in money for a model whose price nobody has set: nobody could check it."""
    if usd and context.ports.models.describe(model).price is None:
        raise UsageProblem(
            f"The price of the model {model} is not known, so a limit of {usd:g} US dollars cannot be kept.",
            remedy="Set its price in models.yaml of the home, or limit tokens instead.",
        )


class Sending:
    """Sends events to sessions."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context
        self._inbox = Inbox(context.ledger, clock=context.clock)

    async def send(self, session: str, events: Sequence[Mapping[str, Any]], *, by: str, channel: str) -> tuple[Event, ...]:
        """Send events in the vendors' form. They are checked before any of them is stored."""
        if not events or len(events) > MAX_SENT:
            raise UsageProblem(f"{len(events)} events were sent.", remedy=f"Send 1 to {MAX_SENT}.")
        loaded = await self._load(session)
        checked = [await self._check(loaded, event, by, channel) for event in events]
        sent: list[Event] = []
        for new, blobs in checked:
            if new.type == e.USER_CONFIRMATION:
                sent.append(await self._confirm(new, by, channel))
            else:
                sent.append(await self._append(session, new, blobs))
        return tuple(sent)

    async def _load(self, session: str) -> LoadedRuntime:
        loaded = await self._context.unit.load(session)
        refuse_store(loaded)
        record = loaded.record
        if record.status == "terminated" or record.is_archived:
            state = "has ended" if record.status == "terminated" else "is archived"
            raise SessionNotFound(f"Session {session} {state}.", remedy="Begin another session.")
        if not record.agent_version:
            raise UsageProblem(
                f"Session {session} has no model: an external client uses its tools.", remedy="Send to a session of an agent."
            )
        return loaded

    async def _check(
        self, loaded: LoadedRuntime, event: Mapping[str, Any], by: str, channel: str
    ) -> tuple[NewEvent, tuple[bytes, ...]]:
        type_ = event.get("type")
        if type_ == e.USER_MESSAGE:
            stored = store_content(check_content(event.get("content"), "The message"))
            return NewEvent(type=type_, body={"content": stored.content}, actor=by, blobs=stored.digests), stored.blobs
        if type_ == e.USER_INTERRUPT:
            return NewEvent(type=type_, body={}, actor=by), ()
        if type_ == e.USER_CONFIRMATION:
            return self._check_confirmation(loaded, event, by), ()
        if type_ == e.USER_TOOL_RESULT:
            return self._check_result(loaded, event, by)
        if type_ == e.USER_OUTCOME:
            # What another agent sends is no person's outcome.
            author: Author = "agent" if channel == "relayed" else "person"
            defined = await plan_outcome(loaded, event, author=author, by=by)
            return NewEvent(type=type_, body=defined.body, actor=by), ()
        raise UsageProblem(f"{type_!r:.80} cannot be sent.", remedy=f"Send one of: {', '.join(_TYPES)}.")

    def _check_confirmation(self, loaded: LoadedRuntime, event: Mapping[str, Any], by: str) -> NewEvent:
        name, result = event.get("tool_use_id"), event.get("result")
        if result not in ("allow", "deny"):
            raise UsageProblem(f"{result!r:.80} is no result of a confirmation.", remedy="Use allow or deny.")
        call = loaded.record.wakes.find_call(str(name))
        approval = loaded.record.approvals.get(call.request) if call is not None else None
        if approval is None or approval.state != "open":
            raise UsageProblem(
                f"The call {name!r:.80} does not wait for a confirmation.", remedy="The idle event names the calls that wait."
            )
        body = {"tool_use_id": name, "result": result, "deny_message": str(event.get("deny_message") or "")[:20_000]}
        return NewEvent(type=e.USER_CONFIRMATION, body={**body, "request": approval.request}, actor=by)

    def _check_result(self, loaded: LoadedRuntime, event: Mapping[str, Any], by: str) -> tuple[NewEvent, tuple[bytes, ...]]:
        name = event.get("custom_tool_use_id")
        call = loaded.record.wakes.find_call(str(name))
        if call is None or call.state != "custom":
            raise UsageProblem(
                f"No custom tool call {name!r:.80} waits for a result.", remedy="The idle event names the calls that wait."
            )
        stored = store_content(check_content(event.get("content") or "(empty)", "The result"))
        body = {"custom_tool_use_id": name, "content": stored.content, "is_error": bool(event.get("is_error"))}
        return NewEvent(type=e.USER_TOOL_RESULT, body=body, actor=by, blobs=stored.digests), stored.blobs

    async def _confirm(self, new: NewEvent, by: str, channel: str) -> Event:
        """Answer the request of a call. The confirmation is an event of its own, in the same transaction."""
        request, text = str(new.body["request"]), str(new.body["deny_message"])
        body = {key: value for key, value in new.body.items() if key != "request"}
        event = NewEvent(type=new.type, body=body, actor=by)
        option = "allow" if new.body["result"] == "allow" else "deny"
        answered = await self._inbox.answer(request, option, text=text, by=by, channel=channel, events=(event,))
        if answered.repeated:
            raise RequestClosed(request, answered.request.state)
        return answered.events[-1]

    async def _append(self, session: str, new: NewEvent, blobs: tuple[bytes, ...]) -> Event:
        def append(current: LoadedRuntime) -> SessionDecision[None]:
            requests = _close_custom(current, new) if new.type == e.USER_TOOL_RESULT else ()
            defined = (NewEvent(type=e.OUTCOME_DEFINED, body=new.body, actor=new.actor),) if new.type == e.USER_OUTCOME else ()
            return SessionDecision(None, events=(new, *defined), blobs=blobs, jobs=wake_job(session), requests=requests)

        done = await self._context.unit.update(session, append)
        assert isinstance(done, CommittedSession)
        return done.events[0]


def _close_custom(current: LoadedRuntime, new: NewEvent) -> tuple[ClosedRequest, ...]:
    """The request that shows a custom tool in the inbox is answered by its result."""
    call = current.record.wakes.find_call(str(new.body["custom_tool_use_id"]))
    if call is None or call.state != "custom":
        raise UsageProblem("The custom tool call has a result already.", remedy="Each call takes one result.")
    return (dismiss_request(call.request, by=new.actor),) if call.request else ()


async def describe_session(context: RuntimeContext, session: str) -> dict[str, Any]:
    """What a session is, does, waits for and has used."""
    loaded = await context.unit.load(session)
    record, wakes = loaded.record, loaded.record.wakes
    agent = await load_agent(context, record.project, record.agent, record.agent_version) if record.agent_version else None
    model = record.model or (agent.definition.model if agent else "")
    budget = merge_budget(agent.definition.limits, record.budget) if agent else None
    next_due = find_next(wakes)
    return {
        "sessionId": session,
        "name": loaded.session.name,
        "title": record.title,
        "agent": record.agent,
        "version": record.agent_version,
        "model": model,
        "project": record.project,
        "status": record.status,
        "stopReason": wakes.stop_reason or None,
        "isArchived": record.is_archived,
        "requiresAction": bool(wakes.blocking),
        "waiting": [
            {"toolUseId": call.id, "tool": call.name, "kind": _kind_of(call.state), "requestId": call.request or None}
            for call in wakes.blocking
        ],
        "pending": wakes.pending,
        "wakes": wakes.count,
        "summary": wakes.summary,
        "lastWakeId": wakes.last or None,
        "nextWakeAt": format_iso(next_due) if next_due is not None else None,
        "queuedWakes": [
            {"id": wake.id, "due": format_iso(wake.due), "reason": wake.reason, "note": wake.note, "priority": wake.priority}
            for wake in wakes.queued
        ],
        "schedules": [
            {"name": s.name, "everySeconds": s.every_seconds, "note": s.note, "next": format_iso(s.next)}
            for s in wakes.schedules
        ],
        "usage": {**msgspec.to_builtins(wakes.usage), "tokens": wakes.usage.tokens},
        "costUsd": round(wakes.usage.cost_micros / 1_000_000, 6),
        "budget": msgspec.to_builtins(budget) if budget else None,
        "outcomes": [
            {"id": o.id, "title": o.title, "author": o.author, "status": o.latest.status if o.latest else "not_ready"}
            for o in record.outcomes.outcomes
        ],
        "parent": loaded.session.parent,
        "createdAt": format_iso(loaded.session.created_at),
        "updatedAt": format_iso(loaded.session.updated_at),
    }


def _kind_of(state: str) -> str:
    return "tool_confirmation" if state == "waiting" else "custom_tool"
