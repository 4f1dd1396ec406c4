"""Live pages: in the background, without a server, with too many pages, after signing out; and times that stay current."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, Page, expect

from fidelio.app.watching import MAX_STREAMS, Watcher
from fidelio.surfaces.web.application import stream_changes
from tests.support import proves
from tests.surfaces.web.conftest import Site
from tests.surfaces.web.test_inbox import ask, open_session

HIDE = """Object.defineProperty(document, "hidden", { get: () => true });
  document.dispatchEvent(new Event("visibilitychange"));"""


async def open_inbox(site: Site, page: Page) -> None:
    """The inbox with one question, once its stream is open."""
    async with page.expect_response(lambda response: "/live" in response.url):
        await page.goto(site.link("/inbox"))
    await expect(page.locator("[data-question]")).to_have_count(1)


@proves("web.live", "web.notifications")
async def test_a_page_in_the_background_counts_and_notifies(site: Site, browser: Browser) -> None:
    await open_session(site, "one", ask("first"))
    page = await browser.new_page()
    await open_inbox(site, page)
    await page.evaluate(HIDE)
    await open_session(site, "two", ask("second"))

    await expect(page).to_have_title("(2) Inbox · Fidelio")


@proves("web.connection")
async def test_a_page_says_that_its_server_is_away_and_goes_on_when_it_is_back(site: Site, browser: Browser) -> None:
    await open_session(site, "one", ask("first"))
    page = await browser.new_page()
    await open_inbox(site, page)
    await page.context.set_offline(offline=True)
    # An open connection is kept by a browser that is offline.
    await page.evaluate("document.querySelector('#stream')._htmx.sse.reader.cancel()")
    await expect(page.locator("#offline")).to_contain_text("The server does not answer")
    await open_session(site, "two", ask("second"))
    await page.context.set_offline(offline=False)

    await expect(page.locator("[data-question]")).to_have_count(2)
    await expect(page.locator("#offline")).to_be_hidden()


@proves("web.connection")
async def test_a_page_of_somebody_who_signed_out_keeps_its_content_and_says_so(site: Site, browser: Browser) -> None:
    await open_session(site, "one", ask("first"))
    page = await (await browser.new_context()).new_page()
    await open_inbox(site, page)
    other = await page.context.new_page()
    await other.goto(f"{site.url}/sessions")
    await other.get_by_role("button", name="Sign out").click()
    await open_session(site, "two", ask("second"))

    await expect(page.locator("#offline")).to_contain_text("You are signed out")
    await expect(page.locator("[data-question]")).to_have_count(1)
    await expect(page.get_by_role("link", name="Sign in again")).to_have_attribute("href", "/inbox")


@proves("web.connection", "web.bounded")
async def test_a_page_beyond_the_limit_of_streams_says_so(
    site: Site, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watcher, "has_room", False)
    page = await browser.new_page()
    await page.goto(site.link("/inbox"))

    await expect(page.locator("#offline")).to_contain_text("Too many pages are open")
    async with site.visit() as client:
        answered = await client.get("/live")
    assert (answered.status_code, answered.headers["retry-after"]) == (503, "30")
    assert f"More than {MAX_STREAMS} pages" in answered.text


@proves("web.live")
async def test_a_stream_begins_where_the_browser_was_and_repeats_nothing(site: Site) -> None:
    await open_session(site, "one", ask("first"))
    watcher = Watcher(site.application.records)
    newest = await (await site.application.records()).wait(after=0, timeout=0)
    missed, current = stream_changes(watcher, newest - 1), stream_changes(watcher, newest)
    expected = f"id: {newest}\nevent: changed\ndata: {newest}\n\n".encode()

    assert [await anext(missed), await anext(missed)] == [b"retry: 500\n\n", expected]
    assert await anext(current) == b"retry: 500\n\n"
    following = asyncio.ensure_future(anext(current))
    await open_session(site, "two", ask("second"))
    message = await asyncio.wait_for(following, 30)
    assert int(message.split()[1]) > newest
    await missed.aclose()
    await current.aclose()
    assert watcher.streams == 0


@proves("web.times")
async def test_times_are_in_the_zone_of_the_person_and_stay_current_on_an_open_page(site: Site, browser: Browser) -> None:
    request = ask("first")
    await open_session(site, "one", request)
    context = await browser.new_context(timezone_id="Asia/Tokyo", locale="en-GB")
    page = await context.new_page()
    await page.clock.install()
    await page.goto(site.link(f"/inbox/{request.id}"))
    time = page.locator("article time").first
    found = await (await site.application.inbox()).find(request.id)
    local = await page.evaluate("ms => new Date(ms).toLocaleString('en-GB', { timeStyle: 'short' })", found.opened_at)

    await expect(time).to_contain_text(f" · {local}")
    await page.clock.fast_forward("03:00:10")
    await expect(time).to_contain_text("3 hours ago")
