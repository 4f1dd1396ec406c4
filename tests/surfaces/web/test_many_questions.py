"""The page of a session with more questions and children than it shows."""

from __future__ import annotations

from fidelio.ledger.model import Change, NewSession
from tests.support import proves
from tests.surfaces.web.conftest import Site, read_form_token
from tests.surfaces.web.test_inbox import ask, get, open_session


@proves("web.bounded", "web.run-state")
async def test_a_session_with_many_questions_shows_the_oldest_that_wait_the_newest_answers_and_the_way_to_all(
    site: Site,
) -> None:
    requests = [ask(f"thing-{number:02}") for number in range(80)]
    session = await open_session(site, "one", *requests)
    inbox = await site.application.inbox()
    for request in requests[:65]:
        await inbox.answer(request.id, "allow", by="person:me", channel="cli")
    page = (await get(site, f"/sessions/{session}")).text
    waiting, _, rest = page.partition('<h2 id="answered">')
    answered = rest.partition("</section>")[0]

    assert [f"thing-{number:02}" in waiting.partition('<div class="columns')[0] for number in (64, 65, 74, 75)] == [
        False,
        True,
        True,
        False,
    ]
    assert f'href="/inbox?session={session}"' in waiting
    assert [f"thing-{number:02}" in answered for number in (54, 55, 64)] == [False, True, True]
    assert f'href="/inbox?state=all&amp;session={session}"' in answered


@proves("web.bounded")
async def test_a_session_with_many_children_says_that_there_are_more(site: Site) -> None:
    session = await open_session(site, "one")
    ledger = (await site.application.records())._ledger
    for number in range(51):
        child = NewSession(kind="agent", name=f"child-{number}", parent=session)
        await ledger.commit(Change(session=f"s_child{number:07}", create=child, record={}, status="idle"))

    assert "These are the newest 50." in (await get(site, f"/sessions/{session}")).text


@proves("web.several")
async def test_of_marked_questions_none_is_answered_if_one_does_not_exist(site: Site) -> None:
    request = ask("x")
    await open_session(site, "one", request)
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "decision": "allow"}
        page = await client.post("/inbox", data={**fields, f"pick-{request.id}": "on", "pick-r_nothing": "on"})

    assert page.status_code == 404
    assert (await (await site.application.inbox()).find(request.id)).state == "open"
