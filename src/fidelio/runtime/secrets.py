"""Encryption of secrets in the ledger: variables of the shell, values of vaults.

    e1.<key id>.<nonce and ciphertext>

AES-256-GCM with a key that HKDF derives from the key ring for a purpose. The associated data says what the secret is (session
and name), so a sealed text that is moved elsewhere does not open there. The id of the key is in the text: what an earlier key
has sealed still opens after a rotation, and `needs_reseal` finds it. This protects a copied database, not a stolen home.

A keyed digest stands for a value in an event: equal values of one name have equal digests, and nobody without the key can try
values. This module never logs, and its errors never contain a value.
"""

from __future__ import annotations

import hmac
import re
import secrets
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fidelio.errors import KeyRingProblem, RecordMismatch
from fidelio.tokens.keyring import Key, KeyRing
from fidelio.tokens.seal import decode_base64, encode_base64

VERSION = "e1"
# The size that GCM is defined for; random nonces of it are safe for far more values than a session has.
_NONCE_BYTES = 12
_KEY_BYTES = 32
_SHAPE = re.compile(rf"{VERSION}\.(?P<kid>[0-9a-z]{{6}})\.(?P<content>[A-Za-z0-9_-]{{38,}})")
_DIGEST_SHAPE = re.compile(r"(?P<kid>[0-9a-z]{6})\.[A-Za-z0-9_-]{43}")


def seal(keys: KeyRing, purpose: str, aad: str, plain: str) -> str:
    """Encrypt a text. It opens only with the same purpose and the same associated data."""
    key = keys.active()
    nonce = secrets.token_bytes(_NONCE_BYTES)
    content = _make_cipher(key, purpose).encrypt(nonce, plain.encode(), aad.encode())
    return f"{VERSION}.{key.kid}.{encode_base64(nonce + content)}"


def open_sealed(keys: KeyRing, purpose: str, aad: str, text: str) -> str:
    """Decrypt a text of `seal`. Raises `KeyRingProblem` without its key, and `RecordMismatch` if it was changed or moved."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise _make_damaged_error()
    cipher = _make_cipher(_find_key(keys, match["kid"]), purpose)
    try:
        raw = decode_base64(match["content"])
        return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], aad.encode()).decode()
    except (InvalidTag, ValueError) as error:
        raise _make_damaged_error() from error


def needs_reseal(keys: KeyRing, text: str) -> bool:
    """Whether a text was sealed with another key than the active key."""
    match = _SHAPE.fullmatch(text)
    return match is None or match["kid"] != keys.active().kid


def compute_keyed_digest(keys: KeyRing, purpose: str, aad: str, plain: str) -> str:
    """The digest of a value under the active key: `<key id>.<mac>`."""
    return _digest(keys.active(), purpose, aad, plain)


def matches_keyed_digest(keys: KeyRing, purpose: str, aad: str, plain: str, digest: str) -> bool:
    """Whether a digest is that of a value, whichever key of the ring made it."""
    match = _DIGEST_SHAPE.fullmatch(digest)
    key = keys.find(match["kid"]) if match else None
    return key is not None and hmac.compare_digest(_digest(key, purpose, aad, plain), digest)


def _digest(key: Key, purpose: str, aad: str, plain: str) -> str:
    # Lengths in front keep ("ab", "c") and ("a", "bc") apart; the first word keeps digests and tokens apart.
    fields = (b"fidelio.digest.v1", purpose.encode(), aad.encode(), plain.encode())
    message = b"".join(len(field).to_bytes(8, "big") + field for field in fields)
    return f"{key.kid}.{encode_base64(hmac.digest(key.secret, message, 'sha256'))}"


@lru_cache(maxsize=16)
def _make_cipher(key: Key, purpose: str) -> AESGCM:
    derive = HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=b"fidelio.secrets.v1:" + purpose.encode())
    return AESGCM(derive.derive(key.secret))


def _find_key(keys: KeyRing, kid: str) -> Key:
    key = keys.find(kid)
    if key is None:
        raise KeyRingProblem(
            f"A stored secret was sealed with the key {kid}, which the key ring does not have.",
            remedy="Restore the key ring from a backup, or set the secret again.",
        )
    return key


def _make_damaged_error() -> RecordMismatch:
    return RecordMismatch("A stored secret does not open in its place.")
