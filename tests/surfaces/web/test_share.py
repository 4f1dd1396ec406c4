"""A session as a file: it verifies in a browser without a server, and finds what was changed in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from fidelio.ledger.model import NewEvent
from fidelio.surfaces.web import share
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
    head = (await (await site.application.records()).verify(agent.session)).head.hex()
    assert await page.locator("#head").inner_text() == head
    assert await page.locator(".entry").count() == 27
    answers = page.locator("section", has=page.get_by_role("heading", name="Who answered"))
    await expect(answers.locator("strong")).to_have_text(re.compile("how should it sound"))


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


@proves("web.share")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("So far it follows the workflow", "All is well"), "The page around the events"),
        (lambda text: text.replace(">demo-agent<", ">somebody<", 1), "The page around the events"),
        (lambda text: re.sub(r'(id="head">)[0-9a-f]+', rf"\g<1>{'0' * 64}", text, count=1), "The page around the events"),
        (lambda text: text.replace("Compare the head with one that was kept elsewhere", "All is well"), "The page around the"),
        (lambda text: text.replace("<li", "<li hidden", 1), "The page around the events"),
        (lambda text: text.replace('<li class="entry', '<li style="display:none" class="entry', 1), "The page around the"),
        (lambda text: text.replace("<h1>", "<h1><b>Checked</b>", 1), "The page around the events"),
        (lambda text: text.replace("style-src ", "style-src 'unsafe-inline' ", 1), "The page around the events"),
        (lambda text: re.sub("<title>.*?</title>", "<title>x</title>", text, count=1), "The page around the events"),
        (lambda text: re.sub(r'(data-seq="4">)[^<]+', r"\1{}", text, count=1), "for event 4 is not"),
    ],
)
async def test_a_file_that_shows_something_else_than_its_chain_is_found_out(
    site: Site, agent: WaitingAgent, browser: Browser, tmp_path: Path, change: Change, words: str
) -> None:
    text = await shared_file(site, agent.session)
    page_text, script, chain = text.partition('<script type="application/json"')
    changed = change(page_text) + script + chain
    file = tmp_path / "shared.html"
    file.write_text(changed, "utf-8")
    page = await browser.new_page()
    await page.goto(file.as_uri())

    assert changed != text
    await expect(page.locator("#verdict")).to_contain_text("but this page was changed")
    await expect(page.locator("#verdict")).to_contain_text(words)


@proves("web.share")
async def test_the_head_of_a_file_is_the_one_that_was_computed(
    site: Site, agent: WaitingAgent, browser: Browser, tmp_path: Path
) -> None:
    text = await shared_file(site, agent.session)
    head = (await (await site.application.records()).verify(agent.session)).head.hex()
    file = tmp_path / "shared.html"
    file.write_text(text.replace(f'id="head">{head}', f'id="head">{"0" * 64}') + "<p>All is well.</p>", "utf-8")
    page = await browser.new_page()
    await page.goto(file.as_uri())

    await expect(page.locator("#verdict")).to_contain_text("but this page was changed")
    assert await page.locator("#head").inner_text() == head


@proves("web.share")
async def test_a_file_with_strange_text_verifies(site: Site, browser: Browser, tmp_path: Path) -> None:
    strange = "\u202e\u200b \x1b[31m \r\n\x85\xa0\ufeff e" + "\u0301" * 9 + " 😀 👩\u200d💻 &lt;b&gt; \u2028"
    said = NewEvent(type="agent.said", body={"text": strange, "number": 2**60, "share": 0.1})
    session = await put_session(site, {"workflow": strange}, said)
    file = tmp_path / "shared.html"
    file.write_bytes((await shared_file(site, session)).encode())
    page = await browser.new_page()
    await page.goto(file.as_uri())

    await expect(page.locator("#verdict")).to_contain_text("The chain holds: 1 events, verified")


@proves("web.share", "web.foreign-text")
async def test_text_of_agents_is_only_text_in_a_shared_file(site: Site, browser: Browser, tmp_path: Path) -> None:
    session = await put_session(site, {"workflow": SCRIPT}, NewEvent(type="agent.said", body={"text": f"</script>{SCRIPT}"}))
    text = await shared_file(site, session)

    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert text.count("</script>") == 2


@proves("web.share")
async def test_a_file_shows_the_report_and_who_answered_over_which_channel(site: Site, agent: WaitingAgent) -> None:
    await (await site.application.inbox()).answer(agent.request, "warm", text="Be kind.", by="person:me", channel="cli")
    await agent.agent.finish()
    text = " ".join((await shared_file(site, agent.session)).partition('<script type="application/json"')[0].split())

    assert "What happened follows the workflow" in text
    assert re.search(r"answered with warm by person:me over cli \(local\)", text)
    assert re.search(r"by person:me over cli \(local\), <time[^>]*>[-0-9]+ [0-9:]+ UTC</time>, event \d+", text)
    assert "Be kind." in text


@proves("web.share")
async def test_each_event_in_a_file_has_its_own_content_also_below_a_call(site: Site) -> None:
    session = await put_session(
        site,
        {"agent": "writer"},
        NewEvent(type="agent.called", body={"call": "c1", "name": "Read", "arguments": "first"}),
        NewEvent(type="agent.returned", body={"call": "c1", "text": "second"}),
        NewEvent(type="agent.said", body={"text": "third"}),
    )
    text = (await shared_file(site, session)).partition('<script type="application/json"')[0]
    entries = text.split('<li class="entry')[1:]

    assert [("first" in entry, "second" in entry, "third" in entry) for entry in entries] == [
        (True, True, False),
        (False, False, True),
    ]


@proves("web.share", "web.bounded")
@pytest.mark.parametrize(("limit", "words"), [("MOST_EVENTS", "has 2 events"), ("MOST_BYTES", "has more than 0 MiB")])
async def test_a_session_that_is_too_large_for_a_file_is_refused_with_the_reason(
    site: Site, monkeypatch: pytest.MonkeyPatch, limit: str, words: str
) -> None:
    said = (NewEvent(type="agent.said", body={"text": str(number)}) for number in range(2))
    session = await put_session(site, {"agent": "writer"}, *said)
    monkeypatch.setattr(share, limit, 1)
    async with site.visit() as client:
        page = await client.get(f"/sessions/{session}/file")

    assert page.status_code == 400
    assert words in page.text
    assert "fit into a file" in page.text
    assert f"verify {session}" in page.text
