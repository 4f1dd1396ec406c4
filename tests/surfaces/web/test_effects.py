"""What looking and forged forms can change: nothing. Every route of the page is tried, also those that are added later."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw
import httpx2
import pytest
from starlette.routing import Route

from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from fidelio.surfaces.web.application import create_pages
from fidelio.surfaces.web.pages import PageServices
from tests.support import proves
from tests.surfaces.web.conftest import Site, WaitingAgent, read_form_token
from tests.surfaces.web.test_every_page import fill

# The tables of facts. Those of the search index are a projection, which a search brings up to date.
# Tables with their columns. Which version of a document is indexed is a projection, which another task brings up to date.
_FACTS = {
    **dict.fromkeys(("events", "sessions", "requests", "document_versions", "blobs", "jobs"), "*"),
    "documents": "space, path, version, newest, deleted",
}
# The parameters of every form, so that an address that took one for a form would do something.
FORM = {
    "option": "warm",
    "decision": "allow",
    "action": "end",
    "confirm": "yes",
    "text": "warm",
    "name": "x",
    "agent": "echo",
    "all": "yes",
    "webhook": "w",
    "url": "https://example.com",
}
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


def list_routes(site: Site, method: str) -> list[str]:
    """The paths of the page that take a method."""
    app = create_pages(PageServices(site.application, "/work"))
    routes = [route for route in app.routes if isinstance(route, Route)]
    assert len(routes) == len(app.routes)
    return [route.path for route in routes if method in (route.methods or {"GET"})]


def fill_path(path: str, values: Mapping[str, str]) -> str:
    return _PARAMETER.sub(lambda found: values[found[1]], path)


@pytest.fixture
async def values(site: Site, agent: WaitingAgent) -> dict[str, str]:
    """What stands for the parameters of a path: things that exist."""
    await fill(site)
    return {
        "session": agent.session,
        "request": agent.request,
        "workflow": "hello",
        "seq": "1",
        "name": "style.css",
        "rest": "nowhere",
    }


def read_facts(site: Site) -> dict[str, str]:
    """A digest of every table of facts, and of every other file of the home."""
    home = site.application.settings.home.path
    connection = apsw.Connection(site.application.settings.ledger, flags=apsw.SQLITE_OPEN_READONLY)
    known = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    assert known >= set(_FACTS)
    tables = {
        name: _digest(list(connection.execute(f"select {columns} from {name} order by 1, 2")))  # our own names
        for name, columns in _FACTS.items()
    }
    connection.close()
    files = {str(path.relative_to(home)): path for path in sorted(home.rglob("*")) if path.is_file()}
    return {**tables, **{name: _digest(path.read_bytes()) for name, path in files.items() if not name.startswith("ledger.db")}}


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


@proves("web.looking-changes-nothing")
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_no_address_changes_anything_by_being_opened(site: Site, values: dict[str, str], method: str) -> None:
    """Whatever an agent leads a browser to, by a link, an image, a redirect or a script of a page of its own."""
    paths = [path for path in list_routes(site, method) if path != "/live"]
    async with site.visit() as client:
        form = {**FORM, "form_token": await read_form_token(client), f"pick-{values['request']}": "on"}
        before = read_facts(site)
        for path in paths:
            address = fill_path(path, values)
            for query in ({}, form):
                answered = await client.request(method, address, params=query, follow_redirects=False)
                assert answered.status_code < 500, address
                assert "set-cookie" not in answered.headers, address
            assert read_facts(site) == before, f"{method} {address} has changed something"

    assert len(paths) > 15


@proves("web.looking-changes-nothing")
async def test_following_the_live_updates_changes_nothing(site: Site, values: dict[str, str]) -> None:
    async with site.visit() as client:
        before = read_facts(site)
        async with client.stream("GET", "/live?after=0") as stream:
            await anext(stream.aiter_bytes())

        assert read_facts(site) == before


FORGERIES: Mapping[str, dict[str, str]] = {
    "the origin null": {"Origin": "null"},
    "another origin": {"Origin": "http://evil.example"},
    "another port": {"Origin": "http://127.0.0.1:1"},
    "another scheme": {"Origin": "https://127.0.0.1:{port}"},
    "another scheme with this name": {"Origin": "https://evil.example/127.0.0.1"},
    "another site without an origin": {"Sec-Fetch-Site": "cross-site"},
    "another port without an origin": {"Sec-Fetch-Site": "same-site"},
    "a header that nobody knows": {"Sec-Fetch-Site": "nonsense"},
}


@proves("web.forms", "web.looking-changes-nothing")
async def test_no_form_of_another_origin_changes_anything(site: Site, values: dict[str, str]) -> None:
    paths = [path for path in list_routes(site, "POST") if path != "/sign-in"]
    async with site.visit() as client:
        form = {**FORM, "form_token": await read_form_token(client)}
        before = read_facts(site)
        for path in paths:
            for forgery, headers in FORGERIES.items():
                filled = {name: value.replace("{port}", site.url.rpartition(":")[2]) for name, value in headers.items()}
                answered = await client.post(fill_path(path, values), data=form, headers=filled)
                assert answered.status_code == 403, f"{path} from {forgery}"

        assert read_facts(site) == before
    assert len(paths) >= 7


@proves("web.forms", "web.looking-changes-nothing")
async def test_no_form_with_a_missing_or_foreign_token_changes_anything(site: Site, values: dict[str, str]) -> None:
    async with site.visit() as client, site.visit() as other:
        tokens = ("", "x", await read_form_token(other), client.cookies[f"fidelio-{httpx2.URL(site.url).port}"])
        before = read_facts(site)
        for path in (path for path in list_routes(site, "POST") if path != "/sign-in"):
            for form in (FORM, *({**FORM, "form_token": token} for token in tokens)):
                answered = await client.post(fill_path(path, values), data=form)
                assert answered.status_code == 403, path

        assert read_facts(site) == before


@proves("web.person", "web.looking-changes-nothing")
async def test_no_form_of_an_agent_changes_anything(site: Site, values: dict[str, str]) -> None:
    """It has the cookie and the token of the forms.

    Signing out is left: it takes something only from the browser itself. What a passkey is to sign may be asked by everybody.
    """
    agent = {AGENT_HEADER: "s_000000000000.1"}
    async with site.visit() as client:
        token = await read_form_token(client)
        before = read_facts(site)
        for path in (path for path in list_routes(site, "POST") if path not in ("/sign-in", "/sign-out")):
            for action in ("end", "stop", "delete", "message", "start", "add", "remove", "test"):
                form = {**FORM, "form_token": token, "action": action, f"pick-{values['request']}": "on"}
                answered = await client.post(fill_path(path, values), data=form, headers=agent)
                assert 400 <= answered.status_code < 500 or path.endswith("/challenge"), (path, action)

        assert read_facts(site) == before


@proves("web.forms")
async def test_a_name_that_leads_here_by_rebinding_is_not_served(site: Site, agent: WaitingAgent) -> None:
    """A page of that name is of the same origin as its requests, and may have been given a cookie of its own."""
    names = ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:7333", "")
    async with site.visit() as client:
        form = {**FORM, "form_token": await read_form_token(client)}
        for host in names:
            headers = {"Host": host, "Origin": f"http://{host}"}
            shown = await client.get("/inbox", headers=headers)
            answered = await client.post(f"/inbox/{agent.request}", data=form, headers=headers)
            assert (shown.status_code, answered.status_code) == (421, 421), host

    assert (await (await site.application.inbox()).find(agent.request)).state == "open"


@proves("web.answer", "web.forms")
async def test_an_answer_is_not_changed_by_sending_it_again(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        form: dict[str, Any] = {"form_token": await read_form_token(client), "option": "warm", "text": "Be kind."}
        first = await client.post(f"/inbox/{agent.request}", data=form)
        facts = read_facts(site)
        again = await client.post(f"/inbox/{agent.request}", data=form)
        other = await client.post(f"/inbox/{agent.request}", data={**form, "option": "none"})
        with_words = await client.post(f"/inbox/{agent.request}", data={**form, "text": "Be rude."})

    assert [each.status_code for each in (first, again, other, with_words)] == [200, 200, 409, 409]
    assert read_facts(site)["requests"] == facts["requests"]


@proves("web.looking-changes-nothing")
async def test_the_directory_of_the_server_is_left_as_it_is(site: Site, values: dict[str, str], tmp_path: Path) -> None:
    def list_project() -> list[Path]:
        return sorted(path for path in tmp_path.rglob("*") if not path.is_relative_to(tmp_path / "home"))

    before = list_project()
    async with site.visit() as client:
        for path in (path for path in list_routes(site, "GET") if path != "/live"):
            await client.get(fill_path(path, values))

    assert list_project() == before
