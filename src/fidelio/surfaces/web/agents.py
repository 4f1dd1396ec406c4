"""Pages of agents: blueprints and agents of the runtime, a form that starts a session, and what a person does with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fidelio.errors import FidelioError, UsageProblem
from fidelio.ids import new_id
from fidelio.ledger.model import Session
from fidelio.orchestrator.record.model import StartAgent
from fidelio.runtime.agents.files import DEFAULT, resolve_agent
from fidelio.runtime.agents.versions import list_agents
from fidelio.runtime.service import NewAgentSession
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Redirect, Result
from fidelio.surfaces.web.session_views import SessionView

LONGEST_MESSAGE = 100_000


async def _list_agents(request: PageRequest) -> Result:
    return await _show_forms(request, {})


async def _show_forms(request: PageRequest, typed: Mapping[str, str], problem: FidelioError | None = None) -> PageContent:
    """The page with its forms. After a problem it has what was typed, and says at which form what is wrong."""
    services = request.services
    listing = await asyncio.to_thread(services.application.blueprints().list, services.project)
    runtime = await services.application.runtime()
    values = {
        "blueprints": listing.agents,
        "broken": listing.broken,
        "agents": await list_agents(runtime.context, services.project),
        "project": services.project,
        "typed": typed,
        "problem": problem,
    }
    return PageContent("agents.html", values, HTTPStatus.BAD_REQUEST if problem else HTTPStatus.OK)


async def _start(request: PageRequest) -> Result:
    """Start a session: of a blueprint, or of an agent of the runtime."""
    person = await request.require_person()
    try:
        return await _start_session(request, person)
    except FidelioError as problem:
        return await _show_forms(request, request.fields, problem)


async def _start_session(request: PageRequest, person: str) -> Redirect:
    fields = request.fields
    message, project = _read_message(fields), fields.get("project", "").strip() or request.services.project
    if fields.get("kind") == "runtime":
        return await _start_runtime(request, fields.get("agent", ""), message, person)
    service = await request.services.application.agents()
    wanted = StartAgent(
        name=fields.get("name", "").strip() or new_id("page-", 8),
        prompt=message,
        blueprint=fields.get("agent") or None,
        project=project,
    )
    return Redirect(f"/sessions/{(await service.start(wanted)).id}?done=started")


async def _start_runtime(request: PageRequest, agent: str, message: str, person: str) -> Redirect:
    service = await request.services.application.runtime()
    project = request.services.project
    defined = await resolve_agent(service.context, project, agent or DEFAULT)
    session = await service.start_session(NewAgentSession(project=project, agent=defined.name, version=defined.version))
    await _send(request, session, message, person)
    return Redirect(f"/sessions/{session}?done=started")


async def _act(request: PageRequest) -> Result:
    """What a person does with a session: `send`, `resume`, `stop` or `delete`. The page then says what was done."""
    person = await request.require_person()
    session = await (await request.services.records()).find(request.path("session"))
    act = request.fields.get("act", "")
    if act == "delete":
        return Redirect(f"/sessions?done={await _delete(request, session, person)}")
    acts = {"send": _send_to, "resume": _resume, "stop": _stop}
    if act not in acts:
        raise UsageProblem(f"{act!r:.40} cannot be done with a session.", remedy="Use the buttons of the page.")
    return Redirect(f"/sessions/{session.id}?done={await acts[act](request, session, person)}")


async def _send_to(request: PageRequest, session: Session, person: str) -> str:
    message = _read_message(request.fields)
    if session.kind == "runtime":
        await _send(request, session.id, message, person)
    else:
        service = await request.services.application.agents()
        await service.send(_require_name(session), message, _find_project(session), by=person)
    return "sent"


async def _resume(request: PageRequest, session: Session, person: str) -> str:
    """Go on in the conversation of an agent whose run has ended."""
    service = await request.services.application.agents()
    await service.resume(_require_name(session), _read_message(request.fields), _find_project(session), by=person)
    return "resumed"


async def _send(request: PageRequest, session: str, message: str, person: str) -> None:
    service = await request.services.application.runtime()
    await service.send(session, [{"type": "user.message", "content": message}], by=person, channel="web")


async def _stop(request: PageRequest, session: Session, person: str) -> str:
    if session.kind == "agent":
        service = await request.services.application.agents()
        await service.stop(_require_name(session), _find_project(session), by=person)
        return "stopped"
    if session.kind == "runtime":
        runtime = await request.services.application.runtime()
        await runtime.send(session.id, [{"type": "user.interrupt"}], by=person, channel="web")
        return "interrupted"
    await request.services.application.end_session(session.id, by=person, reason="Ended on the page.")
    return "ended"


async def _delete(request: PageRequest, session: Session, person: str) -> str:
    planned = await (await request.services.records()).plan_deletion(session)
    retained = await request.services.application.delete_sessions(planned, by=person, reason="Deleted on the page.")
    return "kept" if retained else "deleted"


async def _confirm_delete(request: PageRequest) -> Result:
    """Ask once, with everything that would be deleted."""
    records = await request.services.records()
    session = await records.find(request.path("session"))
    views = [SessionView(each) for each in await records.plan_deletion(session)]
    return PageContent("delete.html", {"view": SessionView(session), "views": views})


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
