"""Format of an anchor: canonical JSON on a single line, its signature and its digest.

The bytes of a valid anchor are exactly those that `encode_anchor` writes: no spaces, keys in alphabetical order, nothing but
ASCII. A file that means the same but is written differently is refused, so that a digest names an anchor unambiguously. A file
is input of a stranger: its size, types, order and numbers are checked before anything is compared with it.
"""

from __future__ import annotations

import hashlib
import re
from itertools import pairwise
from typing import Annotated, Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fidelio.errors import AnchorProblem

VERSION: Literal[1] = 1
FORMAT: Literal["fidelio.anchor"] = "fidelio.anchor"
# An anchor of a million sessions has 95 MB.
MAX_BYTES = 128 << 20
_DOMAIN = b"fidelio.anchor.v1\n"
# The last moment that can be formatted, the end of the year 9999.
_END_OF_TIME = 253_402_300_800_000

Number = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
HashText = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
OptionalHash = Annotated[str, msgspec.Meta(pattern=r"^([0-9a-f]{64})?\Z")]
SessionId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._:~-]{0,199}\Z")]
Head = tuple[SessionId, Number, HashText]
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is signed. `heads`: session, its last sequence number and the hash of that event, in the order of the ids.

    `key` is the public key. `ledger` is the hash of the first event of the ledger. `position` was read before the heads: every
    event up to it is covered. `number` counts the anchors of a `series`, and `previous` is the digest of the one before.
    """

    count: Number
    heads: tuple[Head, ...]
    key: HashText
    ledger: OptionalHash
    number: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    position: Number
    previous: OptionalHash
    series: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-z]{12}\Z")]
    time: Annotated[int, msgspec.Meta(ge=0, lt=_END_OF_TIME)]


class Anchor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A signed statement. `time_stamp` is the reply of a time-stamping server over `digest`, in base64."""

    format: Literal["fidelio.anchor"]
    signature: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{128}\Z")]
    statement: Statement
    time_stamp: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9+/]*={0,2}\Z", max_length=200_000)] = ""
    version: Literal[1]

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the key that has signed."""
        return fingerprint(bytes.fromhex(self.statement.key))

    @property
    def digest(self) -> bytes:
        """Names the anchor, in the next anchor of the series and at a time-stamping server."""
        return hashlib.sha256(_message(self.statement) + bytes.fromhex(self.signature)).digest()


class _AnyVersion(msgspec.Struct):
    format: str
    version: int


def sign_statement(statement: Statement, secret: bytes) -> Anchor:
    signature = Ed25519PrivateKey.from_private_bytes(secret).sign(_message(statement))
    return Anchor(format=FORMAT, signature=signature.hex(), statement=statement, version=VERSION)


def has_valid_signature(anchor: Anchor) -> bool:
    """Whether the key in the anchor has signed it. Whose key that is has to be decided by the caller."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(anchor.statement.key))
        key.verify(bytes.fromhex(anchor.signature), _message(anchor.statement))
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key(secret: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def fingerprint(key: bytes) -> str:
    """SHA-256 of a public key, in hexadecimal digits."""
    return hashlib.sha256(key).hexdigest()


def is_fingerprint(text: str) -> bool:
    return _FINGERPRINT.fullmatch(text) is not None


def encode_anchor(anchor: Anchor) -> bytes:
    return msgspec.json.encode(anchor) + b"\n"


def parse_anchor(content: bytes, source: str) -> Anchor:
    """Read an anchor from `source`, which errors name; raises `AnchorProblem`."""
    if len(content) > MAX_BYTES:
        raise _unreadable(source, f"it has more than {MAX_BYTES >> 20} MiB")
    try:
        _check_version(content, source)
        anchor = msgspec.json.decode(content, type=Anchor)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _unreadable(source, str(error)) from error
    _check_heads(anchor.statement, source)
    if encode_anchor(anchor).rstrip(b"\n") != content.rstrip(b"\n"):
        raise _unreadable(source, "its JSON is not in the form that Fidelio writes")
    return anchor


def _check_version(content: bytes, source: str) -> None:
    found = msgspec.json.decode(content, type=_AnyVersion)
    if found.format != FORMAT:
        raise _unreadable(source, f"its format is {found.format!r:.80}")
    if found.version != VERSION:
        raise AnchorProblem(
            f"The anchor in {source} has version {found.version}; this Fidelio reads version {VERSION}.",
            remedy="Verify it with the version of Fidelio that wrote it, or a newer one.",
        )


def _check_heads(statement: Statement, source: str) -> None:
    if statement.count != len(statement.heads):
        raise _unreadable(source, f"it lists {len(statement.heads)} sessions and claims {statement.count}")
    for before, after in pairwise(statement.heads):
        if before[0] == after[0]:
            raise _unreadable(source, f"it lists the session {after[0]} twice")
        if before[0] > after[0]:
            raise _unreadable(source, f"the session {after[0]} is not in its place")


def _message(statement: Statement) -> bytes:
    return _DOMAIN + msgspec.json.encode(statement)


def _unreadable(source: str, reason: str) -> AnchorProblem:
    return AnchorProblem(f"{source} holds no valid anchor: {reason}.", remedy="Use the anchor as Fidelio wrote it.")
