"""Seal a payload into an opaque token, and verify tokens.

    f1.<key id>.<payload>.<mac>

The payload is compact JSON in base64url; the MAC is HMAC-SHA256 over the purpose and everything before it, compared in constant
time as text. So every token has one spelling, a token of one purpose is invalid for another, and there is no algorithm field.
The payload is not parsed before the MAC is verified.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from fidelio.errors import BadToken, ExpiredToken
from fidelio.tokens.keyring import Key, KeyRing

VERSION = "f1"
# Far longer than any token of this server; a longer text is refused without further processing.
MAX_LENGTH = 4096
_EXPIRY = "exp"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_SHAPE = re.compile(
    rf"(?P<body>{VERSION}\.(?P<kid>[0-9a-z]{{6}})\.(?P<content>[A-Za-z0-9_-]{{2,}}))\.(?P<mac>[A-Za-z0-9_-]{{43}})"
)


class Seal:
    """Seals and opens tokens of a purpose, such as `session` or `trace`."""

    def __init__(self, keys: KeyRing, purpose: str) -> None:
        self._keys = keys
        self._purpose = purpose.encode()

    def seal(self, payload: Mapping[str, Any], *, expires: int | None = None) -> str:
        """`expires` is the moment, in milliseconds, from which the token is refused."""
        key = self._keys.active()
        content = dict(payload) if expires is None else {**payload, _EXPIRY: expires}
        body = f"{VERSION}.{key.kid}.{encode_base64(msgspec.json.encode(content))}"
        return f"{body}.{compute_mac(key, self._purpose, body)}"

    def open(self, token: str, *, now: int) -> dict[str, Any]:
        """The payload of a genuine token; `BadToken` or `ExpiredToken` otherwise."""
        content = read_genuine(self._keys, self._purpose, token, _SHAPE, MAX_LENGTH)
        if content is None:
            raise _make_bad_token()
        return _check_expiry(msgspec.json.decode(content, type=dict[str, Any]), now)


def compute_mac(key: Key, purpose: bytes, body: str) -> str:
    mac = _begin_mac(key.secret).copy()
    mac.update(purpose + b"\0" + body.encode())
    return encode_base64(mac.digest())


@lru_cache(maxsize=8)
def _begin_mac(secret: bytes) -> hmac.HMAC:
    """HMAC-SHA256 after the key. A call makes two or three codes; beginning with the key took 4 percent of its CPU time."""
    return hmac.new(secret, digestmod="sha256")


def read_genuine(keys: KeyRing, purpose: bytes, token: str, shape: re.Pattern[str], max_length: int) -> bytes | None:
    """The content of a genuine token, otherwise None. `shape` has the groups body, kid, content and mac."""
    match = shape.fullmatch(token) if len(token) <= max_length else None
    key = keys.find(match["kid"]) if match else None
    # Compared in constant time, to prevent timing attacks.
    if match and key and hmac.compare_digest(compute_mac(key, purpose, match["body"]), match["mac"]):
        return decode_base64(match["content"])
    return None


def read_unverified(token: str) -> dict[str, Any] | None:
    """The payload of a token without verification. Only for adoption of unverified sessions."""
    fields = token.split(".", 3) if len(token) <= MAX_LENGTH else []
    if len(fields) != 4 or fields[0] != VERSION:
        return None
    try:
        claimed = json.loads(decode_base64(fields[2]))
    except (ValueError, RecursionError):
        return None
    return claimed if isinstance(claimed, dict) else None


def _check_expiry(payload: dict[str, Any], now: int) -> dict[str, Any]:
    expires = payload.pop(_EXPIRY, None)
    if expires is not None and now >= expires:
        raise ExpiredToken("This token has expired.", remedy="Ask for a new one.")
    return payload


def _make_bad_token() -> BadToken:
    return BadToken(
        "This token is not genuine: it was changed, cut short, or sealed with keys this server does not have.",
        remedy="Use the newest token exactly as the server returned it, or call start_session for a new one.",
    )


def encode_base64(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).translate(_URL_SAFE, b"=").decode()


def decode_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
