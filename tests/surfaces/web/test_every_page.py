"""Every page: nothing serious found by axe, no error in the console, no request to another origin, and it fits a phone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]  # has no types
from playwright.async_api import Browser, Page

from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.runtime.agents.files import DEFAULT, resolve_agent
from fidelio.runtime.service import NewAgentSession
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent
from tests.surfaces.web.test_inbox import EDIT, ask, open_session

Scheme = Literal["light", "dark"]
LONG = "a-name-without-any-place-to-break-" * 12
_TYPE = """() => { for (const field of document.querySelectorAll("main :is(input[type=text], input[type=search], textarea)")) {
  field.value += "x"; field.checkValidity(); field.dispatchEvent(new Event("input", { bubbles: true })); } }"""
_SERIOUS = ("serious", "critical")


async def fill(site: Site) -> dict[str, str]:
    """Sessions of every kind with long words; return the ids by kind."""
    permissions = [ask("first", tool="Edit", input={**EDIT, "new_string": LONG}), ask("second", question=f"May I?\n{LONG}")]
    agent = await open_session(site, "writer", *permissions, project=f"/work/{LONG}", said=LONG)
    ledger = (await site.application.records())._ledger
    await ledger.commit(_change(agent))
    runtime = await site.application.runtime()
    found = await resolve_agent(runtime.context, "/work/shop", DEFAULT)
    session = await runtime.start_session(NewAgentSession(project="/work/shop", agent=found.name, version=found.version))
    outcome = {"type": "user.define_outcome", "description": LONG, "rubric": {"type": "text", "content": "It is done."}}
    await runtime.send(session, [outcome], by="person:me", channel="cli")
    create = NewSession(kind="agent", name="idle")
    await ledger.commit(Change(session="s_idle00000001", create=create, record={"blueprint": LONG}, status="succeeded"))
    return {"agent": agent, "runtime": session, "idle": "s_idle00000001"}


def _change(session: str) -> Change:
    usage = [{"turns": n, "input_tokens": n * 100, "output_tokens": n, "cost_usd": n / 100} for n in (1, 2, 3)]
    calls = NewEvent(type="agent.called", body={"call": "c1", "name": LONG, "arguments": LONG}, actor="agent")
    used = (NewEvent(type="run.used", body={"usage": each}, actor="agent") for each in usage)
    return Change(session=session, events=(calls, *used))


def list_paths(workflow: str, sessions: dict[str, str]) -> list[str]:
    """The addresses of every page."""
    run, agent, runtime = (f"/sessions/{name}" for name in (workflow, sessions["agent"], sessions["runtime"]))
    return [
        *("/inbox", "/inbox?state=all", "/sessions", "/sessions/lanes", "/workflows", "/workflows/hello"),
        *("/workflows/hello/source", "/agents", "/search?q=name", "/webhooks", "/passkeys", "/health-check", "/nowhere"),
        *(run, f"{run}/report", f"{run}/proof", f"{run}/events/1"),
        *(agent, runtime, f"{runtime}/memory", f"/sessions/{sessions['idle']}/delete"),
    ]


@pytest.fixture
async def page(site: Site, agent: WaitingAgent, browser: Browser, scheme: Scheme, width: int) -> AsyncIterator[Page]:
    context = await browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    opened = await context.new_page()
    await opened.goto(site.link())
    yield opened
    await context.close()


@proves("web.accessible", "web.layout", "web.own-origin")
@pytest.mark.parametrize(("width", "scheme"), [(375, "light"), (375, "dark"), (1280, "light"), (1280, "dark")])
async def test_every_page_is_accessible_fits_and_stays_at_home(site: Site, agent: WaitingAgent, page: Page) -> None:
    problems, axe = list[str](), Axe()
    page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
    page.on("console", lambda message: _note(problems, page, message.type, message.text))
    page.on("request", lambda sent: None if sent.url.startswith((site.url, "data:")) else problems.append(sent.url))
    for path in list_paths(agent.session, await fill(site)):
        await page.goto(f"{site.url}{path}")
        # What is folded must fit and be accessible too.
        await page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        # A pattern that the browser cannot read is an error once somebody types.
        await page.evaluate(_TYPE)
        if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            problems.append(f"{path} is wider than the screen")
        if await page.locator("h1").count() != 1:
            problems.append(f"{path} has no single heading")
        found = await axe.run(page)
        problems += [
            f"{path}: {each['id']} {[node['html'][:150] for node in each['nodes'][:3]]}"
            for each in found.response["violations"]
            if each["impact"] in _SERIOUS
        ]

    assert problems == []


def _note(problems: list[str], page: Page, type_: str, text: str) -> None:
    # The browser itself reports the page that is missing.
    if type_ == "error" and not page.url.endswith("/nowhere"):
        problems.append(f"{page.url}: {text}")
