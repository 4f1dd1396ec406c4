"""The page of a run: transitions with reasons, steps, workers, the drawing that leads to definitions, and the report."""

from __future__ import annotations

import json

from playwright.async_api import Page, expect

from fidelio.ledger.model import Change, NewEvent, NewSession
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent


async def read(site: Site, path: str) -> str:
    async with site.visit() as client:
        page = await client.get(path)
    assert page.status_code == 200
    return " ".join(page.text.split())


@proves("web.run-state")
async def test_a_run_shows_the_steps_that_were_reported_with_their_outputs_and_what_is_next(
    site: Site, agent: WaitingAgent
) -> None:
    ledger = (await site.application.records())._ledger
    body = {"activity": "greet", "step": "look", "at": 1, "output": "I have read the first file."}
    before = (await read(site, f"/sessions/{agent.session}")).partition("Steps of")[2].partition("</section>")[0]
    await ledger.commit(Change(session=agent.session, events=(NewEvent(type="step.completed", body=body, actor="demo-agent"),)))
    page = await read(site, f"/sessions/{agent.session}")

    steps = page.partition("Steps of")[2].partition("</section>")[0]
    assert steps.count('<li class="done">') == 1
    assert "I have read the first file." in steps
    assert '<li class="done">' not in before


@proves("web.run-state")
async def test_the_transitions_of_the_page_are_those_that_the_engine_offers(site: Site, agent: WaitingAgent) -> None:
    state = await (await site.application.workflows()).describe(agent.session)
    page = await read(site, f"/sessions/{agent.session}")

    ways = page.partition("Where it can go now")[2].partition("</section>")[0]
    moves = [*state.situation.offered, *state.situation.blocked]
    targets = [move.target for move in moves if move.action == "transition"]
    assert targets
    for target in targets:
        assert target in ways
    assert ways.count("<li>") == len(targets)


@proves("web.run-state")
async def test_looking_at_a_run_leaves_no_trace_in_its_record(site: Site, agent: WaitingAgent) -> None:
    records = await site.application.records()
    before = (await records.find(agent.session)).last_seq
    await read(site, f"/sessions/{agent.session}")
    await read(site, f"/sessions/{agent.session}/report")

    assert (await records.find(agent.session)).last_seq == before


@proves("web.run-state")
async def test_what_a_worker_does_is_shown_beneath_its_run(site: Site, agent: WaitingAgent) -> None:
    ledger = (await site.application.records())._ledger
    said = NewEvent(type="agent.said", body={"text": "I look at the tests first."}, actor="agent")
    create = NewSession(kind="agent", name="worker-1", parent=agent.session)
    await ledger.commit(Change(session="s_worker000001", create=create, events=(said,), record={}, status="running"))

    assert "I look at the tests first." in await read(site, f"/sessions/{agent.session}")


@proves("web.report")
async def test_the_report_on_the_page_says_what_differs_from_the_definition(site: Site, agent: WaitingAgent) -> None:
    waiting = await read(site, f"/sessions/{agent.session}/report")
    await (await site.application.inbox()).answer(agent.request, "warm", by="person:me", channel="cli")
    await agent.agent.finish()
    records = await site.application.records()
    report = await records.report(agent.session, await records.verify(agent.session))
    page = await read(site, f"/sessions/{agent.session}/report")

    assert "choose-tone" in waiting
    assert "answered with warm by person:me over cli (local)" in page
    for visit in report.visits:
        for step in visit.done:
            assert str(step["step_id"]) in page
    assert ("differs from the workflow" in page) == bool(report.differences)


@proves("web.report")
async def test_a_session_without_a_workflow_has_no_report(site: Site) -> None:
    ledger = (await site.application.records())._ledger
    await ledger.commit(
        Change(session="s_alone0000001", create=NewSession(kind="agent", name="alone"), record={}, status="idle")
    )
    async with site.visit() as client:
        page = await client.get("/sessions/s_alone0000001/report")

    assert page.status_code == 400
    assert "follows no workflow" in page.text


@proves("web.drawing")
async def test_a_click_on_an_activity_opens_its_definition_and_the_picture_grows(
    site: Site, tab: Page, agent: WaitingAgent
) -> None:
    await tab.goto(f"{site.url}/sessions/{agent.session}")
    picture = tab.locator("[data-drawing] svg")
    width = await picture.evaluate("element => element.clientWidth")
    await tab.get_by_role("button", name="Larger").click()
    assert await picture.evaluate("element => element.clientWidth") > width
    await tab.locator('[data-node="greet"]').click()

    definition = tab.locator('[data-definition="greet"]')
    await expect(definition.locator("pre")).to_be_visible()
    await expect(definition.locator("pre")).to_contain_text("choose-tone")
    await tab.locator('[data-node="greet"]').focus()
    await definition.locator("summary").click()
    await tab.locator('[data-node="greet"]').press("Enter")
    await expect(definition.locator("pre")).to_be_visible()


@proves("web.drawing")
async def test_every_activity_of_the_drawing_has_a_definition_below_it(site: Site) -> None:
    library = await site.application.library()
    page = await read(site, "/workflows/hello")

    for activity in library.workflow("hello").activities:
        assert f"data-node={json.dumps(activity.id)}" in page
        assert f"data-definition={json.dumps(activity.id)}" in page
