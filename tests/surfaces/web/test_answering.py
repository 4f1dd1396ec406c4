"""After an answer, and when one comes too late: where the person is, what is said, and what is kept."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from fidelio.clock import now_ms
from fidelio.inbox import expire_request, open_request
from fidelio.ledger.model import Change, NewEvent
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent, read_form_token
from tests.surfaces.web.test_inbox import YES_OR_NO, ask, open_session


@proves("web.answer")
async def test_the_lines_of_a_text_end_as_in_every_other_channel(site: Site) -> None:
    question = ask("q", "question", "Which port?")
    await open_session(site, "one", question)
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "text": "8080\r\nor 9090\r\n\r\nI think"}
        page = (await client.post(f"/inbox/{question.id}", data=fields)).text

    assert (await (await site.application.inbox()).find(question.id)).answer["text"] == "8080\nor 9090\n\nI think"
    assert "\\r" not in page


@proves("web.answer")
async def test_who_answers_on_the_page_of_a_session_stays_there_and_is_told_what_was_answered(
    site: Site, agent: WaitingAgent, tab: Page
) -> None:
    await tab.goto(f"{site.url}/sessions/{agent.session}")
    await tab.get_by_role("button", name="A warm note").click()

    await expect(tab).to_have_url(f"{site.url}/sessions/{agent.session}?answered={agent.request}")
    await expect(tab.get_by_role("status")).to_contain_text("how should it sound?")
    await expect(tab.get_by_role("status")).to_contain_text("Answered with A warm note")


@proves("web.answer", "web.inbox-filters")
async def test_an_answer_keeps_the_filter_of_the_inbox(site: Site, tab: Page) -> None:
    first, second, question = ask("first"), ask("second"), ask("q", "question", "Which colour?")
    await open_session(site, "one", first, second, question)
    await tab.goto(f"{site.url}/inbox?kind=permission")
    await tab.get_by_role("button", name="Allow it once").first.click()

    await expect(tab).to_have_url(f"{site.url}/inbox?kind=permission&answered={first.id}")
    await expect(tab.get_by_role("status")).to_contain_text("May I do first?")
    await expect(tab.locator("[data-question]")).to_have_count(1)


@proves("web.answer")
@pytest.mark.parametrize(
    "back",
    ["https://evil.example/", "//evil.example/inbox?", "/\\evil.example", "/sign-out", "/inboxes", "javascript:alert(1)", ""],
)
async def test_an_answer_leads_to_no_other_page(site: Site, back: str) -> None:
    request = ask("x")
    await open_session(site, "one", request)
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "option": "allow", "back": back}
        answered = await client.post(f"/inbox/{request.id}", data=fields, follow_redirects=False)

    assert answered.headers["location"] == f"/inbox?answered={request.id}"


@proves("web.answer", "web.slower-is-told")
async def test_a_text_that_arrives_too_late_is_shown_again(site: Site) -> None:
    question = ask("q", "question", "Which port?")
    await open_session(site, "one", question)
    await (await site.application.inbox()).answer(question.id, text="9090", by="person:other", channel="cli")
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "text": "8080 <b>\r\nbecause it is free"}
        page = await client.post(f"/inbox/{question.id}", data=fields)

    assert page.status_code == 409
    assert "What you had written" in page.text
    assert "8080 &lt;b&gt;\nbecause it is free" in page.text


@proves("web.several", "web.inbox-context")
async def test_after_several_answers_each_card_says_what_was_allowed(site: Site) -> None:
    requests = [ask(name, question="writer wants to use Bash", tool="Bash", input={"command": name}) for name in ("make", "ls")]
    await open_session(site, "one", *requests)
    async with site.visit() as client:
        picks = {f"pick-{request.id}": "on" for request in requests}
        page = await client.post("/inbox", data={"form_token": await read_form_token(client), "decision": "allow", **picks})

    for card, command in zip(page.text.split("<article")[1:], ("make", "ls"), strict=True):
        assert f'<pre class="exact" tabindex="0">{command}</pre>' in card
        assert "Answered with <strong>Allow it once</strong>" in " ".join(card.split())


@proves("web.inbox-context", "web.live")
async def test_a_question_that_expires_while_it_is_open_says_so_and_takes_no_answer(site: Site, tab: Page) -> None:
    expiring = open_request("permission", "x", "May I?", YES_OR_NO, {}, expires_at=now_ms() + 60_000)
    session = await open_session(site, "one", expiring)
    await tab.goto(f"{site.url}/inbox/{expiring.id}")
    await expect(tab.locator(".deadline")).to_contain_text("after that it cannot be answered")
    await expect(tab.get_by_role("button", name="Allow it once")).to_be_visible()
    ledger = (await site.application.records())._ledger
    await ledger.commit(
        Change(session=session, events=(NewEvent(type="run.going-on"),), requests=(expire_request(expiring.id),))
    )

    await expect(tab.locator(".answer")).to_contain_text("nobody answered in time, which counts as no")
    await expect(tab.get_by_role("button", name="Allow it once")).to_have_count(0)


@proves("web.slower-is-told", "web.times", "web.connection")
@pytest.mark.parametrize("width", [360, 1280])
async def test_what_is_told_is_seen_far_down_the_page_with_the_time_of_the_person(
    site: Site, browser: Browser, width: int
) -> None:
    requests = [ask(str(number), "question", f"Which port of machine {number}?") for number in range(8)]
    await open_session(site, "one", *requests)
    viewport, zone = {"width": width, "height": 700}, "Asia/Tokyo"
    context = await browser.new_context(viewport=viewport, timezone_id=zone, locale="en-GB")  # type: ignore[arg-type]  # a size
    tab = await context.new_page()
    await tab.goto(site.link("/inbox"))
    await tab.wait_for_load_state("load")
    await tab.locator(f"#{requests[-1].id} textarea").fill("8080")
    inbox = await site.application.inbox()
    answered = await inbox.answer(requests[-1].id, text="9090", by="person:other", channel="cli")
    note = tab.locator("[data-note]")

    await expect(note).to_be_in_viewport(ratio=1)
    closed = answered.request.closed_at
    local = await tab.evaluate("ms => new Date(ms).toLocaleString('en-GB', { timeStyle: 'short' })", closed)
    await expect(note).to_contain_text(f" · {local}")
    await expect(tab.locator(".foot")).to_have_text("Times are in Asia/Tokyo.")
    await note.get_by_role("button", name="Close").click()
    await tab.context.set_offline(offline=True)
    await tab.evaluate("document.querySelector('#stream')._htmx.sse.reader.cancel()")
    await expect(tab.locator("#offline")).to_be_in_viewport(ratio=1)
    # Nothing of it is below the bar.
    covered = (
        "element => document.elementFromPoint(innerWidth / 2, element.getBoundingClientRect().top + 8).closest('#offline')"
    )
    assert await tab.locator("#offline").evaluate(covered) is not None
    await context.close()
