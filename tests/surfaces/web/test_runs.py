"""The page of a run: transitions with reasons, steps, workers, the drawing that leads to definitions, and the report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.surfaces.web.sessions import describe_author
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent
from tests.surfaces.web.test_acting import post, wait_for


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
async def test_every_transition_is_shown_as_the_engine_sees_it_and_marked_in_the_drawing(
    site: Site, agent: WaitingAgent
) -> None:
    state = await (await site.application.workflows()).describe(agent.session)
    page = await read(site, f"/sessions/{agent.session}")

    ways = page.partition("Where it can go now")[2].partition("</section>")[0]
    targets = {each.to for each in state.transitions}
    assert targets == {"compose", "farewell"}
    assert all(target in ways for target in targets)
    assert ways.count("<li>") == len(targets)
    assert "is to be answered first" in ways
    assert len(re.findall(r'<path class="line \w+ closed"', page)) == len(targets)
    assert " open" not in "".join(re.findall(r'<path class="line[^>]+>', page))


@proves("web.run-state")
async def test_the_drawing_shows_the_way_that_a_finished_run_took_and_its_story_is_told(
    site: Site, agent: WaitingAgent
) -> None:
    await (await site.application.inbox()).answer(agent.request, "warm", by="person:me", channel="cli")
    await agent.agent.finish()
    page = await read(site, f"/sessions/{agent.session}")

    assert page.count('class="node activity visited"') == 3
    assert len(re.findall(r'<path class="line \w+ taken"', page)) == 2
    story = page.partition('id="story"')[2].partition("</section>")[0]
    assert "Completed in" in story
    assert "3 visits" in story
    assert [name in story for name in ("Look around and ask", "Write the note", "Say what was done")] == [True] * 3
    assert "follows the workflow" in story


@proves("web.run-state")
async def test_answered_questions_say_who_answered_when_and_how_sure_that_is(site: Site, agent: WaitingAgent) -> None:
    await (await site.application.inbox()).answer(agent.request, "brief", by="person:me", channel="cli")
    page = await read(site, f"/sessions/{agent.session}")

    answered = page.partition("Questions with answers")[2].partition("</section>")[0]
    assert "how should it sound?" in answered
    assert "Answered with <strong>A brief note</strong> by person:me over cli (local)" in answered


@proves("web.run-state")
@pytest.mark.parametrize(
    ("author", "words"),
    [
        ("agent:demo-agent", "by demo-agent"),
        ("checkpoint:greet/choose-tone/warm", "by the answer warm at choose-tone"),
        ("child:s_000000000001", "by the session s_000000000001"),
        ("entry:greet", "by the definition, at greet"),
        ("", ""),
    ],
)
def test_who_set_a_variable_is_told_in_words(author: str, words: str) -> None:
    assert describe_author(author) == words


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


@proves("web.run-state")
async def test_the_worker_of_a_conducted_run_is_shown_with_it_although_it_is_no_child(tmp_path: Path, site: Site) -> None:
    async with site.visit() as client:
        shown = await post(client, "/workflows/hello", agent="echo", project=str(tmp_path))
        session = shown.url.path.rpartition("/")[2]
        await wait_for(site, session, "conductor.failed")
    run, listed = await read(site, f"/sessions/{session}"), await read(site, "/sessions")

    worker = (await (await site.application.agents()).list(str(tmp_path))).items[0]
    assert worker.name == f"{session}-1-greet"
    assert f'Worker <a href="/sessions/{worker.id}">greet</a>' in run
    assert f'id="{worker.id}" class="depth-1"' in listed


@proves("web.report")
async def test_the_report_of_a_run_that_goes_on_says_so_and_counts_only_what_was_answered(
    site: Site, agent: WaitingAgent
) -> None:
    async with site.visit() as client:
        before = (await client.get(f"/sessions/{agent.session}/report")).text
        await (await site.application.inbox()).answer(agent.request, "warm", by="person:me", channel="cli")
        await agent.agent.finish()
        after = (await client.get(f"/sessions/{agent.session}/report")).text

    assert "So far it follows the workflow" in before
    assert "<dt>answers</dt><dd>0</dd>" in before
    assert "not answered yet" in before
    assert "What happened follows the workflow" in after
    assert "<dt>answer</dt><dd>1</dd>" in after
    assert "not reported yet" in before
    assert after.count("left out, as the workflow allows") == 1


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
    assert 'Look around <span class="muted">look</span>' in page
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
    await definition.locator("summary").click()
    await expect(definition.locator("pre")).to_be_hidden()
    await tab.locator('a:has([data-node="greet"])').press("Enter")
    await expect(definition.locator("pre")).to_be_visible()


@proves("web.drawing")
async def test_without_scripts_an_activity_leads_to_its_definition_too(
    site: Site, browser: Browser, agent: WaitingAgent
) -> None:
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(site.link(f"/sessions/{agent.session}"))
    await page.locator('[data-node="compose"]').click()

    await expect(page.locator('[data-definition="compose"] pre')).to_be_visible()
    await context.close()


@proves("web.drawing")
async def test_every_activity_of_the_drawing_has_a_definition_below_it(site: Site) -> None:
    library = await site.application.library()
    page = await read(site, "/workflows/hello")

    for activity in library.workflow("hello").activities:
        assert f"data-node={json.dumps(activity.id)}" in page
        assert f"data-definition={json.dumps(activity.id)}" in page
