"""web_fetch through a real proxy to servers on loopback, and web_search over a backend on loopback."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.runtime.agent_toolset.html import read_html
from fidelio.runtime.agent_toolset.web import JsonSearch
from fidelio.runtime.environments.versions import Environment, define
from fidelio.sandbox.host.proxy.addresses import Address
from fidelio.sandbox.host.proxy.server import ConnectionLogs, ProxyOptions, SandboxProxy, Streams
from fidelio.sandbox.model import SandboxSpec
from tests.runtime.agent_toolset.conftest import TOOLSET, Bench
from tests.runtime.support import FakeSandboxes
from tests.runtime.wakes.support import Runtime, open_runtime
from tests.support import proves

PUBLIC, PRIVATE = ipaddress.ip_address("127.0.0.2"), ipaddress.ip_address("127.0.0.3")
Pages = Mapping[str, tuple[int, Mapping[str, str], bytes]]
HTML = {"content-type": "text/html; charset=utf-8"}


class Web:
    """A server for all names, with pages by path, and a proxy that reaches it."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, Mapping[str, str], bytes]] = {}
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        self.asked.append(path)
        status, headers, body = self.pages.get(path.partition("?")[0], (404, {}, b""))
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items()), "connection: close"]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()
        writer.close()

    async def resolve(self, name: str, _: int) -> Sequence[Address]:
        return [PRIVATE if name.startswith("private") else PUBLIC]

    async def connect(self, _: Address, __: int) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port)


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


@asynccontextmanager
async def begin(path: Path, web: Web, network: str = "limited", **tools: Any) -> AsyncIterator[Bench]:
    """A session in an environment with a network, whose sandbox is a double with a real proxy."""
    hosts = ("example.org", "*.example.net", "private.example.com") if network == "limited" else ()
    async with open_runtime(path, sandboxes=FakeSandboxes()) as runtime:
        await define(runtime.context, "net", Environment(network=network, hosts=hosts), by="person:test")  # type: ignore[arg-type]  # a network
        bench = Bench(runtime)
        bench.session = await runtime.begin(tools={**TOOLSET, **tools}, environment="net")
        directory = runtime.context.home.path / "sandboxes" / (await bench.record()).directory
        spec = SandboxSpec(bench.session, str(directory), (), network=network, hosts=hosts)  # type: ignore[arg-type]  # a network
        options = ProxyOptions(resolve=web.resolve, connect=web.connect, is_public=lambda address: address == PUBLIC)
        async with asyncio.timeout(60), SandboxProxy(spec, ConnectionLogs().open(bench.session), options):
            yield bench


@proves("toolset.fetch", "toolset.page")
async def test_a_page_is_fetched_as_text(open_directory: Path, web: Web) -> None:
    page = (
        b"<html><head><title>A  page</title><script>bad()</script></head><body><h1>Head</h1><p>One\n two</p><a href='/x'>go</a>"
    )
    web.pages["/a"] = (200, HTML, page)
    async with begin(open_directory, web) as bench:
        text = await bench.read("web_fetch", url="http://example.org/a#part")

    assert text == "# A page\nSource: http://example.org/a#part\n\n# Head\n\nOne two\n\ngo (http://example.org/x)"
    assert web.asked == ["/a"]


@proves("toolset.fetch")
@pytest.mark.parametrize("network", ["none", "host"])
async def test_without_a_network_of_the_sandbox_nothing_is_fetched(open_directory: Path, web: Web, network: str) -> None:
    async with begin(open_directory, web, network) as bench:
        text = await bench.refuse("web_fetch", url="http://example.org/a")

    assert "network_refused" in text
    assert "web_fetch cannot be used" in text
    assert not web.asked


@proves("toolset.fetch")
@pytest.mark.parametrize(
    "url", ["http://other.org/", "https://other.org/", "http://private.example.com/", "https://private.example.com/"]
)
async def test_what_the_network_does_not_allow_is_refused(open_directory: Path, web: Web, url: str) -> None:
    async with begin(open_directory, web) as bench:
        assert "network_refused" in await bench.refuse("web_fetch", url=url)
    assert not web.asked


@proves("toolset.fetch")
async def test_a_redirect_is_checked_like_the_first_address(open_directory: Path, web: Web) -> None:
    web.pages |= {
        "/good": (302, {"location": "http://docs.example.net/end"}, b""),
        "/end": (200, {"content-type": "text/plain"}, b"the end"),
        "/out": (302, {"location": "http://other.org/"}, b""),
        "/inside": (307, {"location": "http://private.example.com/"}, b""),
        "/file": (301, {"location": "file:///etc/passwd"}, b""),
        "/port": (301, {"location": "http://example.org:8080/"}, b""),
        "/loop": (301, {"location": "/loop"}, b""),
    }
    async with begin(open_directory, web) as bench:
        assert "the end" in await bench.read("web_fetch", url="http://example.org/good")
        for path, reason in (("out", "network_refused"), ("inside", "network_refused"), ("file", "invalid_url")):
            assert reason in await bench.refuse("web_fetch", url=f"http://example.org/{path}")
        assert "invalid_url" in await bench.refuse("web_fetch", url="http://example.org/port")
        assert "more than 5 redirects" in await bench.refuse("web_fetch", url="http://example.org/loop")


@proves("toolset.fetch")
async def test_the_agent_names_the_domains_that_it_may_fetch_from(open_directory: Path, web: Web) -> None:
    web.pages["/a"] = (200, {"content-type": "text/plain"}, b"yes")
    async with begin(open_directory, web, web_fetch={"allowed_domains": ["example.net"]}) as bench:
        assert "yes" in await bench.read("web_fetch", url="http://docs.example.net/a")
        assert "domain_refused" in await bench.refuse("web_fetch", url="http://example.org/a")
        assert "domain_refused" in await bench.refuse("web_fetch", url="http://notexample.net/a")


@proves("toolset.page")
async def test_a_page_is_limited_in_size_and_must_be_text(open_directory: Path, web: Web) -> None:
    web.pages |= {
        "/long": (200, {"content-type": "text/plain"}, b"x" * 6_000_000),
        "/image": (200, {"content-type": "image/png"}, b"\x89PNG"),
        "/packed": (200, {"content-type": "text/plain", "content-encoding": "gzip"}, b"\x1f\x8b"),
        "/charset": (200, {"content-type": "text/plain; charset=punycode"}, b"plain"),
    }
    async with begin(open_directory, web) as bench:
        text = await bench.read("web_fetch", url="http://example.org/long")
        assert len(text) < 61_000
        assert text.endswith("for the rest.]")
        assert "which is no text" in await bench.refuse("web_fetch", url="http://example.org/image")
        assert "compressed" in await bench.refuse("web_fetch", url="http://example.org/packed")
        assert "plain" in await bench.read("web_fetch", url="http://example.org/charset")
        assert "status 404" in await bench.refuse("web_fetch", url="http://example.org/missing")


@proves("toolset.fetch", "toolset.hostile")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org",
        "ftp://example.org/",
        "http://",
        "http://user:pw@example.org/",
        "http://example.org:99999/",
        "http://example.org/a b",
        "http://example.org/\r\nX: y",
        "http://[::1",
        "http://exämple.org/",
        "javascript:alert(1)",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest",
    ],
)
async def test_hostile_addresses_are_refused(open_directory: Path, web: Web, url: str) -> None:
    async with begin(open_directory, web, "unrestricted") as bench:
        await bench.refuse("web_fetch", url=url)
    assert not web.asked


@proves("toolset.page")
def test_broken_html_is_read_as_far_as_it_goes() -> None:
    assert read_html("<pre>a\n  b</pre><script>x</script>c &amp; d</nothing><ul><li>e", "http://x.org") == (
        "",
        "```\na\n  b\n```\n\nc & d\n\n- e",
    )
    assert read_html("<style>" * 2_000 + "hidden", "http://x.org") == ("", "")
    assert read_html("<a href='javascript:x'>no</a><a href='#top'>top</a>", "http://x.org") == ("", "notop")
    assert read_html("<nav>a<nav>b</nav>c</form></nav>d<svg/>e", "http://x.org") == ("", "de")
    assert read_html("<title>a &lt; <b></title><a title='>' href=/p>x</a> 1 < 2 <!-- no --> y", "http://x.org") == (
        "a < <b>",
        "x (http://x.org/p) 1 < 2 y",
    )


@proves("toolset.page")
@pytest.mark.parametrize(
    "piece", ["<a b='", '<a b="', "<a", "</a ", "<!--", "<!a", "<?", "<", "<svg>", "</x>", "&#9", "<title>"]
)
def test_a_hostile_page_is_read_in_linear_time(piece: str) -> None:
    # With a parser that looks for each end again, these take minutes.
    title, text = read_html(piece * (1_000_000 // len(piece)), "http://x.org")

    assert len(title) + len(text) <= 1_000_000


@proves("toolset.page")
@given(
    st.lists(
        st.sampled_from(["<a href=", "'", '"', ">", "</a", "<!--", "-->", "<script>", "</script", "/", "&#", "9" * 5_000, "x "])
    )
)
def test_whatever_a_page_is_it_can_be_read(pieces: list[str]) -> None:
    title, text = read_html("".join(pieces), "http://x.org")

    assert "\x01" not in title + text


REPLY = b"""{"results": [{"title": "A  title", "url": "https://good.example/a", "content": "Words."},
 {"url": "https://bad.example/b"}, {"title": 5}, "x"]}"""


async def _search(runtime: Runtime, web: Web, **tools: Any) -> Bench:
    from msgspec.structs import replace

    backend = JsonSearch(f"http://127.0.0.1:{web.port}/search?q={{query}}&format=json")
    ports = replace(runtime.context.ports, web_search=backend)
    bench = Bench(runtime)
    runtime.runner.context = replace(runtime.context, ports=ports)
    bench.session = await runtime.begin(tools={**TOOLSET, **tools})
    return bench


@proves("toolset.search-backend")
async def test_a_search_asks_the_configured_backend(tmp_path: Path, web: Web) -> None:
    web.pages["/search"] = (200, {"content-type": "application/json"}, REPLY)
    async with open_runtime(tmp_path) as runtime:
        bench = await _search(runtime, web, web_search={"blocked_domains": ["bad.example"]})
        text = await bench.read("web_search", query="a & b?")

        assert text == "1. A title\n   https://good.example/a\n   Words."
        assert web.asked == ["/search?q=a%20%26%20b%3F&format=json"]
        assert "web_search" in {tool.name for tool in runtime.requests[0].tools}


@proves("toolset.search-backend")
async def test_a_backend_that_fails_is_a_result_and_shows_no_address(tmp_path: Path, web: Web) -> None:
    async with open_runtime(tmp_path) as runtime:
        bench = await _search(runtime, web)
        missing = await bench.refuse("web_search", query="x")
        web.pages["/search"] = (200, {}, b"<html>")
        broken = await bench.refuse("web_search", query="x")

        assert "answered with the status 404" in missing
        assert "no JSON" in broken
        assert str(web.port) not in missing + broken


@proves("toolset.search-backend")
async def test_without_a_backend_there_is_no_such_tool(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        bench = Bench(runtime)
        assert "unknown_tool" in await bench.refuse("web_search", query="x")
        assert "web_search" not in {tool.name for tool in runtime.requests[0].tools}
