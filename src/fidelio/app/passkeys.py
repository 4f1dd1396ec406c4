"""Passkeys and what they sign: the challenge of an answer, the check of a signature, and the reading of a new key. Pure.

What is signed names the session, the request, the digest of its question, the option, the text and a nonce, so a signature
answers this question in this way and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from cryptography.exceptions import InvalidSignature
from fido2 import cbor
from fido2.cose import CoseKey
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import AttestationObject, AuthenticatorData, CollectedClientData

from fidelio.errors import PersonKeyProblem
from fidelio.ledger.marks import hash_json
from fidelio.ledger.model import Request

_ANSWER, _REGISTRATION = "fidelio.answer.v1", "fidelio.key.v1"
KeyState = Literal["requested", "registered", "removed"]


class PersonKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key of a person. `public` is its COSE key, `host` the name of the page that it was made for.

    `by` has requested it, then confirmed it, `confirmed_with` says how; `time` is that of the request.
    """

    id: str
    name: str
    public: str
    host: str
    fingerprint: str
    state: KeyState = "requested"
    code: str = ""
    expires: int = 0
    by: str = ""
    confirmed_with: str = ""
    time: int = 0
    confirmed_at: int = 0
    removed_by: str = ""
    removed_at: int = 0


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
    return _hash(_REGISTRATION, {"nonce": nonce, "id": key.id, "public": key.public, "host": key.host})


def find_signature_problem(key: PersonKey, signature: Signature, challenge: bytes) -> str:
    """Why this key has not signed the challenge; empty if it has. Pure."""
    try:
        client = CollectedClientData(websafe_decode(signature.client_data))
        data = AuthenticatorData(websafe_decode(signature.authenticator_data))
        public = CoseKey.parse(_decode_map(key.public))
        if problem := _find_client_problem(client, "webauthn.get", challenge, key.host):
            return problem
        if not hmac.compare_digest(data.rp_id_hash, hashlib.sha256(key.host.encode()).digest()):
            return "it was made for another host"
        if not (data.is_user_present() and data.is_user_verified()):
            return "the authenticator did not verify its owner"
        public.verify(bytes(data) + client.hash, websafe_decode(signature.signature))
    except InvalidSignature:
        return "the signature is not genuine"
    except (ValueError, TypeError, KeyError, NotImplementedError) as error:
        return f"it cannot be read ({type(error).__name__})"
    return ""


def read_new_key(name: str, client_data: str, attestation: str, challenge: bytes) -> PersonKey:
    """The key that an authenticator has made. Raises `PersonKeyProblem`."""
    try:
        client = CollectedClientData(websafe_decode(client_data))
        made = AttestationObject(websafe_decode(attestation)).auth_data
        host = urlsplit(client.origin).hostname or ""
        problem = _find_client_problem(client, "webauthn.create", challenge, host)
        credential = made.credential_data
        if credential is None or made.rp_id_hash != hashlib.sha256(host.encode()).digest() or not made.is_user_verified():
            problem = problem or "the authenticator made no key for this page, or did not verify its owner"
        if problem or credential is None:
            raise PersonKeyProblem(f"The key cannot be registered: {problem}.", remedy="Load the page and try again.")
        public = cbor.encode(dict(credential.public_key))
    except (ValueError, TypeError, KeyError, NotImplementedError) as error:
        raise PersonKeyProblem("What the authenticator sent cannot be read.", remedy="Load the page and try again.") from error
    return PersonKey(
        id=websafe_encode(credential.credential_id),
        name=name.strip()[:60] or "passkey",
        public=websafe_encode(public),
        host=host,
        fingerprint=hashlib.sha256(public).hexdigest()[:32],
    )


def _find_client_problem(client: CollectedClientData, type_: str, challenge: bytes, host: str) -> str:
    if client.type != type_ or client.cross_origin:
        return "it was made for something else"
    if not hmac.compare_digest(client.challenge, challenge):
        return "it signs another answer"
    return "" if urlsplit(client.origin).hostname == host else "it was made on another page"


def _decode_map(text: str) -> Mapping[int, Any]:
    decoded = cbor.decode(websafe_decode(text))
    if not isinstance(decoded, Mapping):
        raise TypeError("not a map")
    return decoded


def _hash(domain: str, subject: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(domain.encode() + b"\0" + msgspec.json.encode(subject, order="sorted")).digest()
