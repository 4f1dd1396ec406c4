"""Pages of agents: blueprints and agents of the runtime, a form that starts a session, and what a person does with it."""

from __future__ import annotations

import asyncio
from typing import Any

from fidelio.errors import UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.model import Session
from fidelio.orchestrator.record.model import StartAgent
from fidelio.runtime.agents.files import DEFAULT, resolve_agent
from fidelio.runtime.agents.versions import list_agents
from fidelio.runtime.service import NewAgentSession
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Redirect, Result

LONGEST_MESSAGE = 100_000


async def _list_agents(request: PageRequest) -> Result:
    services = request.services
    listing = await asyncio.to_thread(services.application.blueprints().list, services.project)
    runtime = await services.application.runtime()
    values = {
        "blueprints": listing.agents,
        "broken": listing.broken,
        "agents": await list_agents(runtime.context, services.project),
        "project": services.project,
    }
    return PageContent("agents.html", values)


async def _start(request: PageRequest) -> Result:
    """Start a session: of a blueprint, or of an agent of the runtime."""
    person, fields = await request.require_person(), request.fields
    message = _read_message(fields)
    if fields.get("kind") == "runtime":
        return await _start_runtime(request, fields.get("agent", ""), message, person)
    service = await request.services.application.agents()
    wanted = StartAgent(
        name=fields.get("name", "").strip() or new_id("page-", 8),
        prompt=message,
        blueprint=fields.get("agent") or None,
        project=request.services.project,
    )
    return Redirect(f"/sessions/{(await service.start(wanted)).id}")


async def _start_runtime(request: PageRequest, agent: str, message: str, person: str) -> Result:
    service = await request.services.application.runtime()
    project = request.services.project
    defined = await resolve_agent(service.context, project, agent or DEFAULT)
    session = await service.start_session(NewAgentSession(project=project, agent=defined.name, version=defined.version))
    await _send(request, session, message, person)
    return Redirect(f"/sessions/{session}")


async def _act(request: PageRequest) -> Result:
    """What a person does with a session of an agent: `send`, `stop`, `end` or `delete`."""
    person = await request.require_person()
    session = await (await request.services.records()).find(request.path("session"))
    act = request.fields.get("act", "")
    if act == "send":
        await _send_to(request, session, _read_message(request.fields), person)
    elif act == "stop":
        await _stop(request, session, person)
    elif act == "delete":
        await request.services.application.delete_sessions(
            await (await request.services.records()).plan_deletion(session), by=person, reason="Deleted on the page."
        )
        return Redirect("/sessions")
    else:
        raise UsageProblem(f"{act!r:.40} cannot be done with a session.", remedy="Use the buttons of the page.")
    return Redirect(f"/sessions/{session.id}")


async def _send_to(request: PageRequest, session: Session, message: str, person: str) -> None:
    if session.kind == "runtime":
        await _send(request, session.id, message, person)
        return
    service = await request.services.application.agents()
    await service.send(_require_name(session), message, _find_project(session), by=person)


async def _send(request: PageRequest, session: str, message: str, person: str) -> None:
    service = await request.services.application.runtime()
    await service.send(session, [{"type": "user.message", "content": message}], by=person, channel="web")


async def _stop(request: PageRequest, session: Session, person: str) -> None:
    if session.kind == "agent":
        service = await request.services.application.agents()
        await service.stop(_require_name(session), _find_project(session), by=person)
    elif session.kind == "runtime":
        runtime = await request.services.application.runtime()
        await runtime.send(session.id, [{"type": "user.interrupt"}], by=person, channel="web")
    else:
        await request.services.application.end_session(session.id, by=person, reason="Ended on the page.")


async def _confirm_delete(request: PageRequest) -> Result:
    """Ask once, with everything that would be deleted."""
    records = await request.services.records()
    session = await records.find(request.path("session"))
    return PageContent("delete.html", {"session": session, "sessions": await records.plan_deletion(session)})


def _read_message(fields: dict[str, Any]) -> str:
    message = str(fields.get("message", "")).strip()
    if not message:
        raise UsageProblem("The message is empty.", remedy="Write what the agent should do.")
    if len(message) > LONGEST_MESSAGE:
        raise UsageProblem(f"The message has {len(message):,} characters.", remedy=f"Use up to {LONGEST_MESSAGE:,}.")
    return message


def _require_name(session: Session) -> str:
    if session.name is None:
        raise UsageProblem(f"Session {session.id} was deleted.", remedy="Start another.")
    return session.name


def _find_project(session: Session) -> str | None:
    return session.record.get("project") or None


ROUTES = (
    PageRoute(path="/agents", show=_list_agents, change=_start),
    PageRoute(path="/sessions/{session}/act", change=_act),
    PageRoute(path="/sessions/{session}/delete", show=_confirm_delete),
)
