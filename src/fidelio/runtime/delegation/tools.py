"""The tools session_delegate and session_run_child.

A child is created in the same transaction as the result of the call, so a crash leaves either both or neither. It is an
ordinary session: any worker carries out its wakes, and its requests are in the inbox under its family.
"""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from fidelio.errors import ToolRefused
from fidelio.ids import new_id
from fidelio.ledger.long_text import load_text
from fidelio.ledger.model import NewEvent
from fidelio.ledger.unit_of_work import LinkedChange
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import AgentVersion
from fidelio.runtime.agents.tools import AGENT_TOOLS, AGENT_TOOLSET
from fidelio.runtime.agents.versions import load_agent, load_session_agent
from fidelio.runtime.attachments import repeat_resources
from fidelio.runtime.delegation.definitions import SessionDelegate, SessionRunChild
from fidelio.runtime.delegation.roster import RIGHTS, choose_agent, narrow_policies
from fidelio.runtime.delegation.rules import MAX_CHILDREN, check_family, share_budget
from fidelio.runtime.navigation.summaries import describe_listed, render_summary
from fidelio.runtime.outcomes.parsing import parse_outcome
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.sessions import NewAgentSession, plan_session
from fidelio.runtime.shell.plans import suggest
from fidelio.runtime.tools.model import Implementation, LoadedRuntime, Preparation, ToolCall, ToolResult, event
from fidelio.runtime.vaults import list_attached
from fidelio.runtime.wakes.content import store_content
from fidelio.runtime.wakes.ending import wake_job
from fidelio.runtime.wakes.prompt import text_block
from fidelio.runtime.wakes.rules import merge_budget

WAIT_SECONDS = 45.0


async def _prepare_delegate(call: ToolCall, arguments: SessionDelegate) -> Preparation:
    page = await call.context.ledger.sessions(kind="runtime", parent=call.session.id, limit=MAX_CHILDREN + 1)
    check_family(call.record, len(page.items))
    if arguments.successCriteria and arguments.title is None:
        raise ToolRefused("successCriteria needs a title.", remedy="Name the outcome.", reason="invalid_arguments")
    if not call.record.agent_version:
        raise ToolRefused("This session has no model that a child could use.", reason="no_agent")
    entry = choose_agent(await load_session_agent(call.context, call.record), arguments.agent)
    return Preparation(about=(f"The task is for the agent {entry.agent}.",) if entry is not None else ())


async def _delegate(call: ToolCall, arguments: SessionDelegate, _: Preparation) -> ToolResult:
    request = await _describe_child(call, arguments)
    plan = await plan_session(call.context, request)
    stored = store_content([text_block(arguments.message)])
    body = {"content": stored.content, "from_session": call.session.id}
    message = NewEvent(type=e.USER_MESSAGE, body=body, actor="agent", id=new_id("evt_", 20), blobs=stored.digests)
    outcome = () if arguments.title is None else _define_outcome(arguments, arguments.title)
    child = LinkedChange(
        plan.session,
        (*plan.events, *outcome, message),
        RuntimeRecord(),
        create=plan.create,
        blobs=stored.blobs,
        jobs=wake_job(plan.session),
    )
    created = event(
        e.CHILD_CREATED,
        {
            "childSessionId": plan.session,
            "outcomeTitle": arguments.title,
            "message": arguments.message[:400],
            # The parent has this much less from now on.
            "budget": dict(request.budget),
            "wake_id": call.wake,
        },
    )
    next_step = suggest(call.tools, "session_run_child", {"sessionId": plan.session}, "Wait for what the child says.")
    output: dict[str, Any] = {
        "parentSessionId": call.session.id,
        "childSession": {"sessionId": plan.session, "relationToCurrent": "child", "status": "rescheduling"},
        "seededEventIds": [event.id for event in (*outcome, message)],
        "nextStep": next_step,
    }
    return ToolResult(output=output, events=(created,), linked=(child,))


def _define_outcome(arguments: SessionDelegate, title: str) -> tuple[NewEvent, ...]:
    criteria = list(arguments.successCriteria) or [title]
    body = {"title": title, "detail": arguments.detail or "", "successCriteria": criteria}
    return (replace(parse_outcome(body, author="agent"), id=new_id("evt_", 20)),)


async def _describe_child(call: ToolCall, arguments: SessionDelegate) -> NewAgentSession:
    record = call.record
    agent = await load_session_agent(call.context, record)
    entry = choose_agent(agent, arguments.agent)
    other = None if entry is None else await load_agent(call.context, record.project, entry.agent, entry.version or None)
    budget = merge_budget(agent.definition.limits, record.budget)
    price = call.context.ports.models.describe(record.model or agent.definition.model).price
    return NewAgentSession(
        project=record.project,
        agent=record.agent if other is None else other.name,
        version=record.agent_version if other is None else other.version,
        variant=record.agent_variant if other is None else "",
        model=record.model if other is None else "",
        title=arguments.title or arguments.message[:80],
        # Pinned: a newer version of the environment may be more open than the one that the parent has.
        environment=record.environment,
        environment_version=record.environment_version,
        mount=f"{record.mount_source}:{record.mount_mode}" if record.mount_mode else None,
        vaults=tuple(vault.name for vault in await list_attached(call.context, record)),
        vault_ids=record.vault_ids,
        resources=repeat_resources(record.resources),
        budget=share_budget(budget, record, now=call.context.clock(), is_priced=price is not None),
        tools=tuple(sorted(_list_rights(call, agent))),
        policies=record.policies if other is None else narrow_policies(record, agent.definition, other.definition),
        parent=call.session.id,
        depth=record.depth + 1,
        root=record.root or call.session.id,
    )


def _list_rights(call: ToolCall, agent: AgentVersion) -> frozenset[str]:
    """What the child may have at most: the tools of this session, by the names of our own ones."""
    if agent.definition.tools.toolset == "fidelio_toolset":
        return call.tools
    inherited = frozenset(call.record.tools) if call.record.tools else None
    own = {RIGHTS.get(name, name) for name in AGENT_TOOLS if agent.definition.tools.offers(name)}
    has_tools = agent.definition.tools.toolset == AGENT_TOOLSET
    rights = call.tools | (own if has_tools else frozenset())
    return rights if inherited is None else rights & inherited


async def _run_child(call: ToolCall, arguments: SessionRunChild, _: Preparation) -> ToolResult:
    child = await _load_child(call, arguments.sessionId)
    before = child.record.wakes
    first = before.count
    child, reason = await _wait(call, child, first + arguments.maxCycles)
    wakes = child.record.wakes
    response = await _read_response(call, child)
    listed = describe_listed(call.session, child.session, child.record, now=call.context.clock())
    output = {
        "parentSessionId": call.session.id,
        "childSession": render_summary(listed, 0, call.tools),
        "executedCycles": wakes.count - first,
        "loopStopReason": reason,
        "childStopReason": wakes.stop_reason or child.record.status,
        "response": response,
        "queuedWakeIds": [wake.id for wake in wakes.queued],
        "processedEventIds": await _list_processed(call, child, before.processed_seq),
        "nextStep": None if reason == "idle" else suggest(call.tools, "session_run_child", {"sessionId": child.id}, "Go on."),
    }
    noted = event(
        e.CHILD_IDLE,
        {
            "childSessionId": child.id,
            "childStopReason": output["childStopReason"],
            "summary": wakes.summary,
            "executedCycles": output["executedCycles"],
            "wake_id": call.wake,
        },
    )
    return ToolResult(output=output, events=(noted,) if reason == "idle" else ())


async def _load_child(call: ToolCall, name: str) -> LoadedRuntime:
    page = await call.context.ledger.sessions(kind="runtime", parent=call.session.id, limit=MAX_CHILDREN + 1)
    if name not in {session.id for session in page.items}:
        children = ", ".join(session.id for session in page.items) or "none"
        raise ToolRefused(
            f"{name!r:.80} is no child of this session.", remedy=f"Children: {children}.", reason="unknown_session"
        )
    return await call.context.unit.load(name)


async def _wait(call: ToolCall, child: LoadedRuntime, most: int) -> tuple[LoadedRuntime, str]:
    """Wait until the child has nothing to do, has had enough wakes, or the time of a call is over."""
    ledger = call.context.ledger
    position = await ledger.wait(after=0, timeout=0)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                child = await call.context.unit.load(child.id)
                wakes = child.record.wakes
                is_waiting = wakes.stop_reason == "requires_action"
                if not wakes.current and (is_waiting or not wakes.pending) and child.record.status != "rescheduling":
                    return child, "idle"
                if wakes.count >= most and not wakes.current:
                    return child, "max_cycles"
                position = await ledger.wait(after=position, timeout=WAIT_SECONDS)
    except TimeoutError:
        return await call.context.unit.load(child.id), "running"


async def _list_processed(call: ToolCall, child: LoadedRuntime, after: int) -> list[str]:
    found = await call.context.ledger.events(child.id, after=after, types=(e.USER_MESSAGE,), limit=100)
    return [received.id for received in found if received.seq <= child.record.wakes.processed_seq]


async def _read_response(call: ToolCall, child: LoadedRuntime) -> str | None:
    """The last message of the child."""
    last = None
    after = max(0, child.record.wakes.started_seq - 1)
    for found in await call.context.ledger.events(child.id, after=after, types=(e.AGENT_MESSAGE,)):
        last = found
    if last is None:
        return None
    content: list[dict[str, Any]] = last.body.get("content") or [{}]
    item = content[0]
    return await load_text(call.context.ledger, item["stored"]) if "stored" in item else str(item.get("text", ""))


IMPLEMENTATIONS = {
    "session_delegate": Implementation(_delegate, _prepare_delegate),
    "session_run_child": Implementation(_run_child),
}
