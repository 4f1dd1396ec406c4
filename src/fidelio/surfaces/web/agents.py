"""Pages of agents: blueprints and agents of the runtime, a form that starts a session, and what a person does with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fidelio.app.acting import LONGEST_MESSAGE
from fidelio.errors import FidelioError, UsageProblem
from fidelio.ledger.model import Session
from fidelio.runtime.agents.versions import list_agents
from fidelio.surfaces.web.pages import PageContent, PageRequest, PageRoute, Redirect, Result
from fidelio.surfaces.web.session_views import SessionView


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
    fields, actions = request.fields, request.services.actions
    message, project = _read_message(fields), fields.get("project", "").strip()
    if fields.get("kind") == "runtime":
        session = await actions.start_runtime_agent(fields.get("agent", ""), message, by=person, channel="web")
    else:
        name = fields.get("name", "").strip()
        session = await actions.start_agent(fields.get("agent", ""), message, name=name, project=project)
    return Redirect(f"/sessions/{session}?done=started")


async def _act(request: PageRequest) -> Result:
    """What a person does with a session: `send`, `resume`, `continue`, `stop` or `delete`. The page then says what was done."""
    person = await request.require_person()
    session = await (await request.services.records()).find(request.path("session"))
    act = request.fields.get("act", "")
    if act == "delete":
        deleted = await request.services.actions.delete(session, by=person, reason="Deleted on the page.")
        return Redirect(f"/sessions?done={'kept' if deleted.retained_worktrees else 'deleted'}")
    acts = {"send": _send_to, "resume": _resume, "continue": _continue, "stop": _stop}
    if act not in acts:
        raise UsageProblem(f"{act!r:.40} cannot be done with a session.", remedy="Use the buttons of the page.")
    return Redirect(f"/sessions/{session.id}?done={await acts[act](request, session, person)}")


async def _send_to(request: PageRequest, session: Session, person: str) -> str:
    await request.services.actions.send(session, _read_message(request.fields), by=person, channel="web")
    return "sent"


async def _resume(request: PageRequest, session: Session, person: str) -> str:
    await request.services.actions.resume(session, _read_message(request.fields), by=person)
    return "resumed"


async def _continue(request: PageRequest, session: Session, _: str) -> str:
    await request.services.actions.continue_run(session)
    return "continued"


async def _stop(request: PageRequest, session: Session, person: str) -> str:
    return await request.services.actions.stop(session, by=person, channel="web", reason="Ended on the page.")


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


ROUTES = (
    PageRoute(path="/agents", show=_list_agents, change=_start),
    PageRoute(path="/sessions/{session}/act", change=_act),
    PageRoute(path="/sessions/{session}/delete", show=_confirm_delete),
)
