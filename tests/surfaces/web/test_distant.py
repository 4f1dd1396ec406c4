"""A browser whose program cannot be looked at: on a phone, on another machine, on a system that does not show processes."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from playwright.async_api import expect

from fidelio.app.application import Application
from fidelio.inbox import APPROVAL, demand_proof
from fidelio.processes.caller import PERSON, UNKNOWN_AGENT, UNSEEN, Caller
from fidelio.surfaces.http import plain
from fidelio.surfaces.web import pages
from tests.support import proves
from tests.surfaces.api.conftest import ask, open_session
from tests.surfaces.web.conftest import Site, read_form_token
from tests.surfaces.web.test_passkeys import Desk, at_localhost, confirm, desk, register

__all__ = ["desk"]
CANNOT_BE_LOOKED_AT = "cannot be looked at"


@pytest.fixture
def distant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "identify_peer", lambda *_: UNSEEN)


async def send(client: httpx2.AsyncClient, path: str, **fields: str) -> httpx2.Response:
    return await client.post(path, data={"form_token": await read_form_token(client), **fields})


async def read_state(application: Application, request: str) -> tuple[str, str, str]:
    found = await (await application.inbox()).find(request)
    return (found.state, found.channel, found.assurance)


@proves("web.distant-answers")
@pytest.mark.usefixtures("distant")
async def test_an_answer_of_a_program_that_cannot_be_looked_at_is_relayed(site: Site) -> None:
    question = ask("q", "question")
    await open_session(site.application, "one", question)

    async with site.visit() as client:
        shown = await client.get(f"/inbox/{question.id}")
        answered = await send(client, f"/inbox/{question.id}", text="Green.")

    assert (answered.status_code, CANNOT_BE_LOOKED_AT in shown.text) == (200, False)
    assert await read_state(site.application, question.id) == ("answered", "web", "relayed")


DEMANDS: dict[str, dict[str, Any]] = {
    "an approval": {"kind": APPROVAL},
    "a person": {"kind": "checkpoint", "answered_by": "person"},
    "a signature": {"kind": "checkpoint", **demand_proof({}, refusals=("refuse",))},
}


@proves("web.distant-answers")
@pytest.mark.usefixtures("distant")
@pytest.mark.parametrize("demand", DEMANDS)
@pytest.mark.parametrize("option", ["allow", "refuse"])
async def test_where_a_person_is_demanded_the_question_says_so_before_and_the_answer_is_refused(
    site: Site, demand: str, option: str
) -> None:
    request = ask("x", **DEMANDS[demand])
    await open_session(site.application, "one", request)

    async with site.visit() as client:
        shown = (await client.get(f"/inbox/{request.id}")).text
        refused = await send(client, f"/inbox/{request.id}", option=option)
        together = await send(client, "/inbox", decision="allow", **{f"pick-{request.id}": "on"})

    assert CANNOT_BE_LOOKED_AT in shown
    assert f"fidelio answer {request.id}" in shown
    assert refused.status_code == 403
    assert all(words in refused.text for words in (CANNOT_BE_LOOKED_AT, "passkey", f"answer {request.id}"))
    assert (together.status_code, await read_state(site.application, request.id)) == (200, ("open", "", ""))


@proves("web.distant-answers")
async def test_a_program_of_this_machine_answers_as_a_person_and_sees_no_note(site: Site) -> None:
    request = ask("x", APPROVAL)
    await open_session(site.application, "one", request)

    async with site.visit() as client:
        shown = [(await client.get(path)).text for path in (f"/inbox/{request.id}", "/agents", "/webhooks", "/workflows/hello")]
        await send(client, f"/inbox/{request.id}", option="allow")

    assert not any(CANNOT_BE_LOOKED_AT in page for page in shown)
    assert await read_state(site.application, request.id) == ("answered", "web", "local")


@proves("web.distant-answers", "web.proven")
@pytest.mark.parametrize("peer", [UNSEEN, UNKNOWN_AGENT])
async def test_a_signature_counts_whatever_program_brings_it(
    site: Site, desk: Desk, peer: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = await desk()
    await confirm(site, await register(site, page))
    request = ask("x", APPROVAL)
    await open_session(site.application, "one", request)
    monkeypatch.setattr(plain, "identify_peer", lambda *_: peer)
    monkeypatch.setattr(plain, "PEER_SECONDS", 0.0)
    monkeypatch.setattr(pages, "SHOWN_SECONDS", 0.0)

    await page.goto(f"{at_localhost(site)}/inbox/{request.id}")
    await expect(page.locator("[data-question] .warning").first).to_contain_text(CANNOT_BE_LOOKED_AT)
    await page.locator("[data-option=allow]").click()
    await page.wait_for_url("**/inbox?answered=*")

    assert await read_state(site.application, request.id) == ("answered", "web", "proven")


@proves("web.distant-answers")
async def test_a_signature_that_is_none_opens_nothing_to_an_agent(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    question = ask("q", "question")
    await open_session(site.application, "one", question)
    monkeypatch.setattr(plain, "identify_peer", lambda *_: UNKNOWN_AGENT)

    async with site.visit() as client:
        refused = await send(client, f"/inbox/{question.id}", text="Green.", signature="x", key="x", nonce="x")

    assert refused.status_code == 400
    assert (await read_state(site.application, question.id))[0] == "open"


ACTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("/agents", {"agent": "nobody", "message": "Begin.", "kind": "blueprint"}),
    ("/workflows/hello", {"tone": "x" * 100_000}),
    ("/sessions/nobody/act", {"act": "stop"}),
    ("/sessions/nobody/act", {"act": "delete"}),
)


@proves("web.distant-acts")
@pytest.mark.parametrize(("path", "fields"), ACTS)
async def test_who_is_elsewhere_and_has_signed_in_does_the_rest_of_what_a_person_does(
    site: Site, path: str, fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(peer: Caller) -> tuple[int, bool]:
        monkeypatch.setattr(plain, "identify_peer", lambda *_: peer)
        async with site.visit() as client:
            answer = await send(client, path, **fields)
        return answer.status_code, "An agent sent this request" in answer.text

    # Each is refused for a reason of its own, and so was not refused because of the browser.
    assert await tell(UNSEEN) == await tell(PERSON)
    assert (await tell(PERSON))[1] is False
    assert (await tell(UNKNOWN_AGENT))[1] is True
