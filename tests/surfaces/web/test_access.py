"""Who gets to the page, and which changes are taken: links, cookies, forms, origins and hostile requests."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from playwright.async_api import Browser, expect

from fidelio.app.asking import note_address, question_url
from fidelio.home import Home
from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from fidelio.surfaces.web.access import (
    LINK_MS,
    SIGN_IN_PATH,
    VISIT_MS,
    SignIn,
    choose_target,
    is_own_origin,
    make_link,
)
from fidelio.tokens.keyring import FixedKeys
from tests.support import proves
from tests.support.ledgers import MovingClock
from tests.surfaces.conftest import Fidelio
from tests.surfaces.web.conftest import TOKEN, Site, WaitingAgent, read_form_token

KEYS = FixedKeys(b"k" * 32)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


SignInAt = Callable[..., SignIn]


@pytest.fixture
def sign_in(tmp_path: Path) -> SignInAt:
    """Makes the sign-in of a server. All are of one home."""

    def make(clock: MovingClock, keys: FixedKeys = KEYS) -> SignIn:
        return SignIn(keys, tmp_path / "ended-visits", tmp_path / "used-links", clock)

    return make


def key_of(link: str) -> str:
    return link.partition("key=")[2]


@proves("web.links")
def test_a_link_signs_in_once(sign_in: SignInAt) -> None:
    clock = MovingClock()
    access, link = sign_in(clock), key_of(make_link(KEYS, "http://host", clock=clock))

    cookie = access.redeem(link)

    assert cookie is not None
    assert access.read_cookie(cookie) is not None
    assert access.redeem(link) is None


@proves("web.links")
def test_of_the_servers_of_a_home_that_try_a_link_at_once_one_signs_in(sign_in: SignInAt) -> None:
    clock = MovingClock()
    servers = [sign_in(clock) for _ in range(8)]
    link = key_of(make_link(KEYS, "http://host", clock=clock))

    with ThreadPoolExecutor(8) as threads:
        cookies = list(threads.map(lambda server: server.redeem(link), servers))

    assert sum(cookie is not None for cookie in cookies) == 1
    assert sign_in(clock).redeem(link) is None


@proves("web.links")
def test_used_links_are_noted_for_their_owner_alone_and_no_longer_than_they_would_work(
    sign_in: SignInAt, tmp_path: Path
) -> None:
    clock = MovingClock()
    access = sign_in(clock)
    for _ in range(3):
        access.redeem(key_of(make_link(KEYS, "", clock=clock)))
    noted = [tmp_path / "used-links", *(tmp_path / "used-links").iterdir()]
    clock.now += LINK_MS
    access.redeem(key_of(make_link(KEYS, "", clock=clock)))

    assert len(noted) == 4
    assert not any(path.stat().st_mode & 0o077 for path in noted if path.exists())
    assert len(list((tmp_path / "used-links").iterdir())) == 1


@proves("web.links")
async def test_asking_for_the_headers_of_a_link_does_not_use_it_up(site: Site) -> None:
    link = site.link("/workflows")
    async with httpx2.AsyncClient(base_url=site.url) as client:
        asked = await client.head(link)
        followed = await client.get(link)

    assert "set-cookie" not in asked.headers
    assert (followed.status_code, followed.headers["location"]) == (303, "/workflows")


@proves("web.links")
def test_a_link_is_refused_when_it_is_old_or_older_than_the_server_or_not_genuine(sign_in: SignInAt) -> None:
    clock = MovingClock()
    link = key_of(make_link(KEYS, "http://host", clock=clock))
    foreign = key_of(make_link(FixedKeys(b"x" * 32), "http://host", clock=clock))
    access = sign_in(clock)
    fresh = key_of(make_link(KEYS, "http://host", clock=clock))
    clock.now += 1
    later = sign_in(clock)

    assert later.redeem(link) is None
    assert access.redeem(foreign) is None
    assert access.redeem("") is None
    clock.now += LINK_MS
    assert access.redeem(fresh) is None


@proves("web.links")
def test_a_link_is_no_cookie_and_a_cookie_is_no_link_and_no_form_token(sign_in: SignInAt) -> None:
    access, link = sign_in(MovingClock()), key_of(make_link(KEYS, "http://host", clock=MovingClock()))
    cookie = access.redeem(link) or ""
    visitor = access.read_cookie(cookie)

    assert visitor is not None
    assert access.read_cookie(link) is None
    assert access.redeem(cookie) is None
    assert not access.accepts_form(visitor, cookie)
    assert access.accepts_form(visitor, visitor.form_token)


@proves("web.forms")
def test_the_form_token_of_another_browser_is_refused(sign_in: SignInAt) -> None:
    clock = MovingClock()
    access = sign_in(clock)
    visitors = [access.read_cookie(access.redeem(key_of(make_link(KEYS, "", clock=clock))) or "") for _ in range(2)]

    assert visitors[0] is not None
    assert visitors[1] is not None
    assert not access.accepts_form(visitors[0], visitors[1].form_token)


@proves("web.sign-out")
def test_a_cookie_ends_with_the_visit_and_with_its_time(sign_in: SignInAt) -> None:
    clock = MovingClock()
    access = sign_in(clock)
    first, second = (access.redeem(key_of(make_link(KEYS, "", clock=clock))) or "" for _ in range(2))
    visitor = access.read_cookie(first)

    assert visitor is not None
    access.end_visit(visitor)
    assert access.read_cookie(first) is None
    assert access.read_cookie(second) is not None
    clock.now += VISIT_MS
    assert access.read_cookie(second) is None


@proves("web.sign-out")
def test_a_browser_that_signed_out_stays_signed_out_after_a_restart(sign_in: SignInAt, tmp_path: Path) -> None:
    clock, file = MovingClock(), tmp_path / "ended-visits"
    access = sign_in(clock)
    first, second = (access.redeem(key_of(make_link(KEYS, "", clock=clock))) or "" for _ in range(2))
    visitor = access.read_cookie(first)
    assert visitor is not None
    access.end_visit(visitor)

    later = sign_in(clock)
    assert later.read_cookie(first) is None
    assert later.read_cookie(second) is not None
    assert visitor.id not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


@proves("web.links")
@pytest.mark.parametrize("target", ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "/a\nb", ""])
def test_signing_in_leads_only_to_pages_of_this_server(target: str) -> None:
    assert choose_target(target) == "/"
    assert choose_target("/inbox?state=all") == "/inbox?state=all"


@proves("web.sign-in")
@pytest.mark.parametrize("path", ["/", "/inbox", "/sessions", "/workflows/hello", "/live", "/nowhere"])
async def test_without_a_cookie_every_page_leads_to_signing_in(site: Site, path: str) -> None:
    async with httpx2.AsyncClient(base_url=site.url) as client:
        answered = await client.get(path)
        shown = await client.get(answered.headers["location"])

    assert (answered.status_code, answered.headers["location"]) == (303, f"{SIGN_IN_PATH}?next={quote(path, safe='')}")
    assert (shown.status_code, "fidelio open" in shown.text) == (401, True)


@proves("web.sign-in")
async def test_the_token_of_programs_opens_no_page_and_the_cookie_no_program(site: Site) -> None:
    async with site.visit() as visitor, httpx2.AsyncClient(base_url=site.url) as program:
        page = await program.get("/inbox", headers={"Authorization": f"Bearer {TOKEN}"})
        call = await visitor.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})

    assert (page.status_code, call.status_code) == (303, 401)


@proves("web.sign-in")
async def test_the_cookie_cannot_be_read_by_scripts_or_sent_by_other_sites(site: Site) -> None:
    async with httpx2.AsyncClient(base_url=site.url) as client:
        answered = await client.get(site.link("/workflows"))

    cookie = answered.headers["set-cookie"].lower()
    assert answered.headers["location"] == "/workflows"
    assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/"))


@proves("web.headers")
@pytest.mark.parametrize("path", ["/inbox", "/nowhere", "/static/style.css", SIGN_IN_PATH, "/static/../access.py"])
async def test_every_response_forbids_inline_scripts_and_frames(site: Site, path: str) -> None:
    async with site.visit() as client:
        answered = await client.get(path)

    policy = answered.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert all(
        part in policy for part in ("default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'")
    )
    assert answered.headers["x-content-type-options"] == "nosniff"


@proves("web.links")
@pytest.mark.parametrize("path", ["//evil.example/x", "//evil.example", "/\\evil.example"])
async def test_no_address_of_a_request_becomes_a_link_to_another_host(site: Site, path: str) -> None:
    async with site.visit() as client:
        # Built by hand: a client would take what is behind two slashes for a host.
        request = client.build_request("GET", "/x")
        request.url = request.url.copy_with(raw_path=path.encode())
        page = (await client.send(request)).text

    assert "There is no page" in page
    assert 'href="//' not in page
    assert 'href="/\\' not in page


ADDRESS = "http://127.0.0.1:7333"


@proves("web.forms")
@pytest.mark.parametrize(
    ("origin", "address", "hosts", "public_url", "is_own"),
    [
        (ADDRESS, ADDRESS, (), "", True),
        ("https://127.0.0.1:7333", ADDRESS, (), "", False),
        ("http://localhost:7333", ADDRESS, (), "", False),
        ("http://127.0.0.1:7334", ADDRESS, (), "", False),
        ("null", ADDRESS, (), "", False),
        ("", ADDRESS, (), "", False),
        # A proxy with TLS that passes on the name.
        ("https://fidelio.example", "http://fidelio.example", ("fidelio.example",), "", True),
        ("https://fidelio.example", "http://fidelio.example", ("other.example",), "", False),
        ("https://fidelio.example:8443", "http://fidelio.example", ("fidelio.example",), "", False),
        ("https://fidelio.example:8443", "http://fidelio.example:8443", ("fidelio.example",), "", True),
        ("https://evil.example", "http://fidelio.example", ("fidelio.example", "evil.example"), "", False),
        # A proxy that replaces it.
        ("https://fidelio.example", ADDRESS, (), "https://fidelio.example/", True),
        ("http://fidelio.example", ADDRESS, (), "https://fidelio.example", False),
        ("https://fidelio.example.evil", ADDRESS, (), "https://fidelio.example", False),
    ],
)
def test_a_form_comes_from_the_origin_of_the_server_or_of_the_proxy_that_the_settings_name(
    origin: str, address: str, hosts: tuple[str, ...], public_url: str, is_own: bool
) -> None:
    assert is_own_origin(origin, address, hosts, public_url) == is_own


@proves("web.static")
@pytest.mark.parametrize("path", ["/static/%2e%2e/access.py", "/static/..%2faccess.py", "/static//etc/passwd", "/static/x"])
async def test_only_listed_files_are_static(site: Site, path: str) -> None:
    async with site.visit() as client:
        assert (await client.get(path)).status_code == 404


@proves("web.forms")
@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}],
)
async def test_a_change_from_another_origin_is_refused(site: Site, agent: WaitingAgent, headers: dict[str, str]) -> None:
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "option": "warm"}
        answered = await client.post(f"/inbox/{agent.request}", data=fields, headers=headers)

    assert answered.status_code == 403
    assert (await (await site.application.inbox()).find(agent.request)).state == "open"


@proves("web.forms")
@pytest.mark.parametrize("token", ["", "x", "f1.aaaaaa.e30." + "a" * 43])
async def test_a_change_without_the_form_token_is_refused(site: Site, agent: WaitingAgent, token: str) -> None:
    async with site.visit() as client:
        answered = await client.post(f"/inbox/{agent.request}", data={"form_token": token, "option": "warm"})

    assert answered.status_code == 403
    assert (await (await site.application.inbox()).find(agent.request)).state == "open"


@proves("web.person")
async def test_an_agent_with_the_cookie_cannot_answer(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "option": "warm"}
        answered = await client.post(f"/inbox/{agent.request}", data=fields, headers={AGENT_HEADER: "s_000000000000.1"})

    assert (answered.status_code, "An agent sent this request" in answered.text) == (400, True)
    assert (await (await site.application.inbox()).find(agent.request)).state == "open"


@proves("web.forms")
async def test_a_form_that_is_too_long_or_no_form_is_refused(site: Site, agent: WaitingAgent) -> None:
    async with site.visit() as client:
        token = await read_form_token(client)
        long = await client.post(f"/inbox/{agent.request}", data={"form_token": token, "text": "x" * 300_000})
        broken = await client.post(f"/inbox/{agent.request}", content=b"\xff\xfe=%", headers=FORM)

    assert (long.status_code, broken.status_code) == (400, 400)


@proves("webhooks.link", "web.sign-in")
async def test_the_link_to_a_question_leads_through_signing_in_to_exactly_this_question(
    site: Site, agent: WaitingAgent, browser: Browser
) -> None:
    page = await browser.new_page()
    await page.goto(question_url(site.application.settings._replace(public_url=site.url), agent.request))
    command = await page.locator(".command").inner_text()
    path = command.rpartition(" open ")[2]

    assert path == f"/inbox/{agent.request}"
    await page.goto(site.link(path))
    assert page.url == f"{site.url}/inbox/{agent.request}"
    assert await page.locator("[data-question]").count() == 1


@proves("webhooks.link")
async def test_who_is_signed_in_comes_from_another_site_to_the_question(
    site: Site, agent: WaitingAgent, browser: Browser
) -> None:
    page = await browser.new_page()
    await page.goto(site.link())
    # Another name is another site, so the browser keeps the cookie back at first.
    other = site.url.replace("127.0.0.1", "localhost")
    await page.goto(f"{other}/sign-in")
    await page.evaluate("address => { location.href = address; }", f"{site.url}/inbox/{agent.request}")

    await expect(page.locator("[data-question]")).to_have_count(1)
    assert page.url == f"{site.url}/inbox/{agent.request}"


@proves("webhooks.link")
@pytest.mark.parametrize("target", ["/$(touch x)", "/a;b", "/`id`", "/a b", "//host", "/x?y=z", "/\u202e"])
async def test_a_made_up_link_brings_no_text_of_its_own_into_the_command(site: Site, target: str) -> None:
    async with httpx2.AsyncClient(base_url=site.url) as client:
        page = (await client.get(SIGN_IN_PATH, params={"next": target})).text

    assert f"{site.application.program} open</pre>" in page


@proves("webhooks.link")
def test_open_prints_a_link_that_leads_to_a_page_and_refuses_another_address(home: Path, fidelio: Fidelio) -> None:
    note_address(Home(home), "http://127.0.0.1:7333")
    printed = fidelio("open", "/inbox/r_1")
    refused = fidelio("open", "//evil.example/x")

    assert printed.stdout.startswith("http://127.0.0.1:7333/sign-in?key=")
    assert printed.stdout.strip().endswith("next=%2Finbox%2Fr_1")
    assert (refused.returncode, "is no path of the page" in refused.stderr) == (2, True)
