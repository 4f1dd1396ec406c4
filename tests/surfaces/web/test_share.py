"""A session as a file: it verifies in a browser without a server, and finds what was changed in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from fidelio.ledger.model import NewEvent
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent
from tests.surfaces.web.test_pages import SCRIPT, put_session

Change = Callable[[str], str]


async def shared_file(site: Site, session: str) -> str:
    async with site.visit() as client:
        answered = await client.get(f"/sessions/{session}/file")
    assert answered.headers["content-disposition"] == f'attachment; filename="{session}.html"'
    return answered.text


@proves("web.share")
async def test_a_shared_session_verifies_without_a_server(
    site: Site, agent: WaitingAgent, browser: Browser, tmp_path: Path
) -> None:
    await (await site.application.inbox()).answer(agent.request, "warm", text="Grüße 😀 <b>", by="person:me", channel="cli")
    await agent.agent.finish()
    file = tmp_path / "shared.html"
    file.write_text(await shared_file(site, agent.session), "utf-8")
    page = await browser.new_page()
    await page.goto(file.as_uri())

    await expect(page.locator("#verdict")).to_contain_text("The chain holds: 27 events")
    assert await page.locator(".entry").count() == 27


@proves("web.share")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: re.sub(r'"actor":"[^"]+"', '"actor":"somebody"', text, count=1), "was changed"),
        (lambda text: text.replace("choose-tone", "choose-tune"), "was changed"),
        (lambda text: re.sub(r'\{"seq":3,.*?\},(?=\{"seq":4)', "", text, count=1), "is missing"),
        (lambda text: re.sub(r'"head":"[0-9a-f]{4}', '"head":"0000', text, count=1), "not the head"),
    ],
)
async def test_a_changed_file_is_found_out(
    site: Site, agent: WaitingAgent, browser: Browser, tmp_path: Path, change: Change, words: str
) -> None:
    text = await shared_file(site, agent.session)
    changed = change(text)
    file = tmp_path / "shared.html"
    file.write_text(changed, "utf-8")
    page = await browser.new_page()
    await page.goto(file.as_uri())

    assert changed != text
    await expect(page.locator("#verdict")).to_contain_text("The chain is broken")
    await expect(page.locator("#verdict")).to_contain_text(words)


@proves("web.share", "web.foreign-text")
async def test_text_of_agents_is_only_text_in_a_shared_file(site: Site, browser: Browser, tmp_path: Path) -> None:
    session = await put_session(site, {"workflow": SCRIPT}, NewEvent(type="agent.said", body={"text": f"</script>{SCRIPT}"}))
    text = await shared_file(site, session)

    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert text.count("</script>") == 2
