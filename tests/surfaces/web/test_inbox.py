"""The inbox: filters, exactly what a permission allows, several answers at once, many questions, and notifications."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, Page, expect

from fidelio.clock import now_ms
from fidelio.inbox import NewRequest, open_request
from fidelio.ledger.model import Change, NewEvent, NewSession
from tests.support import proves
from tests.surfaces.web.conftest import Site, read_form_token

YES_OR_NO = ({"id": "allow", "label": "Allow it once"}, {"id": "refuse", "label": "Refuse it"})
EDIT = {"file_path": "/src/app.py", "old_string": "first\nsecond\n", "new_string": "first\nchanged\n"}


def ask(key: str, kind: str = "permission", question: str = "", **detail: Any) -> NewRequest:
    options = YES_OR_NO if kind in ("permission", "tool_approval") else ()
    return open_request(kind, key, question or f"May I do {key}?", options, detail)


async def open_session(site: Site, name: str, *requests: NewRequest, project: str = "/work/shop", said: str = "") -> str:
    """A session of an agent that waits for answers to these requests."""
    ledger = (await site.application.records())._ledger
    session = f"s_{name:0>12}"
    words = (NewEvent(type="agent.said", body={"text": said}, actor="agent"),) if said else ()
    asked = tuple(NewEvent(type="run.waiting", body={"request": request.id}) for request in requests)
    record: Mapping[str, Any] = {"blueprint": "writer", "project": project}
    create = NewSession(kind="agent", name=name)
    await ledger.commit(
        Change(session=session, create=create, events=(*words, *asked), record=record, status="waiting", requests=requests)
    )
    return session


async def get(site: Site, path: str) -> httpx2.Response:
    async with site.visit() as client:
        return await client.get(path)


@proves("web.inbox-filters")
async def test_the_inbox_is_filtered_by_kind_project_and_session(site: Site) -> None:
    permission, question = ask("a command"), ask("q", "question", "Which colour?")
    await open_session(site, "one", permission, question)
    await open_session(site, "two", ask("another thing"), project="/work/other")

    def shown(page: httpx2.Response) -> set[str]:
        return {text for text in ("a command", "Which colour?", "another thing") if text in page.text}

    assert shown(await get(site, "/inbox")) == {"a command", "Which colour?", "another thing"}
    assert shown(await get(site, "/inbox?kind=permission")) == {"a command", "another thing"}
    assert shown(await get(site, "/inbox?kind=permission&project=shop")) == {"a command"}
    assert shown(await get(site, "/inbox?project=/work/other")) == {"another thing"}
    assert shown(await get(site, "/inbox?session=one")) == {"a command", "Which colour?"}
    assert shown(await get(site, "/inbox?kind=checkpoint")) == set()
    assert (await get(site, "/inbox?session=nobody")).status_code == 404


@proves("web.inbox-filters")
async def test_a_rare_kind_behind_many_questions_is_found(site: Site) -> None:
    await open_session(site, "many", *(ask(f"thing {number}") for number in range(120)), ask("q", "question", "Which colour?"))

    page = (await get(site, "/inbox?kind=question")).text

    assert "Which colour?" in page
    assert "thing 1" not in page


@proves("web.inbox-context")
async def test_a_permission_shows_the_command_its_directory_and_what_the_agent_said(site: Site) -> None:
    command = {"command": "rm -rf build && make", "cwd": "/work/shop/api"}
    await open_session(site, "one", ask("x", tool="Bash", input=command), said="I will build it again.")

    page = (await get(site, "/inbox")).text

    assert "rm -rf build &amp;&amp; make" in page
    assert "/work/shop/api" in page
    assert "I will build it again." in page


@proves("web.inbox-context")
async def test_a_permission_to_change_a_file_shows_the_exact_diff(site: Site) -> None:
    await open_session(site, "one", ask("x", question="Edit?\nall of it", tool="Edit", input=EDIT))

    page = (await get(site, "/inbox")).text

    assert '<span class="removed">-second' in page
    assert '<span class="added">+changed' in page
    assert "--- /src/app.py" in page


@proves("web.inbox-context")
async def test_an_approval_shows_all_lines_that_it_covers(site: Site) -> None:
    lines = "May the agent run this command with bash?\nIt has 2 lines.\n1: cd /\n2: ls <b>"
    await open_session(site, "one", ask("x", "tool_approval", lines))

    page = (await get(site, "/inbox")).text

    assert "1: cd /\n2: ls &lt;b&gt;" in page


@proves("web.inbox-context")
async def test_a_custom_tool_shows_the_arguments_of_its_call(site: Site) -> None:
    request = ask("x", "custom_tool", "The agent asks for the result of weigh.", tool="weigh", tool_use_id="t1")
    session = await open_session(site, "one", request)
    call = NewEvent(type="agent.custom_tool_use", body={"id": "t1", "name": "weigh", "input": {"parcel": "A-17"}})
    await (await site.application.records())._ledger.commit(Change(session=session, events=(call,)))

    assert "A-17" in (await get(site, "/inbox")).text


@proves("web.several")
@pytest.mark.parametrize(("decision", "option"), [("allow", "allow"), ("deny", "refuse")])
async def test_marked_permissions_are_answered_together_and_the_others_stay(site: Site, decision: str, option: str) -> None:
    requests = [ask(str(number)) for number in range(3)]
    await open_session(site, "one", *requests)
    async with site.visit() as client:
        picks = {f"pick-{request.id}": "on" for request in requests[:2]}
        fields = {"form_token": await read_form_token(client), "decision": decision, "text": "Go.", **picks}
        page = await client.post("/inbox", data=fields)

    inbox = await site.application.inbox()
    found = [await inbox.find(request.id) for request in requests]
    assert page.status_code == 200
    assert [request.state for request in found] == ["answered", "answered", "open"]
    assert [request.answer for request in found[:2]] == [{"option": option, "text": "Go."}] * 2


@proves("web.several")
async def test_who_is_too_late_for_a_marked_permission_still_answers_the_others(site: Site) -> None:
    requests = [ask(str(number)) for number in range(2)]
    await open_session(site, "one", *requests)
    inbox = await site.application.inbox()
    await inbox.answer(requests[0].id, "refuse", by="person:other", channel="cli")
    async with site.visit() as client:
        picks = {f"pick-{request.id}": "on" for request in requests}
        page = await client.post("/inbox", data={"form_token": await read_form_token(client), "decision": "allow", **picks})

    assert "person:other over cli" in page.text
    assert (await inbox.find(requests[0].id)).answer["option"] == "refuse"
    assert (await inbox.find(requests[1].id)).answer["option"] == "allow"


@proves("web.several")
async def test_questions_are_not_answered_together(site: Site) -> None:
    question = ask("q", "question", "Which colour?")
    await open_session(site, "one", question)
    async with site.visit() as client:
        token = await read_form_token(client)
        page = await client.post("/inbox", data={"form_token": token, "decision": "allow", f"pick-{question.id}": "on"})
        nothing = await client.post("/inbox", data={"form_token": token, "decision": "allow"})

    assert "cannot be answered together" in page.text
    assert (await (await site.application.inbox()).find(question.id)).state == "open"
    assert nothing.status_code == 400


@proves("web.several", "web.keyboard")
async def test_permissions_are_marked_and_denied_with_the_keyboard(site: Site, tab: Page) -> None:
    requests = [ask(str(number)) for number in range(2)]
    await open_session(site, "one", *requests)
    await tab.goto(f"{site.url}/inbox")
    for key in ("j", "x", "j", "x"):
        await tab.keyboard.press(key)
    await tab.get_by_role("button", name="Deny", exact=True).press("Enter")

    await expect(tab.get_by_role("heading", level=1)).to_have_text("Denied")
    await expect(tab.locator(".answer")).to_have_count(2)


@proves("web.notifications")
async def test_a_new_question_notifies_only_who_wants_it_and_shows_no_text_of_an_agent(site: Site, browser: Browser) -> None:
    context = await browser.new_context(permissions=["notifications"])
    page = await context.new_page()
    await page.add_init_script(
        """window.shown = [];
        window.Notification = class { static permission = "granted"; static async requestPermission() { return "granted"; }
          constructor(title, options) { window.shown.push(options.body); } };
        Object.defineProperty(document, "hidden", { get: () => true });"""
    )
    await page.goto(site.link("/inbox"))
    await open_session(site, "one", ask("first"))
    await expect(page.locator("[data-question]")).to_have_count(1)
    assert await page.evaluate("window.shown") == []
    await page.get_by_role("button", name="Notify me on this desktop").click()
    await open_session(site, "two", ask("second"))
    await expect(page.locator("[data-question]")).to_have_count(2)

    assert await page.evaluate("window.shown") == ["2 questions wait for you."]
    assert (await page.title()).startswith("(2)")
    assert str(await page.locator("link[rel=icon]").get_attribute("href")).startswith("data:image/svg+xml")


@proves("web.bounded")
async def test_ten_thousand_open_questions_are_shown_in_pages(site: Site) -> None:
    for part in range(10):
        requests = [ask(f"{part}-{number}") for number in range(1000)]
        await open_session(site, f"many{part}", *requests)
    async with site.visit() as client:
        first = await client.get("/inbox")
        (following,) = [part.split('"')[0] for part in first.text.split('class="more" href="/inbox?')[1:]]
        second = await client.get(f"/inbox?{following}".replace("&amp;", "&"))

    assert first.text.count("data-question") == second.text.count("data-question") == 50
    assert "0-0?" in first.text
    assert "0-0?" not in second.text
    assert len(first.content) < 400_000


@proves("web.answer", "web.forms")
async def test_a_text_that_is_too_long_answers_nothing(site: Site) -> None:
    question = ask("q", "question", "Which colour?")
    await open_session(site, "one", question)
    async with site.visit() as client:
        page = await client.post(
            f"/inbox/{question.id}", data={"form_token": await read_form_token(client), "text": "x" * 20_001}
        )

    assert (page.status_code, "20001 characters" in page.text) == (400, True)
    assert (await (await site.application.inbox()).find(question.id)).state == "open"


@proves("web.answer")
async def test_the_option_of_another_question_and_a_text_to_options_answer_nothing(site: Site) -> None:
    permission, question = ask("p"), ask("q", "question", "Which colour?")
    await open_session(site, "one", permission, question)
    async with site.visit() as client:
        token = await read_form_token(client)
        foreign = await client.post(f"/inbox/{question.id}", data={"form_token": token, "option": "allow"})
        text_only = await client.post(f"/inbox/{permission.id}", data={"form_token": token, "text": "allow"})

    inbox = await site.application.inbox()
    assert (foreign.status_code, text_only.status_code) == (400, 400)
    assert [(await inbox.find(request.id)).state for request in (permission, question)] == ["open", "open"]


@proves("web.bounded")
@pytest.mark.parametrize("name", ["kind", "project", "session", "after", "state"])
async def test_an_overlong_or_strange_filter_is_an_error_or_finds_nothing(site: Site, name: str) -> None:
    await open_session(site, "one", ask("p"))
    for value in ("x" * 5_000, "../../etc/passwd", "\x00", "%"):
        async with site.visit() as client:
            page = await client.get("/inbox", params={name: value})

        assert page.status_code in (200, 400, 404), (name, value[:20])
        assert "This page failed" not in page.text


@proves("web.headers")
async def test_another_page_cannot_show_a_question_in_a_frame(site: Site, browser: Browser) -> None:
    request = ask("p")
    await open_session(site, "one", request)
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(site.link())
    await page.goto("data:text/html,<iframe></iframe>")
    await page.evaluate("address => { document.querySelector('iframe').src = address; }", f"{site.url}/inbox/{request.id}")
    await page.wait_for_timeout(500)  # a page that is refused has no event to wait for
    shown = [await frame.content() for frame in page.frames if frame is not page.main_frame]

    assert all("Allow it once" not in content for content in shown)


@proves("web.inbox-context")
async def test_a_question_says_what_each_option_does_and_what_happens_without_an_answer(site: Site) -> None:
    expiring = open_request("permission", "x", "May I?", YES_OR_NO, {}, expires_at=now_ms() + 3_600_000)
    tones = ({"id": "warm", "label": "A warm note", "effect": {"setVariable": {"tone": "warm"}, "transitionTo": "write"}},)
    timed = {
        "workflow": "hello",
        "activity": "greet",
        "checkpoint": "tone",
        "default_option": "warm",
        "auto_advance_ms": 60_000,
    }
    await open_session(site, "one", expiring, open_request("checkpoint", "c", "Which tone?", tones, timed))

    page = (await get(site, "/inbox")).text

    assert "the agent does exactly what is shown" in page
    assert "the agent does not do it" in page
    assert "sets tone to &#34;warm&#34;" in page
    assert "goes on with write" in page
    assert re.search(r"Expires <time[^>]*>in 59 minutes · [-0-9]+ [0-9:]+ UTC</time>: after that it cannot be answered", page)
    assert re.search(r"Deadline <time[^>]*>in 59 seconds [^<]+</time>: after that, the agent may also go on by itself", page)


@proves("web.inbox-folded")
async def test_many_questions_are_folded_to_a_line_and_no_key_answers_what_is_folded(site: Site, tab: Page) -> None:
    requests = [ask(str(number), tool="Bash", input={"command": f"make {number}"}) for number in range(11)]
    await open_session(site, "one", *requests)
    await tab.goto(f"{site.url}/inbox")
    # The scripts run once everything is loaded.
    await tab.wait_for_load_state("load")
    second = tab.locator("[data-question]").nth(1)

    await expect(tab.locator("[data-fold]")).to_have_count(10)
    await expect(second.locator("summary")).to_contain_text("May I do 1? · make 1")
    await expect(second.get_by_role("button", name="Allow it once")).to_be_hidden()
    # What was not read is not marked either.
    await expect(second.get_by_role("checkbox")).to_be_hidden()
    await tab.keyboard.press("j")
    await tab.keyboard.press("j")
    await expect(second.get_by_role("button", name="Allow it once")).to_be_visible()
    await second.locator("summary").click()
    await second.focus()
    await tab.keyboard.press("1")
    inbox = await site.application.inbox()
    assert [(await inbox.find(request.id)).state for request in requests] == ["open"] * 11
    await second.locator("summary").click()
    await second.focus()
    await tab.keyboard.press("1")

    await expect(tab.locator(".answer")).to_contain_text("Answered with Allow it once")
    assert (await inbox.find(requests[1].id)).state == "answered"


@proves("web.several", "web.keyboard")
async def test_marked_permissions_are_allowed_with_one_key(site: Site, tab: Page) -> None:
    requests = [ask(str(number)) for number in range(3)]
    await open_session(site, "one", *requests)
    await tab.goto(f"{site.url}/inbox")
    await tab.wait_for_load_state("load")
    for key in ("D", "j", "x", "j", "x", "A"):
        await tab.keyboard.press(key)

    await expect(tab.get_by_role("heading", level=1)).to_have_text("Allowed")
    inbox = await site.application.inbox()
    assert [(await inbox.find(request.id)).state for request in requests] == ["answered", "answered", "open"]


@proves("web.slower-is-told")
async def test_who_was_writing_is_told_in_place_who_was_faster_and_keeps_the_text(site: Site, tab: Page) -> None:
    request, other = ask("x", "question", "Which port?"), ask("y", "question", "Which host?")
    await open_session(site, "one", request, other)
    await tab.goto(f"{site.url}/inbox")
    await tab.wait_for_load_state("load")
    await tab.locator(f"#{request.id} textarea").fill("8080, I think")
    inbox = await site.application.inbox()
    await inbox.answer(other.id, text="localhost", by="person:other", channel="cli")
    await expect(tab.locator("[data-question]")).to_have_count(1)
    # Who had it not in hand is not disturbed.
    await expect(tab.locator("[data-note]")).to_have_count(0)
    await inbox.answer(request.id, text="9090", by="person:other", channel="cli")

    note = tab.locator("[data-note]")
    await expect(note).to_contain_text("Somebody was faster. Which port? Answered by person:other over cli")
    await expect(note).to_contain_text("What you had written: 8080, I think")
    await note.get_by_role("button", name="Close").click()
    await expect(note).to_have_count(0)
