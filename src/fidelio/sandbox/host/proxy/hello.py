"""The server name in a TLS ClientHello (RFC 8446 4.1.2, RFC 6066 3).

In a tunnel the name in CONNECT decides whether the connection is allowed, and the name in the ClientHello which site answers.
Both must be the same. The bytes come from the sandbox: every length is checked, and nothing is decrypted.
"""

from __future__ import annotations

import msgspec

# More than any client sends, with room for post-quantum key shares.
MAX_HELLO = 64 << 10
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D
_HOST_NAME = 0
_MAX_RECORD = (1 << 14) + 256


class ClientHello(msgspec.Struct, frozen=True):
    """What the proxy needs of a ClientHello. `name` is empty if there is none."""

    name: str
    is_encrypted: bool


class HelloProblem(Exception):
    """The bytes are not a ClientHello."""


class _Reader:
    """Reads numbers and vectors of TLS."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def __bool__(self) -> bool:
        return self._position < len(self._data)

    def read(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._data):
            raise HelloProblem("a length goes beyond the end")
        found, self._position = self._data[self._position : end], end
        return found

    def rest(self) -> bytes:
        return self.read(len(self._data) - self._position)

    def number(self, size: int) -> int:
        return int.from_bytes(self.read(size))

    def vector(self, size: int) -> _Reader:
        return _Reader(self.read(self.number(size)))


def read_hello(data: bytes) -> ClientHello | None:
    """The ClientHello at the beginning of a connection; None if more bytes are needed. Raises `HelloProblem`."""
    message = _join_records(data)
    if len(message) < 4:
        return None
    reader = _Reader(message)
    if reader.number(1) != _CLIENT_HELLO:
        raise HelloProblem("the first message is not a ClientHello")
    length = reader.number(3)
    if length > MAX_HELLO:
        raise HelloProblem(f"a ClientHello of {length} bytes is longer than {MAX_HELLO}")
    return _parse_hello(_Reader(reader.read(length))) if len(message) >= 4 + length else None


def _join_records(data: bytes) -> bytes:
    """The content of the complete handshake records: a message may be split over several."""
    content, position = b"", 0
    while position < len(data):
        if data[position] != _HANDSHAKE or (position + 1 < len(data) and data[position + 1] != 3):
            raise HelloProblem("the connection does not begin with a TLS handshake")
        if len(data) < position + 5:
            break
        length = int.from_bytes(data[position + 3 : position + 5])
        if not 0 < length <= _MAX_RECORD:
            raise HelloProblem(f"a TLS record has {length} bytes")
        if len(data) < position + 5 + length:
            break
        content += data[position + 5 : position + 5 + length]
        position += 5 + length
        if len(content) >= 4 and len(content) >= 4 + int.from_bytes(content[1:4]):
            break
    return content


def _parse_hello(hello: _Reader) -> ClientHello:
    hello.read(2 + 32)
    # Session id, cipher suites, compression methods.
    for size in (1, 2, 1):
        hello.vector(size)
    extensions = hello.vector(2) if hello else _Reader(b"")
    name, is_encrypted, seen = "", False, set[int]()
    while extensions:
        kind, body = extensions.number(2), extensions.vector(2)
        if kind in seen:
            raise HelloProblem("an extension stands there twice")
        seen.add(kind)
        is_encrypted = is_encrypted or kind == _ENCRYPTED_HELLO
        name = _parse_name(body) if kind == _SERVER_NAME else name
    return ClientHello(name, is_encrypted)


def _parse_name(body: _Reader) -> str:
    names = body.vector(2)
    if names.number(1) != _HOST_NAME:
        raise HelloProblem("the server name has an unknown type")
    name = names.vector(2).rest()
    if names or body:
        raise HelloProblem("there are several server names")
    try:
        return name.decode("ascii").lower()
    except UnicodeDecodeError as error:
        raise HelloProblem("the server name is not ASCII") from error
