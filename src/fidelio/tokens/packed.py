"""Sealed tokens with a compressed payload of variable length.

    v1.gzB64.<payload>.<key id>.<mac>

The payload is gzip in base64url. The MAC is verified before the payload is decompressed, and decompression stops at a limit,
which also protects against a faulty holder of the keys.
"""

from __future__ import annotations

import re
import zlib

from fidelio.errors import BadToken
from fidelio.tokens.keyring import KeyRing
from fidelio.tokens.seal import compute_mac, encode_base64, read_genuine

PREFIX = "v1.gzB64."
# A record holds at most a quarter of a megabyte of variables; the parents that wait for a session may hold as much.
MAX_BYTES = 1024 * 1024
MAX_LENGTH = 2 * MAX_BYTES
# The text is small and compressed with every call. Setting up the tables takes most of the time, so they are small; the fastest
# level compresses within a few percent of the best.
_LEVEL = 1
_GZIP_SMALL_WINDOW = 16 + 12
_SMALL_TABLES = 4
_GZIP_ANY_WINDOW = 16 + 15
_SHAPE = re.compile(r"(?P<body>v1\.gzB64\.(?P<content>[A-Za-z0-9_-]{2,})\.(?P<kid>[0-9a-z]{6}))\.(?P<mac>[A-Za-z0-9_-]{43})")


class PackedSeal:
    """Seals and opens packed tokens of a purpose."""

    def __init__(self, keys: KeyRing, purpose: str) -> None:
        self._keys = keys
        self._purpose = purpose.encode()

    def seal(self, content: bytes) -> str:
        key = self._keys.active()
        body = f"{PREFIX}{encode_base64(_compress(content))}.{key.kid}"
        return f"{body}.{compute_mac(key, self._purpose, body)}"

    def open(self, token: str) -> bytes:
        """The content of a genuine token; `BadToken` otherwise."""
        content = read_genuine(self._keys, self._purpose, token, _SHAPE, MAX_LENGTH)
        if content is None:
            raise _make_bad_token()
        return _decompress(content)


def _compress(content: bytes) -> bytes:
    packing = zlib.compressobj(_LEVEL, wbits=_GZIP_SMALL_WINDOW, memLevel=_SMALL_TABLES)
    return packing.compress(content) + packing.flush()


def _decompress(packed: bytes) -> bytes:
    unpacking = zlib.decompressobj(wbits=_GZIP_ANY_WINDOW)
    try:
        content = unpacking.decompress(packed, MAX_BYTES)
    except zlib.error:
        raise _make_bad_token() from None
    if not unpacking.eof or unpacking.unused_data:
        raise _make_bad_token()
    return content


def _make_bad_token() -> BadToken:
    return BadToken(
        "This state is not genuine: it was changed, cut short, or sealed with keys this server does not have.",
        remedy="Use the newest state exactly as it was returned, on a server that shares the key ring, or call nav_start.",
    )
