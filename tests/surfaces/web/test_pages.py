"""What the pages show and do, as a browser without scripts sees them."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.app.records import Records
from fidelio.app.watching import Watcher
from fidelio.errors import LedgerBusy
from fidelio.inbox import open_request
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.surfaces.timeline import describe_event
from fidelio.surfaces.web.application import stream_changes
from fidelio.surfaces.web.rendering import STATIC_FILES, Renderer, describe_distance, show_commands, show_foreign
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent, read_form_token

SCRIPT = '<script>alert(1)</script><img src=x onerror="alert(1)"><a href="javascript:alert(1)" hx-get="/sign-out">x</a>'


async def put_session(site: Site, record: Mapping[str, Any], *events: NewEvent, **change: Any) -> str:
    """A session whose every text is the given one."""
    records = await site.application.records()
    ledger = records._ledger
    session = "s_000000000001"
    create = NewSession(kind="agent", name="hostile")
    await ledger.commit(Change(session=session, create=create, events=events, record=record, status="running", **change))
    return session


@proves("web.answer")
async def test_an_answer_from_the_page_lets_the_agent_go_on(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        shown = await client.get("/inbox")
        fields = {"form_token": await read_form_token(client), "option": "warm", "text": "Be kind."}
        answered = await client.post(f"/inbox/{agent.request}", data=fields)
    await agent.agent.finish()

    request = await (await site.application.inbox()).find(agent.request)
    assert "how should it sound?" in shown.text
    assert "Answered with <strong>A warm note</strong>" in " ".join(answered.text.split())
    assert (request.state, request.channel, request.assurance) == ("answered", "web", "local")
    assert request.answer["text"] == "Be kind."


@proves("web.answer")
async def test_who_is_slower_is_shown_who_answered(site: Site, agent: WaitingAgent) -> None:
    await (await site.application.inbox()).answer(agent.request, "none", by="person:other", channel="cli")
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "option": "warm"}
        answered = await client.post(f"/inbox/{agent.request}", data=fields)

    assert answered.status_code == 409
    assert "Somebody was faster" in answered.text
    assert "person:other over cli" in answered.text


@proves("web.answer")
@pytest.mark.parametrize(("request_id", "option", "status"), [("r_nothing", "warm", 404), ("", "purple", 400)])
async def test_an_answer_to_nothing_or_with_an_unknown_option_is_an_error(
    site: Site, agent: WaitingAgent, request_id: str, option: str, status: int
) -> None:
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "option": option}
        answered = await client.post(f"/inbox/{request_id or agent.request}", data=fields)

    assert answered.status_code == status
    assert (await (await site.application.inbox()).find(agent.request)).state == "open"


@proves("web.session")
@pytest.mark.parametrize("path", ["/sessions?after=garbage", "/inbox?after=garbage", "/search?q=%00"])
async def test_a_position_or_query_that_cannot_be_read_is_an_error_of_the_address(site: Site, path: str) -> None:
    async with site.visit() as client:
        assert (await client.get(path)).status_code == 400


@proves("web.begin")
async def test_the_inbox_is_the_first_page_only_while_something_waits(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        before = await client.get("/")
        await (await site.application.inbox()).answer(agent.request, "none", by="person:me", channel="cli")
        after = await client.get("/")

    assert (before.url.path, after.url.path) == ("/inbox", "/sessions")


@proves("web.session")
async def test_a_session_shows_where_it_is_what_happened_and_what_it_proves(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        page = (await client.get(f"/sessions/{agent.session}")).text
        proof = (await client.get(f"/sessions/{agent.session}/proof")).text
        event = (await client.get(f"/sessions/{agent.session}/events/1")).text

    assert "stopped at choose-tone" in page
    assert 'class="node activity current"' in page
    assert "The record holds" in proof
    assert "session.started" in event


@proves("web.session")
async def test_a_broken_chain_is_shown_as_broken(site: Site, agent: WaitingAgent) -> None:
    records = await site.application.records()
    path = site.application.settings.ledger
    await records.check()
    connection = apsw.Connection(path)
    connection.execute("update events set actor = 'somebody else' where session = ? and seq = 2", (agent.session,))
    connection.close()
    async with site.visit() as client:
        proof = (await client.get(f"/sessions/{agent.session}/proof")).text

    assert "The chain is broken" in proof


@proves("web.foreign-text")
async def test_text_of_agents_is_only_ever_text(site: Site) -> None:
    options = ({"id": SCRIPT[:60], "label": SCRIPT, "description": SCRIPT, "effect": {"setVariable": {SCRIPT: SCRIPT}}},)
    request = open_request(
        "question", "q", SCRIPT, options, {"workflow": SCRIPT, "activity": SCRIPT, "checkpoint": SCRIPT, "iteration": 0}
    )
    record = {"blueprint": SCRIPT, "project": SCRIPT, "variables": {SCRIPT: SCRIPT}, "workflow": SCRIPT}
    events = (
        NewEvent(type="agent.said", body={"text": SCRIPT}, actor=SCRIPT[:50]),
        NewEvent(type="x.y", body={SCRIPT: SCRIPT}),
    )
    session = await put_session(site, record, *events, requests=(request,))
    paths = (
        "/inbox",
        "/inbox?state=all",
        f"/inbox/{request.id}",
        "/sessions",
        f"/sessions/{session}",
        f"/sessions/{session}/events/2",
    )
    async with site.visit() as client:
        pages = [await client.get(path) for path in (*paths, f"/sessions/{session}/proof", f"/{SCRIPT}", f"/sessions/{SCRIPT}")]

    assert [page.status_code for page in pages] == [200] * 7 + [404] * 2
    for page in pages:
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text
        assert 'href="javascript' not in page.text


@proves("web.foreign-text")
@given(st.text())
def test_foreign_text_brings_no_markup_and_nothing_invisible(text: str) -> None:
    shown = str(show_foreign(text))

    assert "<" not in shown
    assert '"' not in shown
    assert all(sign.isprintable() or sign == "\n" for sign in shown)


@proves("web.live")
async def test_a_page_that_was_away_is_told_at_once_that_something_changed(site: Site, agent: WaitingAgent) -> None:
    watcher = Watcher(site.application.records)

    async with asyncio.timeout(30):
        messages = stream_changes(watcher, 0)
        first = [await anext(messages), await anext(messages)]
        await messages.aclose()

    assert first[1].startswith(b"id: ")
    assert b"event: changed" in first[1]


@proves("web.live")
async def test_pages_go_on_after_the_ledger_was_busy(site: Site, agent: WaitingAgent) -> None:
    failures = iter([LedgerBusy("The ledger is busy.", remedy="Try again.")])

    async def open_records() -> Records:
        for failure in failures:
            raise failure
        return await site.application.records()

    async with asyncio.timeout(30):
        async for message in stream_changes(Watcher(open_records), 0):
            if b"changed" in message:
                break


@proves("web.live")
async def test_an_event_reaches_every_open_page(site: Site, agent: WaitingAgent) -> None:
    watcher = Watcher(site.application.records)
    position = await (await site.application.records()).wait(after=0, timeout=0)

    async def wait_for_change() -> bytes:
        async for message in stream_changes(watcher, position):
            if b"changed" in message:
                return message
        raise AssertionError("the stream ended")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        waiting = [group.create_task(wait_for_change()) for _ in range(20)]
        await (await site.application.inbox()).answer(agent.request, "none", by="person:me", channel="cli")

    assert {task.result() for task in waiting} == {waiting[0].result()}


@proves("web.times")
@pytest.mark.parametrize(
    ("moment", "words"), [(0, "10 days ago"), (863_999_000, "1 second ago"), (864_000_000, "now"), (864_090_000, "in 1 minute")]
)
def test_times_are_relative(moment: int, words: str) -> None:
    assert describe_distance(moment, 864_000_000) == words


@proves("web.session")
async def test_every_stored_event_can_be_described(site: Site, agent: WaitingAgent) -> None:
    await (await site.application.inbox()).answer(agent.request, "warm", by="person:me", channel="cli")
    await agent.agent.finish()
    events = await (await site.application.records()).events()

    assert len(events) > 20
    assert all(describe_event(event).what for event in events)


@proves("web.session")
async def test_a_session_has_the_same_name_on_each_of_its_pages(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        pages = [(await client.get(f"/sessions/{agent.session}{part}")).text for part in ("/proof", "/report", "/events/1")]
        inbox = (await client.get("/inbox")).text

    assert all(f'<p class="trail"><a href="/sessions/{agent.session}">hello</a></p>' in page for page in pages)
    assert f'from <a href="/sessions/{agent.session}">hello</a>' in inbox


@proves("web.foreign-text")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Run `fidelio work`.", "Run <code>fidelio work</code>."),
        ("`<b>` and `x`", "<code>&lt;b&gt;</code> and <code>x</code>"),
        ("a ` alone", "a ` alone"),
        ("", ""),
    ],
)
def test_commands_in_a_remedy_are_code_and_nothing_else(text: str, shown: str) -> None:
    assert show_commands(text) == shown


@proves("web.templates")
def test_a_missing_value_is_an_error_and_not_an_empty_place() -> None:
    with pytest.raises(Exception, match="is undefined"):
        Renderer().render("request.html", {})


@proves("web.vendored")
def test_the_files_of_other_projects_are_those_of_the_table() -> None:
    table = read_vendored("README.md").decode()
    listed = {name: (version, digest) for name, version, digest in _VENDORED.findall(table)}
    vendored = {name.removeprefix("vendor/") for name in STATIC_FILES if name.startswith("vendor/")}

    assert set(listed) == vendored
    for name, (version, digest) in listed.items():
        content = read_vendored(name)
        assert hashlib.sha256(content).hexdigest() == digest
        assert version
    assert f'version="{listed["htmx.min.js"][0]}"'.encode() in read_vendored("htmx.min.js")


_VENDORED = re.compile(r"^\| `([^`]+)` \| [^|]+ \| ([^| ]+) \| [^|]+ \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def read_vendored(name: str) -> bytes:
    return files("fidelio.surfaces.web").joinpath("static", "vendor", name).read_bytes()
