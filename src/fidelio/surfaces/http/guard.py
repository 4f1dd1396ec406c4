"""Middleware that checks Host, Origin and token before anything else of a request is read, and adds headers to every response.

A web page can make a browser on this machine send requests to this server, also under a host name that resolves to this
machine (DNS rebinding). The Host and Origin headers reveal that. Other users of this machine can connect too, and where the
address is not loopback other machines; the token keeps them out.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from html import escape
from urllib.parse import urlsplit

from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fidelio.errors import Command, Hint, UsageProblem
from fidelio.ids import new_id
from fidelio.surfaces.http.problems import make_problem

MAX_ADDRESS_LENGTH = 300
# Only what this server sends may run or be shown, nothing inline; no other page may frame it.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
SECURITY_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not `no-referrer`: browsers would then send forms with the origin `null`.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_MORE_HEADERS = (*SECURITY_HEADERS, (b"cache-control", b"no-store"))
_NAME = re.compile(r"[a-z0-9._-]+")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# Clients of these paths read errors in a shape of their own each.
API_PREFIX, JSON_PREFIX = "/v1/", "/api/"
# Clients look for an authorization server here. There is none, and only 404 makes them use the token that they have.
_WELL_KNOWN = "/.well-known/"
# Paths of programs, which send the token; all others are pages.
_FOR_PROGRAMS = ("/mcp", API_PREFIX)
# Without the path of the home, which is nobody's business who has no token.
_UNAUTHORIZED = Hint(
    "A token is needed, as `Authorization: Bearer TOKEN` or `x-api-key: TOKEN`. ",
    Command("up"),
    " prints the header when it starts. The token is in the file http-token of its home, which ",
    Command("doctor"),
    " shows, unless FIDELIO_TOKEN sets it.",
)


def is_loopback(host: str) -> bool:
    if host.lower() in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def validate_host_name(name: str) -> str:
    """Return a name for the Host header in lower case, without brackets; raise `UsageProblem` if it is no host name."""
    host = name.lower().strip("[]")
    if not _NAME.fullmatch(host) and not _is_address(host):
        remedy = "Give the name alone, such as fidelio.example, without http:// or a port."
        raise UsageProblem(f"{name!r} is not a host name.", remedy=remedy)
    return host


def validate_token(token: str) -> str:
    """Return the token if it is printable ASCII. Clients encode other characters in headers differently."""
    if not (token.isascii() and token.isprintable()) or token != token.strip():
        remedy = "Choose another, such as the output of `openssl rand -hex 32`."
        raise UsageProblem("A bearer token must be printable ASCII without surrounding spaces.", remedy=remedy)
    return token


_API_TYPES = {401: "authentication_error", 403: "permission_error"}


def _shape_for_api(refusal: _Refusal) -> Response:
    request_id = new_id("req_", 20)
    error = {"type": _API_TYPES.get(refusal.status_code, "invalid_request_error"), "message": refusal.sentence}
    headers = {"request-id": request_id, **refusal.extra}
    body = {"type": "error", "error": error, "request_id": request_id}
    return JSONResponse(body, status_code=refusal.status_code, headers=headers)


_PROBLEM_CODES = {401: "api.token", 403: "api.origin", 421: "api.host"}


def _shape_as_problem(refusal: _Refusal) -> Response:
    code = _PROBLEM_CODES.get(refusal.status_code, "api.refused")
    return make_problem(refusal.status_code, code, refusal.sentence, headers=refusal.extra)


class SecureHeaders:
    """Middleware. Adds the headers that keep other pages and foreign text from doing anything here, where they are missing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                present = {name for name, _ in headers}
                more = (header for header in _MORE_HEADERS if header[0] not in present)
                message = {**message, "headers": [*headers, *more]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _shape_for_browser(refusal: _Refusal) -> Response:
    content = (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n'
        f"<title>Not served · Fidelio</title>\n<h1>Not served</h1>\n<p>{escape(refusal.sentence)}</p>\n"
    )
    return HTMLResponse(content, status_code=refusal.status_code, headers=refusal.extra)


class Guard:
    """Middleware. `open_paths` need no token, for health checks.

    Requests for `endpoints`, nearly all of them, go there directly and not through the router of `app`. With `pages`, whatever
    is not for programs goes to the web page, which checks by itself who is signed in.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        hosts: Iterable[str] = (),
        open_paths: Iterable[str] = (),
        endpoints: Mapping[str, ASGIApp] | None = None,
        pages: ASGIApp | None = None,
    ) -> None:
        self._app = app
        self._endpoints = endpoints or {}
        self._pages = pages
        self._token = token.encode() if token else None
        self._hosts = {host.lower() for host in hosts} | ({socket.gethostname().lower()} if token else set())
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal: Response | None = self._check_request(scope) if scope["type"] != "lifespan" else None
        if isinstance(refusal, _Refusal) and scope["path"].startswith(API_PREFIX):
            refusal = _shape_for_api(refusal)
        elif isinstance(refusal, _Refusal) and _is_json(scope["path"]):
            refusal = _shape_as_problem(refusal)
        elif isinstance(refusal, _Refusal) and b"text/html" in _read_headers(scope).get(b"accept", b""):
            refusal = _shape_for_browser(refusal)
        app = self._endpoints.get(scope["path"], self._app) if scope["type"] == "http" else self._app
        if self._pages is not None and self._is_page(scope):
            app = self._pages
        await (refusal or app)(scope, receive, send)

    def _is_page(self, scope: Scope) -> bool:
        """Whether a request is for the web page, not for a program."""
        if self._pages is None or scope["type"] != "http":
            return False
        path = scope["path"]
        return path not in self._open_paths and not path.startswith(_FOR_PROGRAMS) and not _is_json(path)

    def _check_request(self, scope: Scope) -> _Refusal | None:
        headers = _read_headers(scope)
        if not self._is_allowed(_parse_host(b"//" + headers.get(b"host", b""))):
            return _Refusal(
                421, "This Host is not served here. Name it with --allowed-host or FIDELIO_ALLOWED_HOSTS if it should be."
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._is_allowed(_parse_host(origin)):
            return _Refusal(403, "Requests from this Origin are not served.")
        if scope["path"].startswith(_WELL_KNOWN):
            return _Refusal(404, "There is nothing here. This server needs no authorization server, only its token.")
        is_open = scope["path"] in self._open_paths or self._is_page(scope)
        if self._token is not None and not is_open and not self._has_token(headers):
            return _Refusal(401, str(_UNAUTHORIZED), {"WWW-Authenticate": 'Bearer realm="fidelio"'})
        return None

    def _is_allowed(self, host: str) -> bool:
        if not host:
            return False
        return is_loopback(host) or host in self._hosts or (self._token is not None and _is_address(host))

    def _has_token(self, headers: Mapping[bytes, bytes]) -> bool:
        scheme, _, credentials = headers.get(b"authorization", b"").partition(b" ")
        sent = credentials.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"").strip()
        # Compared in constant time, against timing attacks.
        return hmac.compare_digest(sent, self._token or b"") and bool(sent)


def _is_json(path: str) -> bool:
    return path.startswith(JSON_PREFIX) or path == JSON_PREFIX.rstrip("/")


def _read_headers(scope: Scope) -> dict[bytes, bytes]:
    return dict(reversed(scope["headers"]))


def _is_address(host: str) -> bool:
    """Whether the host is an IP address, which DNS rebinding cannot use."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _parse_host(address: bytes) -> str:
    """Return the host of an address, or an empty string."""
    if len(address) > MAX_ADDRESS_LENGTH:
        return ""
    try:
        return (urlsplit(address.decode("latin-1")).hostname or "").lower()
    except ValueError:
        return ""


class _Refusal(JSONResponse):
    """A request that is not let through."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__({"error": sentence}, status_code=status, headers=headers)
        self.sentence, self.extra = sentence, headers or {}
