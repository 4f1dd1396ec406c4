"""Passkeys and what they sign: the challenge of an answer, the check of a signature, and the reading of a new key. Pure.

What is signed names the session, the request, the digest of its question, the option, the text and a nonce, so a signature
answers this question in this way and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from fido2 import cbor
from fido2.cose import CoseKey
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import AttestationObject, AuthenticatorData, CollectedClientData

from fidelio.errors import PersonKeyProblem
from fidelio.ledger.marks import hash_json
from fidelio.ledger.model import Request

_ANSWER, _REGISTRATION = "fidelio.answer.v1", "fidelio.key.v1"
KeyState = Literal["requested", "registered", "removed"]
LONGEST_FIELD = 8_192
# What the readers of CBOR, JSON, base64 and keys raise for foreign data: none has an exception of its own for it.
UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, NotImplementedError, RecursionError),
    *(struct.error, UnsupportedAlgorithm),
)


class PersonKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a person. `public` is its COSE key, `host` the name and `origin` the page (with its port) that it was made for.

    `by` has requested it, then confirmed it, `confirmed_with` says how; `time` is that of the request. The positions are those
    of its confirmation and removal in the ledger.
    """

    id: str
    name: str
    public: str
    host: str
    # Empty for a key that an earlier version registered.
    origin: str = ""
    fingerprint: str = ""
    state: KeyState = "requested"
    code: str = ""
    expires: int = 0
    by: str = ""
    confirmed_with: str = ""
    time: int = 0
    confirmed_at: int = 0
    confirmed_position: int = 0
    removed_by: str = ""
    removed_at: int = 0
    removed_position: int = 0

    @property
    def page(self) -> str:
        """Where it signs, for people."""
        return self.origin or self.host


class Signature(msgspec.Struct, frozen=True):
    """What an authenticator returns for an answer. All binary values are base64url."""

    key: str
    nonce: str
    client_data: str
    authenticator_data: str
    signature: str


def compute_challenge(request: Request, option: str, text: str, nonce: str) -> bytes:
    """What is signed for an answer."""
    return compute_digested_challenge(request, digest_question(request), option, text, nonce)


def digest_question(request: Request) -> str:
    """Everything that an answer says yes or no to: the texts, and for a permission exactly what it allows.

    The detail of a permission holds the digest of the call, which changed arguments do not fit.
    """
    approved = {"detail": request.detail} if "digest" in request.detail else {}
    return hash_json({"question": request.question, "options": list(request.options), **approved})


def compute_digested_challenge(request: Request, question: str, option: str, text: str, nonce: str) -> bytes:
    """The same, with the digest of the question."""
    subject = {"session": request.session, "request": request.id, "question": question}
    return _hash(_ANSWER, {**subject, "option": option, "text": text, "nonce": nonce})


def compute_registration_challenge(nonce: str) -> bytes:
    return _hash(_REGISTRATION, {"nonce": nonce})


def compute_key_challenge(key: PersonKey, nonce: str) -> bytes:
    """What a registered key signs to confirm another key."""
    return _hash(_REGISTRATION, {"nonce": nonce, "id": key.id, "public": key.public, "origin": key.origin, "host": key.host})


def find_signature_problem(key: PersonKey, signature: Signature, challenge: bytes) -> str:
    """Why this key has not signed the challenge; empty if it has. Pure."""
    if any(len(value) > LONGEST_FIELD for value in msgspec.structs.astuple(signature)):
        return "it is too long"
    try:
        client = CollectedClientData(websafe_decode(signature.client_data))
        data = AuthenticatorData(websafe_decode(signature.authenticator_data))
        public = CoseKey.parse(_decode_map(key.public))
        if problem := _find_client_problem(client, "webauthn.get", challenge) or _find_page_problem(client, data, key):
            return problem
        public.verify(bytes(data) + client.hash, websafe_decode(signature.signature))
    except InvalidSignature:
        return "the signature is not genuine"
    except UNREADABLE as error:
        return f"it cannot be read ({type(error).__name__})"
    return ""


def _find_page_problem(client: CollectedClientData, data: AuthenticatorData, key: PersonKey) -> str:
    if not _is_origin(client.origin, key):
        return "it was made on another page than the key"
    if not hmac.compare_digest(data.rp_id_hash, hashlib.sha256(key.host.encode()).digest()):
        return "it was made for another host"
    if not (data.is_user_present() and data.is_user_verified()):
        return "the authenticator did not verify its owner"
    return ""


def _is_origin(origin: str, key: PersonKey) -> bool:
    """Whether a page is that of a key. Other ports of a host belong to other programs, which browsers let use its keys too."""
    if key.origin:
        return origin == key.origin
    address = urlsplit(origin)
    is_page = address.scheme in ("http", "https") and origin == f"{address.scheme}://{address.netloc}"
    return is_page and address.hostname == key.host and "@" not in address.netloc


def read_origin(client_data: str) -> str:
    """The page on which something was signed, as the browser has noted it; empty if that cannot be read."""
    try:
        return str(CollectedClientData(websafe_decode(client_data[:LONGEST_FIELD])).origin)
    except UNREADABLE:
        return ""


def compute_fingerprint(public: str) -> str:
    """What people compare. Always computed from the key itself: what a record says about it may be that of another key."""
    return hashlib.sha256(websafe_decode(public)).hexdigest()[:32]


def read_new_key(name: str, client_data: str, attestation: str, challenge: bytes, *, origin: str) -> PersonKey:
    """The key that an authenticator has made on the page `origin`. Raises `PersonKeyProblem`."""
    if len(client_data) > LONGEST_FIELD or len(attestation) > LONGEST_FIELD:
        raise PersonKeyProblem("What the authenticator sent is too long.", remedy="Load the page and try again.")
    try:
        client = CollectedClientData(websafe_decode(client_data))
        made = AttestationObject(websafe_decode(attestation)).auth_data
        host = urlsplit(origin).hostname or ""
        problem = _find_client_problem(client, "webauthn.create", challenge)
        if client.origin != origin:
            problem = problem or "it was made on another page"
        credential = made.credential_data
        if credential is None or made.rp_id_hash != hashlib.sha256(host.encode()).digest() or not made.is_user_verified():
            problem = problem or "the authenticator made no key for this page, or did not verify its owner"
        if problem or credential is None:
            raise PersonKeyProblem(f"The key cannot be registered: {problem}.", remedy="Load the page and try again.")
        public = cbor.encode(dict(credential.public_key))
    except UNREADABLE as error:
        raise PersonKeyProblem("What the authenticator sent cannot be read.", remedy="Load the page and try again.") from error
    return PersonKey(
        id=websafe_encode(credential.credential_id),
        name=name.strip()[:60] or "passkey",
        public=websafe_encode(public),
        host=host,
        origin=origin,
        fingerprint=compute_fingerprint(websafe_encode(public)),
    )


def _find_client_problem(client: CollectedClientData, type_: str, challenge: bytes) -> str:
    if client.type != type_ or client.cross_origin:
        return "it was made for something else"
    if not hmac.compare_digest(client.challenge, challenge):
        return "it signs another answer"
    return ""


def _decode_map(text: str) -> Mapping[int, Any]:
    decoded = cbor.decode(websafe_decode(text))
    if not isinstance(decoded, Mapping):
        raise TypeError("not a map")
    return decoded


def _hash(domain: str, subject: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(domain.encode() + b"\0" + msgspec.json.encode(subject, order="sorted")).digest()
