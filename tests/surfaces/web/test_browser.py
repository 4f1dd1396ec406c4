"""The page in a real browser: with the mouse, with the keyboard alone, by two people at once, on a phone, in the dark."""

from __future__ import annotations

from typing import Literal

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent

Scheme = Literal["light", "dark"]
_HTMX_RAN = "new Promise(go => { const wait = () => setTimeout(window.htmx ? () => setTimeout(go) : wait); wait() })"
PHONE, DESK = {"width": 375, "height": 800}, {"width": 1280, "height": 900}


@proves("web.live", "web.answer")
async def test_answering_with_the_mouse_lets_the_agent_go_on_and_the_open_page_shows_it(
    site: Site, agent: WaitingAgent, browser: Browser
) -> None:
    context = await browser.new_context()
    tab = await context.new_page()
    await tab.goto(site.link("/inbox"))
    watching = await context.new_page()
    await watching.goto(f"{site.url}/sessions/{agent.session}")
    await tab.get_by_role("button", name="A warm note").click()
    await expect(tab.get_by_role("status")).to_contain_text("Answered with A warm note")
    await agent.agent.finish()

    await expect(watching.locator(".entries")).to_contain_text("completed the workflow")
    await expect(watching.locator(".badge").first).to_have_text("completed")
    await expect(watching.locator("#menu .count")).to_be_hidden()


@proves("web.keyboard")
async def test_the_keyboard_alone_is_enough_to_answer(site: Site, agent: WaitingAgent, tab: Page) -> None:
    # The scripts run once everything is loaded.
    await tab.wait_for_load_state("load")
    await tab.keyboard.press("?")
    await expect(tab.get_by_role("dialog")).to_be_visible()
    await tab.keyboard.press("Escape")
    await expect(tab.get_by_role("dialog")).to_be_hidden()
    await expect(tab.get_by_role("dialog")).to_be_hidden()
    await tab.keyboard.press("j")
    await tab.keyboard.press("2")

    await expect(tab.get_by_role("status")).to_contain_text("Answered with A brief note")


@proves("web.live")
async def test_an_update_of_the_page_does_not_lose_what_is_being_typed(site: Site, tab: Page, agent: WaitingAgent) -> None:
    await tab.goto(f"{site.url}/sessions/{agent.session}")
    comment = tab.get_by_label("A comment for the agent")
    await comment.fill("half a thought")
    entries = await tab.locator(".entry").count()
    await agent.agent.read_status()

    await expect(tab.locator(".entry")).to_have_count(entries + 1)
    await expect(comment).to_have_value("half a thought")


@proves("web.live")
async def test_a_page_is_live_although_the_script_of_streams_arrives_last(site: Site, agent: WaitingAgent, tab: Page) -> None:
    async def hold(route: Route) -> None:
        # Until htmx has run, and what it has put off to a timer too.
        await tab.evaluate(_HTMX_RAN)
        await route.continue_()

    await tab.route("**/hx-sse.min.js*", hold)
    await tab.goto(f"{site.url}/sessions/{agent.session}")
    entries = await tab.locator(".entry").count()
    await agent.agent.read_status()

    await expect(tab.locator(".entry")).to_have_count(entries + 1)


@proves("web.live")
async def test_a_stream_that_was_refused_at_first_is_opened_later(site: Site, agent: WaitingAgent, browser: Browser) -> None:
    tab = await browser.new_page()
    await tab.goto(site.link())
    await tab.route("**/live*", lambda route: route.fulfill(status=503, body="Too many pages are open."), times=2)
    await tab.goto(f"{site.url}/sessions/{agent.session}")
    entries = await tab.locator(".entry").count()
    await agent.agent.read_status()

    await expect(tab.locator(".entry")).to_have_count(entries + 1)


@proves("web.answer")
async def test_of_two_people_at_one_question_the_slower_is_told(site: Site, agent: WaitingAgent, browser: Browser) -> None:
    people = [await (await browser.new_context()).new_page() for _ in range(2)]
    for person in people:
        await person.goto(site.link(f"/inbox/{agent.request}"))
        # The page of the slower person would be updated before the click.
        await person.evaluate("document.querySelector('#stream').remove()")
    await people[0].get_by_role("button", name="A warm note").click()
    await people[1].get_by_role("button", name="No note").click()

    await expect(people[0].get_by_role("status")).to_contain_text("Answered with A warm note")
    await expect(people[1].get_by_role("alert")).to_contain_text("Somebody was faster")
    await expect(people[1].locator("main")).to_contain_text("Answered with A warm note")


@proves("web.layout")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
async def test_every_page_fits_its_screen(
    site: Site, agent: WaitingAgent, browser: Browser, scheme: Scheme, size: dict[str, int]
) -> None:
    context = await browser.new_context(color_scheme=scheme, viewport=size)  # type: ignore[arg-type]  # a plain mapping is enough
    page = await context.new_page()
    await page.goto(site.link())
    session = f"/sessions/{agent.session}"
    for path in ("/inbox", "/sessions", session, f"{session}/proof", f"{session}/events/1", "/workflows", "/workflows/hello"):
        await page.goto(f"{site.url}{path}")
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert await page.evaluate("document.querySelectorAll('h1').length") == 1, path


@proves("web.keyboard", "web.search")
async def test_a_slash_leaves_the_focus_in_the_field_of_the_search(site: Site, tab: Page) -> None:
    await tab.goto(f"{site.url}/sessions")
    # The scripts run once everything is loaded.
    await tab.wait_for_load_state("load")
    await tab.keyboard.press("/")
    await expect(tab.get_by_role("searchbox")).to_be_focused()
    await tab.keyboard.type("receipt")

    await expect(tab.get_by_role("searchbox")).to_have_value("receipt")
