"""Proven answers: signed in a real browser with its virtual authenticator, checked when given and again from the record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from playwright.async_api import Browser, BrowserContext, Page, expect

from fidelio.app.application import Application
from fidelio.app.passkeys import Signature, compute_challenge, find_signature_problem
from fidelio.app.person_keys import PersonKeys, check_signature, load_keys
from fidelio.errors import PersonKeyProblem, PersonNeeded
from fidelio.ledger.model import Event, NewEvent, Request
from fidelio.settings import load_settings
from fidelio.surfaces.http.demo_agent import AGENT
from fidelio.surfaces.web.access import make_link
from tests.support import proves
from tests.surfaces.web.conftest import TOKEN, Site, read_form_token

PROVEN_WORKFLOW = """
id: release
version: 1.0.0
title: Release
initialActivity: decide
activities:
  - id: decide
    version: 1.0.0
    name: Decide
    checkpoints:
      - id: ship
        name: Ship it?
        message: Shall version 2 be released?
        answered_by: proven
        options: [{id: 'yes', label: Release it}, {id: 'no', label: Keep it back}]
"""


@pytest.fixture
async def application(tmp_path: Path) -> AsyncIterator[Application]:
    """With a workflow whose question takes only a signed answer."""
    directory = tmp_path / "workflows" / "release"
    directory.mkdir(parents=True)
    (directory / "workflow.yaml").write_text(PROVEN_WORKFLOW)
    settings = load_settings(str(tmp_path / "home"), environ={})
    settings.home.ensure()
    async with Application(settings, [str(tmp_path / "workflows")]) as opened:
        yield opened


@pytest.fixture
async def question(site: Site) -> Request:
    """The open request of the workflow."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{site.url}/mcp", http_client=http)) as agent,
    ):
        token = ""
        for tool, arguments in (
            ("start_session", {"workflow_id": "release", "agent_id": AGENT}),
            ("next_activity", {"activity_id": "decide"}),
            ("yield_checkpoint", {"checkpoint_id": "ship"}),
        ):
            done = await agent.call_tool(tool, {**arguments, **({"session_token": token} if token else {})})
            token = (done.meta or {}).get("session_token", token)
    (request,) = (await (await site.application.inbox()).list_requests()).items
    return request


Desk = Callable[[], Awaitable[Page]]


@pytest.fixture
async def desk(browser: Browser, site: Site) -> AsyncIterator[Desk]:
    """Opens a browser of its own, with an authenticator of its own, signed in under a name of a host: passkeys need one."""
    contexts: list[BrowserContext] = []

    async def open_browser() -> Page:
        contexts.append(await browser.new_context())
        page = await contexts[-1].new_page()
        devtools = await contexts[-1].new_cdp_session(page)
        await devtools.send("WebAuthn.enable")
        options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
        verified = {**options, "isUserVerified": True, "automaticPresenceSimulation": True}
        await devtools.send("WebAuthn.addVirtualAuthenticator", {"options": verified})
        await page.goto(make_link(site.application.keys(), at_localhost(site)))
        return page

    yield open_browser
    for context in contexts:
        await context.close()


def at_localhost(site: Site) -> str:
    return site.url.replace("127.0.0.1", "localhost")


async def register(site: Site, page: Page) -> str:
    """Register the passkey of a browser, up to the code that confirms it."""
    await page.goto(f"{at_localhost(site)}/passkeys")
    await page.get_by_label("Its name").fill("laptop")
    await page.get_by_role("button", name="Register").click()
    return (await page.locator(".command").inner_text()).split()[-1]


async def confirm(site: Site, code: str) -> None:
    keys = PersonKeys((await site.application.runtime()).context)
    await keys.confirm_by_code(code, by="person:me")


async def answered_event(site: Site, question: Request) -> Event:
    records = await site.application.records()
    (event,) = await records.events(question.session, types=("request.answered",))
    return event


@proves("web.proven", "inbox.proven")
async def test_a_signed_answer_is_proven_in_the_record_and_verifies_offline(site: Site, question: Request, desk: Desk) -> None:
    page = await desk()
    await confirm(site, await register(site, page))
    await page.goto(f"{at_localhost(site)}/inbox/{question.id}")
    await page.get_by_label("A comment").fill("After the tests.")
    await page.get_by_role("button", name="Release it").click()
    await expect(page.get_by_role("status")).to_contain_text("proven")

    records = await site.application.records()
    event = await answered_event(site, question)
    verdict = await records.verify(question.session)
    assert (event.body["option"], event.body["assurance"], event.body["text"]) == ("yes", "proven", "After the tests.")
    assert event.body["proof"]["fingerprint"]
    assert verdict.problems == ()


@proves("web.proven")
async def test_the_longest_comment_is_signed(site: Site, question: Request, desk: Desk) -> None:
    page, comment = await desk(), "語" * 20_000
    await confirm(site, await register(site, page))
    await page.goto(f"{at_localhost(site)}/inbox/{question.id}")
    await page.get_by_label("A comment").fill(comment)
    await page.get_by_role("button", name="Release it").click()
    await expect(page.get_by_role("status")).to_contain_text("proven")

    assert (await answered_event(site, question)).body["text"] == comment


@proves("web.proven")
async def test_a_comment_of_two_lines_is_signed(site: Site, question: Request, desk: Desk) -> None:
    """A browser sends the ends of lines in forms as CR LF, and a script reads them as LF."""
    page = await desk()
    await confirm(site, await register(site, page))
    await page.goto(f"{at_localhost(site)}/inbox/{question.id}")
    await page.get_by_label("A comment").fill("After the tests.\nAnd before noon.")
    await page.get_by_role("button", name="Release it").click()
    await expect(page.get_by_role("status")).to_contain_text("proven")

    assert (await answered_event(site, question)).body["text"] == "After the tests.\nAnd before noon."


@proves("web.proven")
async def test_a_challenge_is_only_for_forms_of_this_browser(site: Site, question: Request) -> None:
    async with site.visit() as client:
        asked = await client.get(f"/inbox/{question.id}/challenge")
        forged = await client.post(f"/inbox/{question.id}/challenge", data={"option": "yes"})
        elsewhere = {"form_token": await read_form_token(client), "option": "yes"}
        other = await client.post(f"/inbox/{question.id}/challenge", data=elsewhere, headers={"Origin": "http://localhost:9"})

    assert (asked.status_code, forged.status_code, other.status_code) == (404, 403, 403)


@proves("web.proven", "inbox.proven")
async def test_without_a_signature_no_channel_answers(site: Site, question: Request) -> None:
    inbox = await site.application.inbox()
    for channel in ("cli", "web", "elicited", "api", "relayed"):
        with pytest.raises(PersonNeeded):
            await inbox.answer(question.id, "yes", by="person:me", channel=channel)
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "option": "yes"}
        answered = await client.post(f"/inbox/{question.id}", data=fields)

    assert answered.status_code == 403
    assert (await inbox.find(question.id)).state == "open"


@proves("web.keys")
async def test_a_key_that_nobody_confirmed_answers_nothing(site: Site, question: Request, desk: Desk) -> None:
    page = await desk()
    await register(site, page)
    await page.goto(f"{at_localhost(site)}/inbox/{question.id}")
    await page.get_by_role("button", name="Release it").click()

    await expect(page.locator("[data-problem]")).to_contain_text("No passkey is registered")
    assert (await (await site.application.inbox()).find(question.id)).state == "open"


@proves("web.keys")
async def test_another_key_is_confirmed_with_a_registered_one(site: Site, desk: Desk) -> None:
    page = await desk()
    await confirm(site, await register(site, page))
    await register(site, page)
    await page.get_by_role("button", name="Sign with a registered key").click()
    await expect(page.locator(".rows")).to_contain_text("confirmed with the key")

    keys = await PersonKeys((await site.application.runtime()).context).list()
    assert [key.state for key in keys] == ["registered", "registered"]
    assert keys[1].confirmed_with.endswith(keys[0].fingerprint)


@proves("web.keys")
async def test_a_wrong_or_old_code_confirms_nothing(site: Site, desk: Desk) -> None:
    code = await register(site, await desk())
    keys = PersonKeys((await site.application.runtime()).context)

    for wrong in ("", "00000000", code[:-1], code + code):
        with pytest.raises(PersonKeyProblem):
            await keys.confirm_by_code(wrong, by="person:me")
    await keys.confirm_by_code(code, by="person:me")
    with pytest.raises(PersonKeyProblem):
        await keys.confirm_by_code(code, by="person:me")


@proves("inbox.proven")
async def test_a_signature_proves_nothing_but_its_own_answer(site: Site, question: Request, desk: Desk) -> None:
    page = await desk()
    await confirm(site, await register(site, page))
    await page.goto(f"{at_localhost(site)}/inbox/{question.id}")
    await page.get_by_role("button", name="Release it").click()
    await expect(page.get_by_role("status")).to_contain_text("proven")
    body = (await answered_event(site, question)).body
    ledger = (await site.application.runtime()).context.ledger
    proof: Mapping[str, Any] = {name: body["proof"][name] for name in Signature.__struct_fields__}
    key = (await load_keys(ledger)).keys[proof["key"]]
    other = msgspec.structs.replace(question, id="r_other")

    assert await check_signature(ledger, question, "yes", "", proof)
    forgeries: list[tuple[Request, str, str, Mapping[str, Any]]] = [
        (question, "no", "", proof),
        (question, "yes", "and more", proof),
        (other, "yes", "", proof),
        (msgspec.structs.replace(question, question="Something harmless?"), "yes", "", proof),
        (msgspec.structs.replace(question, session="s_other"), "yes", "", proof),
        (question, "yes", "", {**proof, "nonce": proof["nonce"] + "x"}),
        (question, "yes", "", {**proof, "signature": proof["signature"][:-4] + "AAAA"}),
        (question, "yes", "", {**proof, "key": "unknown"}),
        (question, "yes", "", {**proof, "client_data": ""}),
        (question, "yes", "", {**proof, "authenticator_data": "A" * 9000}),
        (question, "yes", "", {}),
    ]
    for forged in forgeries:
        with pytest.raises(PersonKeyProblem):
            await check_signature(ledger, *forged)
    challenge = compute_challenge(question, "yes", "", proof["nonce"])
    elsewhere = msgspec.structs.replace(key, origin="", host="evil.example")
    assert find_signature_problem(elsewhere, msgspec.convert(proof, Signature), challenge)


@proves("inbox.proven")
async def test_an_answer_that_only_claims_to_be_proven_does_not_verify(site: Site, question: Request) -> None:
    records = await site.application.records()
    ledger = (await site.application.runtime()).context.ledger
    claimed = {"request": question.id, "option": "yes", "by": "person:me", "channel": "web", "assurance": "proven", "key": "x"}
    await ledger.append(question.session, NewEvent(type="request.answered", body={**claimed, "effect": {}, "after_ms": 1}))

    problems = (await records.verify(question.session)).problems
    assert any("no signature with a known key" in problem for problem in problems)


@proves("web.keys")
async def test_a_removed_key_answers_no_more_and_what_it_signed_stays_proven(site: Site, question: Request, desk: Desk) -> None:
    page = await desk()
    await confirm(site, await register(site, page))
    await page.goto(f"{at_localhost(site)}/inbox/{question.id}")
    await page.get_by_role("button", name="Keep it back").click()
    await expect(page.get_by_role("status")).to_contain_text("proven")
    keys = PersonKeys((await site.application.runtime()).context)
    (key,) = await keys.list()
    await keys.remove(key.fingerprint[:6], by="person:me")
    proof = {name: (await answered_event(site, question)).body["proof"][name] for name in Signature.__struct_fields__}

    with pytest.raises(PersonKeyProblem):
        await check_signature((await site.application.runtime()).context.ledger, question, "no", "", proof)
    assert (await (await site.application.records()).verify(question.session)).problems == ()
    assert await keys.list() == []
