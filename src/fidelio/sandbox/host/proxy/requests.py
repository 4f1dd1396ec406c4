"""Requests to the proxy: `CONNECT host:443`, or a plain request with an absolute `http://` URL.

The parser is strict. What two programs could understand differently (a bare line feed, two lengths, a folded header) is
refused, because the server behind the proxy might take a part of a body for another request.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from fidelio.sandbox.host.proxy.addresses import normalize_name

MAX_HEAD = 16 << 10
# Headers that concern one connection, RFC 9110 7.6.1, and those that would open the way for anything else than HTTP.
_HOP_HEADERS = frozenset(
    {"connection", "proxy-connection", "proxy-authorization", "keep-alive", "te", "trailer", "upgrade", "http2-settings"}
)
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105  # the grammar of RFC 9110
_REQUEST_LINE = re.compile(rf"({_TOKEN}) (\S+) HTTP/1\.[01]", re.ASCII)
_HEADER = re.compile(rf"({_TOKEN}):[ \t]*([\t -~]*?)[ \t]*", re.ASCII)
_AUTHORITY = re.compile(r"([^\s:/?#@\[\]]+)(?::([0-9]{1,5}))?", re.ASCII)
_HTTP_URL = re.compile(r"http://([^/?#\s]*)([^#\s]*)(?:#\S*)?", re.IGNORECASE | re.ASCII)


class RequestProblem(Exception):
    """A request that the proxy refuses. `reason` is a stable code for the log."""

    def __init__(self, reason: str, sentence: str, *, status: int = 403, host: str = "", port: int = 0) -> None:
        super().__init__(sentence)
        self.reason, self.status, self.host, self.port = reason, status, host, port


class ProxyRequest(msgspec.Struct, frozen=True):
    """A request that is well formed. `head` is what a plain request sends to the server, and `length` the bytes of its body."""

    kind: Literal["tunnel", "plain"]
    host: str
    port: int
    head: bytes = b""
    length: int = 0


def parse_request(head: bytes) -> ProxyRequest:
    """Parse the head of a request, without the empty line at its end. Raises `RequestProblem`."""
    lines = _split_lines(head)
    match = _REQUEST_LINE.fullmatch(lines[0])
    if match is None:
        raise RequestProblem("malformed", "The request line is not valid.", status=400)
    method, target = match.groups()
    headers = [_parse_header(line) for line in lines[1:]]
    return _parse_tunnel(target) if method == "CONNECT" else _parse_plain(method, target, headers)


def _split_lines(head: bytes) -> list[str]:
    try:
        text = head.decode("ascii")
    except UnicodeDecodeError as error:
        raise RequestProblem("malformed", "The head of the request is not ASCII.", status=400) from error
    lines = text.split("\r\n")
    if any(character in line for line in lines for character in "\r\n\0"):
        raise RequestProblem("malformed", "A line of the request does not end with CR LF.", status=400)
    return lines


def _parse_header(line: str) -> tuple[str, str]:
    match = _HEADER.fullmatch(line)
    if match is None:
        raise RequestProblem("malformed", "A header of the request is not valid.", status=400)
    return match[1].lower(), match[2]


def _parse_tunnel(target: str) -> ProxyRequest:
    host, port = _parse_authority(target, default=0)
    if port != 443:
        raise RequestProblem(
            "port", f"Port {port} is not allowed. Use 443 with TLS, or http:// on port 80.", host=host, port=port
        )
    return ProxyRequest("tunnel", host, port)


def _parse_plain(method: str, target: str, headers: list[tuple[str, str]]) -> ProxyRequest:
    match = _HTTP_URL.fullmatch(target)
    if match is None:
        raise RequestProblem("malformed", "A plain request to a proxy has an absolute http:// URL.", status=400)
    host, port = _parse_authority(match[1], default=80)
    if port != 80:
        raise RequestProblem("port", f"Port {port} is not allowed for plain HTTP. Use port 80.", host=host, port=port)
    named = [value for name, value in headers if name == "host"]
    if len(named) != 1 or _parse_authority(named[0], default=80) != (host, port):
        raise RequestProblem("host_header", f"The header Host does not name {host}.", host=host, port=port)
    return ProxyRequest("plain", host, port, _encode_head(method, match[2], host, headers), _read_length(headers, host, port))


def _parse_authority(text: str, *, default: int) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(text)
    name = normalize_name(match[1]) if match else ""
    port = int((match and match[2]) or default)
    if not name:
        raise RequestProblem("address", "The target is not a host name. Addresses are not allowed.", host=text[:253], port=port)
    return name, port


def _read_length(headers: list[tuple[str, str]], host: str, port: int) -> int:
    if any(name == "transfer-encoding" for name, _ in headers):
        raise RequestProblem("length", "A body needs Content-Length here.", status=411, host=host, port=port)
    lengths = [value for name, value in headers if name == "content-length"]
    if len(lengths) > 1 or not all(re.fullmatch(r"[0-9]{1,15}", value, re.ASCII) for value in lengths):
        raise RequestProblem("malformed", "Content-Length is not valid.", status=400, host=host, port=port)
    return int(lengths[0]) if lengths else 0


def _encode_head(method: str, path: str, host: str, headers: list[tuple[str, str]]) -> bytes:
    """The head for the server: origin form, and a single request per connection, so that no other is forwarded unread."""
    target = path if path.startswith("/") else f"/{path}"
    dropped = _HOP_HEADERS | {
        option.strip().lower() for name, value in headers if name == "connection" for option in value.split(",")
    }
    # Without its length the body would be another request, which nobody has checked.
    remaining = [(name, value) for name, value in headers if name == "content-length" or name not in dropped]
    forwarded = [f"{name}: {value}" for name, value in remaining if name != "host"]
    lines = [f"{method} {target} HTTP/1.1", f"host: {host}", *forwarded, "connection: close", "", ""]
    return "\r\n".join(lines).encode("ascii")
