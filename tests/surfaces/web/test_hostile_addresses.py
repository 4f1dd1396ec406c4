"""Addresses, headers, cookies and forms that lead out of their place or are too long, as no browser sends them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.surfaces.web.access import SIGN_IN_PATH, choose_target
from tests.support import proves
from tests.surfaces.web.conftest import TOKEN, Site, WaitingAgent, read_form_token
from tests.surfaces.web.test_effects import FORM, fill_path, list_routes, read_facts, values

__all__ = ["values"]

OUTSIDE = (
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "..%5c..%5cetc%5cpasswd",
    "..\\..\\access.py",
    "%2e%2e%5caccess.py",
    "....//....//etc/passwd",
    "%00",
    "style.css%00.js",
    "%252e%252e%252fetc%252fpasswd",
    "%c0%ae%c0%ae/etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    ".",
    "..",
    "%20",
    "%F0%9F%98%80",
    "%ff",
    "http-token",
    "ledger.db",
)
PLACES = ("/static/", "/static/vendor/", "/workflows/", "/sessions/", "/inbox/", "/")
TAILS = ("", "/source", "/report", "/memory", "/changes", "/file", "/events/1", "/challenge")
LONG = "x" * 60_000


async def send_raw(site: Site, target: str, cookie: str, *headers: str) -> bytes:
    """The reply to a request whose target no client has put in order."""
    host = urlsplit(site.url).netloc
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(site.url).port)
    lines = (f"GET {target} HTTP/1.1", f"Host: {host}", f"Cookie: {cookie}", "Connection: close", *headers, "", "")
    writer.write("\r\n".join(lines).encode("latin-1"))
    await writer.drain()
    async with asyncio.timeout(30):
        reply = await reader.read()
    writer.close()
    return reply


async def sign_in(site: Site) -> str:
    async with site.visit() as client:
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


@proves("web.hostile-addresses", "web.static")
async def test_no_path_leads_out_of_its_place(site: Site, agent: WaitingAgent, tmp_path: Path) -> None:
    cookie, secrets = await sign_in(site), (b"root:", b"SQLite format", b"def choose_target", TOKEN.encode())
    for place in PLACES:
        for outside in OUTSIDE:
            for tail in TAILS if place.count("/") == 2 and not place.startswith("/static") else ("",):
                reply = await send_raw(site, f"{place}{outside}{tail}", cookie)
                status = int(reply[9:12])
                assert status < 500, (place, outside, tail)
                assert b"This page failed" not in reply, (place, outside, tail)
                assert not any(secret in reply for secret in secrets), (place, outside, tail)


@proves("web.hostile-addresses")
@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/inbox",
        "//evil.example/inbox",
        "/\\evil.example",
        "/%0d%0aSet-Cookie:%20a=b",
        "/inbox?%0d%0aX-A:%20b",
    ],
)
async def test_no_address_splits_a_reply_or_leads_elsewhere(site: Site, target: str) -> None:
    reply = await send_raw(site, target, "")
    head = reply.partition(b"\r\n\r\n")[0].lower()
    (location,) = [line for line in head.split(b"\r\n") if line.startswith(b"location:")] or [b"location: /"]

    assert int(reply[9:12]) < 500
    assert b"\nset-cookie" not in head
    assert b"\nx-a:" not in head
    assert location.startswith(b"location: /")
    assert not location.startswith((b"location: //", b"location: /\\"))


@proves("web.links", "web.hostile-addresses")
@given(st.text(), st.sampled_from(["", "/", "//", "/\\", "\\/", "http:", "/\t/", "javascript:", "/%2f"]))
def test_after_signing_in_the_way_leads_to_a_path_of_this_server(text: str, start: str) -> None:
    target = choose_target(start + text)

    assert target.startswith("/")
    assert not target.startswith("//")
    assert "\\" not in target
    assert target.isprintable()
    # Browsers take the target relative to this server: it must not bring a host or a scheme of its own.
    assert (urlsplit(target).netloc, urlsplit(target).scheme) == ("", "")


@proves("web.hostile-addresses", "web.links")
@pytest.mark.parametrize(
    "target", ["//evil.example", "/\\evil.example", "https://evil.example/", "javascript:alert(1)", "/\x00", LONG]
)
async def test_the_sign_in_takes_no_other_target(site: Site, target: str) -> None:
    async with httpx2.AsyncClient(base_url=site.url) as client:
        answered = await client.get(SIGN_IN_PATH, params={"next": target}, headers={"Sec-Fetch-Site": "cross-site"})
        signed_in = await client.get(f"{site.link()}&next={quote(target, safe='')}")

    assert answered.status_code in (400, 401, 414)
    assert "evil" not in answered.text
    assert "javascript" not in answered.text
    assert signed_in.headers.get("location", "/") == "/"


@proves("web.hostile-addresses")
async def test_what_is_too_long_is_refused_without_an_error_of_the_server(site: Site, values: dict[str, str]) -> None:
    cookie = await sign_in(site)
    for path in list_routes(site, "GET"):
        for target in (f"{fill_path(path, values)}?{'&'.join(f'{name}={LONG[:3_000]}' for name in FORM)}", f"/{LONG}{path}"):
            reply = await send_raw(site, target, cookie) if path != "/live" else b"HTTP/1.1 200"
            assert int(reply[9:12] or b"400") < 500, path
    for header in (f"Cookie: fidelio-1={LONG}", f"Last-Event-ID: {LONG}", f"Origin: http://{LONG}", f"Sec-Fetch-Site: {LONG}"):
        reply = await send_raw(site, "/inbox", cookie, header)
        assert int(reply[9:12] or b"400") < 500, header[:20]
    async with site.visit() as client:
        assert (await client.get("/inbox")).status_code == 200


@proves("web.hostile-addresses", "web.forms")
async def test_a_form_with_too_much_in_any_field_changes_nothing(site: Site, values: dict[str, str]) -> None:
    # The variables of a workflow may be long.
    paths = [path for path in list_routes(site, "POST") if path not in ("/sign-in", "/sign-out", "/workflows/{workflow}")]
    named = ("option", "decision", "action", "name", "agent", "blueprint", "id", f"pick-{LONG}")
    async with site.visit() as client:
        token = await read_form_token(client)
        too_long = [{"form_token": LONG}, {"form_token": token, "text": "x" * 262_200}]
        too_many = {"form_token": token, **{f"f{number}": "x" for number in range(250)}}
        signature = {"nonce": LONG, "key": LONG, "signature": LONG, "client_data": LONG, "attestation": LONG}
        forms: list[dict[str, Any]] = [*too_long, too_many, {"form_token": token, **signature}]
        forms += [{"form_token": token, name: LONG} for name in named]
        before = read_facts(site)
        for path in paths:
            for form in forms:
                answered = await client.post(fill_path(path, values), data=form)
                assert 400 <= answered.status_code < 500, (path, list(form))

        assert read_facts(site) == before
    assert len(paths) >= 5
