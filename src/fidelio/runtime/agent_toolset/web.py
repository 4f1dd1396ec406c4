"""The tools `web_fetch` and `web_search` of `agent_toolset_20260401`.

A page is fetched through the proxy of the session's sandbox, so its network policy, its log and its limits hold: the network of
the host is never used. A search goes to the one backend that a person has configured, and to nothing else.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urljoin, urlsplit

import httpcore2
import httpx2
import msgspec

from fidelio.errors import ToolRefused
from fidelio.ledger.long_text import sanitize_text
from fidelio.runtime.agent_toolset.definitions import WebFetchInput, WebSearchInput
from fidelio.runtime.agent_toolset.files import text_result
from fidelio.runtime.agent_toolset.html import read_html
from fidelio.runtime.agents.tools import WebOptions
from fidelio.runtime.tools.model import Implementation, Preparation, ToolCall, ToolResult
from fidelio.sandbox.directory import PROXY_SOCKET
from fidelio.sandbox.model import SandboxSpec

MAX_BYTES = 5_000_000
MAX_TEXT = 60_000
# Characters of HTML that are read.
MAX_HTML = 1_000_000
MAX_REDIRECTS = 5
SECONDS = 30.0
MAX_RESULTS = 10
MAX_SNIPPET = 500
# About how many characters a token has.
_CHARACTERS = 4
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TEXTS = ("text/", "application/json", "application/xml", "application/javascript", "application/x-yaml")
_CHARSET = re.compile(r"utf-8|ascii|utf-16|iso8859-\d+|cp125\d|koi8-[ru]|shift_jis|cp932|euc_(jp|kr)|gbk|gb18030|big5")
_HEADERS = [
    (b"user-agent", b"Fidelio (web_fetch)"),
    (b"accept", b"text/html, text/plain, application/json;q=0.9, */*;q=0.1"),
    (b"accept-encoding", b"identity"),
]


class SearchHit(msgspec.Struct, frozen=True):
    """A result of a search."""

    title: str
    url: str
    snippet: str = ""


class WebSearch(Protocol):
    """A backend of `web_search`."""

    async def search(self, query: str) -> Sequence[SearchHit]:
        """The hits, best first. Raises `ToolRefused`."""
        ...


class _ProxyBackend(httpcore2.AsyncNetworkBackend):
    """Connects to nothing but the proxy of a sandbox, whatever the address is."""

    def __init__(self, socket: Path) -> None:
        self._socket, self._inner = str(socket), httpcore2.AnyIOBackend()

    async def connect_tcp(self, *_: Any, timeout: float | None = None, **__: Any) -> httpcore2.AsyncNetworkStream:
        return await self._inner.connect_unix_socket(self._socket, timeout=timeout)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Response(msgspec.Struct, frozen=True):
    """What a server has sent. `location` is that of a redirect."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool


class WebFetch:
    """Fetches pages for the sessions of an agent, within the hosts that its definition allows."""

    def __init__(self, options: WebOptions) -> None:
        self._options = options

    def build(self) -> Implementation:
        return Implementation(self._run, self._prepare)

    async def _prepare(self, call: ToolCall, arguments: WebFetchInput) -> Preparation:
        self._check(call.spec, arguments.url)
        return Preparation(about=(f"Network of the environment: {call.spec.network}.",))

    async def _run(self, call: ToolCall, arguments: WebFetchInput, _: Preparation) -> ToolResult:
        await call.start_sandbox()
        url = arguments.url
        try:
            async with asyncio.timeout(SECONDS):
                for _attempt in range(MAX_REDIRECTS + 1):
                    self._check(call.spec, url)
                    response = await _request(call.spec, url)
                    location = response.headers.get("location")
                    if response.status not in _REDIRECTS or not location:
                        return text_result(await asyncio.to_thread(self._render, url, response))
                    url = urljoin(url, location)
        except TimeoutError as error:
            raise _failed(f"{_host_of(url)} did not answer within {SECONDS:g} seconds.", retryable=True) from error
        raise _failed(f"{arguments.url:.200} leads through more than {MAX_REDIRECTS} redirects.")

    def _check(self, spec: SandboxSpec, url: str) -> None:
        """Refuse what must not even be tried. Called for every redirect again; the proxy decides about the addresses."""
        host = _check_url(url)
        if spec.network not in ("limited", "unrestricted"):
            why = "has no network" if spec.network == "none" else "uses the network of the machine, which this tool never does"
            raise ToolRefused(
                f"web_fetch cannot be used: the environment of this session {why}.",
                remedy="A person can choose an environment with network limited or unrestricted.",
                reason="network_refused",
            )
        allowed, blocked = self._options.allowed_domains, self._options.blocked_domains
        if (allowed and not _is_below(host, allowed)) or _is_below(host, blocked):
            known = f" It may fetch from: {', '.join(allowed)}." if allowed else ""
            raise ToolRefused(f"This agent may not fetch from {host}.{known}", reason="domain_refused")

    def _render(self, url: str, response: _Response) -> str:
        if response.status >= 400:
            raise _failed(f"{_host_of(url)} answered with the status {response.status}.", retryable=response.status >= 500)
        title, text = _read_body(url, response)
        limit = min(MAX_TEXT, self._options.max_content_tokens * _CHARACTERS or MAX_TEXT)
        head = [f"# {title}"] if title else []
        is_cut = response.is_cut or len(text) > limit
        rest = [f"[Cut after {limit:,} characters. Fetch a more specific page for the rest.]"] if is_cut else []
        return "\n".join([*head, f"Source: {url}", "", sanitize_text(text[:limit]) or "[The page has no text.]", *rest])


def _check_url(url: str) -> str:
    """The host of an address that may be fetched."""
    try:
        split = urlsplit(url)
        host, port = (split.hostname or "").lower().removesuffix("."), split.port
    except ValueError as error:
        raise ToolRefused(f"{url!r:.200} is no address of a page.", reason="invalid_url") from error
    if split.scheme not in ("http", "https") or not host or split.username is not None or not url.isascii():
        raise ToolRefused(
            f"{url!r:.200} is no address of a page.", remedy="Use https://host/path, percent-encoded.", reason="invalid_url"
        )
    if any(character.isspace() or not character.isprintable() for character in url):
        raise ToolRefused(f"{url!r:.200} has spaces or control characters.", remedy="Encode them.", reason="invalid_url")
    if port not in (None, 443 if split.scheme == "https" else 80):
        raise ToolRefused(f"{url!r:.200} names the port {port}.", remedy="Only 443 and 80 can be used.", reason="invalid_url")
    return host


async def _request(spec: SandboxSpec, url: str) -> _Response:
    host = _host_of(url)
    proxy = httpcore2.AsyncHTTPProxy(
        proxy_url="http://proxy.invalid",
        network_backend=_ProxyBackend(Path(spec.directory) / PROXY_SOCKET),
        ssl_context=ssl.create_default_context(),
    )
    try:
        async with proxy, proxy.stream("GET", url.partition("#")[0], headers=[(b"host", host.encode()), *_HEADERS]) as answer:
            headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
            if reason := headers.get("fidelio-reason"):
                raise _refused_by_proxy(host, reason)
            body, is_cut = await _read_limited(answer)
            return _Response(answer.status, headers, body, is_cut)
    except httpcore2.ProxyError as error:
        raise _refused_by_proxy(host, str(error)) from error
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, ssl.SSLError, OSError) as error:
        raise _failed(f"{host} could not be fetched ({type(error).__name__}).", retryable=True) from error


async def _read_limited(answer: httpcore2.Response) -> tuple[bytes, bool]:
    body = bytearray()
    async for chunk in answer.aiter_stream():
        body += chunk
        if len(body) > MAX_BYTES:
            return bytes(body[:MAX_BYTES]), True
    return bytes(body), False


def _read_body(url: str, response: _Response) -> tuple[str, str]:
    """The title and the text of what a server has sent."""
    declared = response.headers.get("content-type", "text/plain").lower()
    kind, _, parameters = declared.partition(";")
    is_html = kind.strip() in ("text/html", "application/xhtml+xml")
    if not (is_html or kind.strip().startswith(_TEXTS) or kind.strip().endswith(("+json", "+xml"))):
        raise _failed(f"{url:.200} is {kind.strip() or 'of an unknown type'!r:.80}, which is no text.")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _failed(f"{_host_of(url)} sent a compressed page that was not asked for.")
    text = response.body.decode(_find_charset(parameters), errors="replace")
    return read_html(text[:MAX_HTML], url) if is_html else ("", text)


def _find_charset(parameters: str) -> str:
    """The encoding that the server names, if it is usual: some codecs of Python are quadratic."""
    try:
        name = codecs.lookup(parameters.partition("charset=")[2].split(";")[0].strip(" \"'")).name
    except (LookupError, ValueError):
        return "utf-8"
    return name if _CHARSET.fullmatch(name) else "utf-8"


def _host_of(url: str) -> str:
    return (urlsplit(url).hostname or "").lower().removesuffix(".")


def _is_below(host: str, domains: Iterable[str]) -> bool:
    return any(host == domain.lower() or host.endswith(f".{domain.lower()}") for domain in domains)


def _failed(sentence: str, *, retryable: bool = False) -> ToolRefused:
    return ToolRefused(sentence, remedy="Try another address.", reason="fetch_failed", retryable=retryable)


def _refused_by_proxy(host: str, reason: str) -> ToolRefused:
    is_policy = reason.startswith("403") or (not reason[:1].isdigit() and reason not in ("resolve", "connect"))
    if is_policy:
        return ToolRefused(
            f"The network of this environment does not allow {host}.",
            remedy="Only public hosts that the environment names can be reached. Use another one, or tell the person.",
            reason="network_refused",
        )
    return _failed(f"{host} cannot be reached.", retryable=True)


class JsonSearch:
    """A backend with an address such as `https://search.example/search?q={query}&format=json`, as SearXNG has it.

    Hits are the objects of the list `results`, at the top or in `web`, with `title`, `url` and `content` or `description`.
    """

    def __init__(self, template: str) -> None:
        self._template = template

    async def search(self, query: str) -> Sequence[SearchHit]:
        address = self._template.replace("{query}", quote(query, safe=""))
        try:
            async with (
                httpx2.AsyncClient(timeout=SECONDS, follow_redirects=False) as client,
                client.stream("GET", address, headers={"Accept": "application/json"}) as response,
            ):
                body = await self._read(response)
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            # Without the text of the error: the address may contain a key.
            raise _search_failed(f"could not be reached ({type(error).__name__})") from None
        try:
            return tuple(_read_hits(msgspec.json.decode(body)))[:MAX_RESULTS]
        except (msgspec.DecodeError, RecursionError) as error:
            raise _search_failed("sent a reply that is no JSON") from error

    async def _read(self, response: httpx2.Response) -> bytes:
        if response.status_code != 200:
            raise _search_failed(f"answered with the status {response.status_code}")
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_BYTES:
                raise _search_failed(f"sent more than {MAX_BYTES:,} bytes")
        return bytes(body)


def _read_hits(reply: Any) -> Iterable[SearchHit]:
    found = reply if isinstance(reply, Mapping) else {}
    inner = found.get("web")
    results = found.get("results") or (inner.get("results") if isinstance(inner, Mapping) else None)
    for item in results if isinstance(results, list) else ():
        if isinstance(item, Mapping) and isinstance(url := item.get("url"), str):
            yield SearchHit(_text_of(item.get("title")), url[:2_000], _text_of(item.get("content") or item.get("description")))


def _text_of(value: Any) -> str:
    return " ".join(sanitize_text(value).split())[:MAX_SNIPPET] if isinstance(value, str) else ""


def _search_failed(what: str) -> ToolRefused:
    return ToolRefused(f"The search backend {what}.", remedy="Go on without a search.", reason="search_failed", retryable=True)


def build_search(backend: WebSearch, options: WebOptions) -> Implementation:
    """The tool `web_search` over a backend, without the hits that the agent may not see."""

    async def run(_: ToolCall, arguments: WebSearchInput, __: Preparation) -> ToolResult:
        hits = [hit for hit in await backend.search(arguments.query) if _is_wanted(hit.url, options)]
        limit = min(MAX_TEXT, options.max_content_tokens * _CHARACTERS or MAX_TEXT)
        blocks = [
            f"{number}. {hit.title or hit.url}\n   {hit.url}\n   {hit.snippet}".rstrip() for number, hit in enumerate(hits, 1)
        ]
        return text_result("\n\n".join(blocks)[:limit] or "No results.")

    return Implementation(run)


def _is_wanted(url: str, options: WebOptions) -> bool:
    try:
        host = _host_of(url)
    except ValueError:
        return False
    allowed = options.allowed_domains
    return bool(host) and (not allowed or _is_below(host, allowed)) and not _is_below(host, options.blocked_domains)
