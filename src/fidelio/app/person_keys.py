"""Registered keys of people, and the signatures with them that prove who answered.

A key is a passkey: it never leaves the authenticator of its owner, who touches it for every signature. What is signed names the
session, the request, the digest of its question, the option, the text and a nonce, so a signature answers this question in this
way and nothing else. Keys are events of a store in the ledger: registering needs a confirmation in a terminal that is not an
agent's, or a signature with a key that is registered already. Everything that a check needs is on record, so it works offline.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from cryptography.exceptions import InvalidSignature
from fido2 import cbor
from fido2.cose import CoseKey
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import AttestationObject, AuthenticatorData, CollectedClientData
from msgspec.structs import replace

from fidelio.errors import PersonKeyProblem, SessionNotFound
from fidelio.ids import new_id
from fidelio.inbox import PROVEN
from fidelio.inbox.builders import needs_signature
from fidelio.ledger import Ledger
from fidelio.ledger.marks import hash_json
from fidelio.ledger.model import Event, NewEvent, Request
from fidelio.ledger.paging import event_pages
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime.stores import open_store
from fidelio.runtime.tools.model import RuntimeContext

REQUESTED, CONFIRMED, REMOVED = "key.requested", "key.confirmed", "key.removed"
NAMESPACE, STORE_NAME = "runtime-store:keys", "home"
CODE_MS = 10 * 60 * 1000
MOST_KEYS = 50
LONGEST_FIELD = 8_192
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
    return _compute_challenge(request, digest_question(request), option, text, nonce)


def digest_question(request: Request) -> str:
    """Everything that an answer says yes or no to: the texts, and for a permission exactly what it allows.

    The detail of a permission holds the digest of the call, which changed arguments do not fit.
    """
    approved = {"detail": request.detail} if "digest" in request.detail else {}
    return hash_json({"question": request.question, "options": list(request.options), **approved})


def _compute_challenge(request: Request, question: str, option: str, text: str, nonce: str) -> bytes:
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


def fold_keys(events: Iterable[Event]) -> dict[str, PersonKey]:
    """The keys by their ids, from the events of the store. Pure."""
    keys: dict[str, PersonKey] = {}
    for event in events:
        body = event.body
        if event.type == REQUESTED:
            key = msgspec.convert(body["key"], PersonKey)
            keys[key.id] = replace(key, state="requested", time=event.time, by=event.actor)
        elif event.type in (CONFIRMED, REMOVED) and (known := keys.get(body["id"])) is not None:
            keys[known.id] = _confirm(known, event) if event.type == CONFIRMED else _remove(known, event)
    return keys


def _confirm(key: PersonKey, event: Event) -> PersonKey:
    return replace(key, state="registered", confirmed_with=event.body["with"], by=event.actor, confirmed_at=event.time)


def _remove(key: PersonKey, event: Event) -> PersonKey:
    return replace(key, state="removed", removed_by=event.actor, removed_at=event.time)


async def load_keys(ledger: Ledger) -> dict[str, PersonKey]:
    """Every key that was ever requested, by its id. A removed key still proves what it has signed before."""
    try:
        store = await ledger.session_by_name(STORE_NAME, namespace=NAMESPACE)
    except SessionNotFound:
        return {}
    events: list[Event] = []
    async for page in event_pages(ledger, store.id, after=0, types=(REQUESTED, CONFIRMED, REMOVED)):
        events += [event for event in page if not event.redacted]
    return fold_keys(events)


async def check_signature(ledger: Ledger, request: Request, option: str, text: str, proof: Mapping[str, Any]) -> dict[str, Any]:
    """What the record keeps of a proof. Raises `PersonKeyProblem` if it does not prove this answer.

    Implements the port of the inbox.
    """
    try:
        signature = msgspec.convert(proof, Signature)
    except msgspec.ValidationError as error:
        raise PersonKeyProblem("The proof has another form.", remedy="Answer on the page.") from error
    key = (await load_keys(ledger)).get(signature.key)
    if key is None or key.state != "registered":
        raise PersonKeyProblem("This key is not registered here.", remedy="Register it on the page, or use another key.")
    if any(len(value) > LONGEST_FIELD for value in msgspec.structs.astuple(signature)):
        raise PersonKeyProblem("The proof is too long.", remedy="Answer on the page.")
    if problem := find_signature_problem(key, signature, compute_challenge(request, option, text, signature.nonce)):
        raise PersonKeyProblem(
            f"The signature proves nothing: {problem}.", remedy="Load the question again and answer it there."
        )
    return {**msgspec.structs.asdict(signature), "question": digest_question(request), "fingerprint": key.fingerprint}


async def list_signing_keys(ledger: Ledger, sessions: Iterable[str]) -> list[PersonKey]:
    """The keys that have signed answers of these sessions, in the order of their registration."""
    keys, used = await load_keys(ledger), set[str]()
    for session in sessions:
        async for page in event_pages(ledger, session, after=0, types=("request.answered",)):
            proofs = [event.body.get("proof") for event in page if not event.redacted]
            used |= {str(proof.get("key")) for proof in proofs if isinstance(proof, dict)}
    return [key for key in keys.values() if key.id in used]


async def find_proof_problems(ledger: Ledger, session: str) -> list[str]:
    """What is wrong with the signatures of the answers of a session, offline: from the record alone."""
    problems: list[str] = []
    keys = await load_keys(ledger)
    async for page in event_pages(ledger, session, after=0, types=("request.answered",)):
        found = [(event.seq, await _find_problem(ledger, event, keys)) for event in page if not event.redacted]
        problems += [f"event {seq}: {problem}" for seq, problem in found if problem]
    return problems


async def _find_problem(ledger: Ledger, event: Event, keys: Mapping[str, PersonKey]) -> str:
    body, proof = event.body, event.body.get("proof")
    request, option = await ledger.request(body["request"]), body.get("option", "")
    if proof is None and body.get("assurance") != PROVEN:
        is_demanded = needs_signature(request, option, body.get("channel", ""), body.get("assurance", ""))
        return "the answer has to be signed with a registered key, and it is not signed" if is_demanded else ""
    if not isinstance(proof, dict) or (key := keys.get(str(proof.get("key")))) is None:
        return "the answer is called proven, but it has no signature with a known key"
    if key.state == "requested":
        return "the answer was signed with a key that nobody has confirmed"
    signature = msgspec.convert({name: str(proof.get(name, "")) for name in Signature.__struct_fields__}, Signature)
    # Of an erased question only its digest is left, in the record of the answer.
    is_erased = not (request.question or request.options)
    question = str(proof.get("question", "")) if is_erased else digest_question(request)
    challenge = _compute_challenge(request, question, option, body.get("text", ""), signature.nonce)
    problem = find_signature_problem(key, signature, challenge)
    return f"the signature of the answer does not prove it: {problem}" if problem else ""


class PersonKeys:
    """Registers, confirms and removes keys. Only a person does; the surfaces see to that."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    async def list(self) -> list[PersonKey]:
        """The keys that are registered, and those that wait for their confirmation."""
        now = self._context.clock()
        keys = (await load_keys(self._context.ledger)).values()
        return [key for key in keys if key.state == "registered" or (key.state == "requested" and key.expires > now)]

    async def request(self, key: PersonKey, *, by: str) -> str:
        """Note a new key. Returns the code that confirms it in a terminal; the record has only its digest."""
        known = await load_keys(self._context.ledger)
        if key.id in known:
            raise PersonKeyProblem("This key is known already.", remedy="Use it, or make another.")
        if sum(each.state == "registered" for each in known.values()) >= MOST_KEYS:
            raise PersonKeyProblem(f"{MOST_KEYS} keys are registered.", remedy="Remove one first.")
        code = new_id("", 8)
        noted = replace(key, code=_hash_code(code), expires=self._context.clock() + CODE_MS)
        await self._append(NewEvent(type=REQUESTED, body={"key": msgspec.to_builtins(noted)}, actor=by))
        return code

    async def confirm_by_code(self, code: str, *, by: str) -> PersonKey:
        """Register the key that was requested with this code, for a person at a terminal."""
        digest = _hash_code(code.strip().lower())
        waiting = [key for key in await self.list() if key.state == "requested" and hmac.compare_digest(key.code, digest)]
        if not waiting:
            raise PersonKeyProblem(
                "No key waits for this code.", remedy="Register the key on the page again: a code holds ten minutes."
            )
        return await self._confirm(waiting[0], "a terminal", by)

    async def confirm_by_key(self, id_: str, signature: Signature, *, by: str) -> PersonKey:
        """Register a requested key with a signature of a registered key."""
        keys = {key.id: key for key in await self.list()}
        new, signer = keys.get(id_), keys.get(signature.key)
        if new is None or new.state != "requested" or signer is None or signer.state != "registered":
            raise PersonKeyProblem(
                "There is no such key to confirm, or it was not signed by a registered one.", remedy="Try again."
            )
        if problem := find_signature_problem(signer, signature, compute_key_challenge(new, signature.nonce)):
            raise PersonKeyProblem(f"The signature proves nothing: {problem}.", remedy="Try again.")
        return await self._confirm(new, f"the key {signer.fingerprint}", by)

    async def remove(self, fingerprint: str, *, by: str) -> PersonKey:
        """Stop the use of a key. What was signed with it before stays proven."""
        found = [key for key in await self.list() if key.fingerprint.startswith(fingerprint.lower()) and fingerprint]
        if len(found) != 1:
            raise PersonKeyProblem(
                f"{len(found)} keys have a fingerprint that begins with {fingerprint!r:.40}.", remedy="Write more of it."
            )
        await self._append(NewEvent(type=REMOVED, body={"id": found[0].id}, actor=by))
        return found[0]

    async def _confirm(self, key: PersonKey, how: str, by: str) -> PersonKey:
        await self._append(NewEvent(type=CONFIRMED, body={"id": key.id, "with": how}, actor=by))
        return replace(key, state="registered")

    async def _append(self, event: NewEvent) -> None:
        store = await open_store(self._context, "keys")
        await self._context.unit.update(store.id, lambda _: SessionDecision(None, events=(event,)))


def _decode_map(text: str) -> Mapping[int, Any]:
    decoded = cbor.decode(websafe_decode(text))
    if not isinstance(decoded, Mapping):
        raise TypeError("not a map")
    return decoded


def _hash(domain: str, subject: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(domain.encode() + b"\0" + msgspec.json.encode(subject, order="sorted")).digest()


def _hash_code(code: str) -> str:
    return hashlib.sha256(b"fidelio.code.v1\0" + code.encode()).hexdigest()
