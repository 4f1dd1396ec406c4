"""Registered keys of people, and the signatures with them that prove who answered.

A key is a passkey: it never leaves the authenticator of its owner, who touches it for every signature. Keys are
events of a store in the ledger: registering needs a confirmation in a terminal that is not an agent's, or a signature with a
key that is registered already. Everything that a check needs is on record, so it works offline.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.app.passkeys import (
    UNREADABLE,
    PersonKey,
    Signature,
    compute_challenge,
    compute_digested_challenge,
    compute_fingerprint,
    compute_key_challenge,
    digest_question,
    find_signature_problem,
)
from fidelio.errors import ChainBroken, PersonKeyProblem, RequestNotFound, SessionNotFound
from fidelio.ids import new_id
from fidelio.inbox import PROVEN
from fidelio.inbox.builders import needs_signature
from fidelio.ledger import Ledger
from fidelio.ledger.audit import verify_session
from fidelio.ledger.model import Event, NewEvent, Request
from fidelio.ledger.paging import event_pages
from fidelio.ledger.unit_of_work import SessionDecision
from fidelio.runtime.stores import open_store
from fidelio.runtime.tools.model import RuntimeContext

REQUESTED, CONFIRMED, REMOVED = "key.requested", "key.confirmed", "key.removed"
NAMESPACE, STORE_NAME = "runtime-store:keys", "home"
CODE_MS = 10 * 60 * 1000
MOST_KEYS = 50


class KeyStore(msgspec.Struct, frozen=True):
    """The keys of a home by their ids. `problems`: what its events say of a key and what therefore counts for nothing."""

    keys: dict[str, PersonKey] = msgspec.field(default_factory=dict)
    problems: dict[str, str] = msgspec.field(default_factory=dict)


def fold_keys(events: Iterable[Event]) -> KeyStore:
    """The keys from the events of their store. Somebody who writes events forges nothing but new keys. Pure."""
    store = KeyStore()
    for event in events:
        if event.type == REQUESTED:
            _add_key(store, event)
        elif event.type == CONFIRMED and (key := store.keys.get(_read_id(event))) is not None and key.state == "requested":
            store.keys[key.id] = _confirm(key, event)
        elif event.type == REMOVED:
            store.keys.update({key.id: _remove(key, event) for key in _list_removed(store, event)})
    return store


def _add_key(store: KeyStore, event: Event) -> None:
    try:
        claimed = msgspec.convert(event.body["key"], PersonKey)
        fingerprint = compute_fingerprint(claimed.public)
    except UNREADABLE:
        return
    if (known := store.keys.get(claimed.id)) is not None:
        if known.public != claimed.public:
            store.problems[claimed.id] = "a second key with its id was requested later"
        return
    if claimed.fingerprint != fingerprint:
        store.problems[claimed.id] = "its record claims another fingerprint than that of its key"
    store.keys[claimed.id] = PersonKey(
        id=claimed.id,
        name=claimed.name,
        public=claimed.public,
        host=claimed.host,
        origin=claimed.origin,
        fingerprint=fingerprint,
        code=claimed.code,
        expires=claimed.expires,
        time=event.time,
        by=event.actor,
    )


def _read_id(event: Event) -> str:
    return str(event.body.get("id", ""))


def _list_removed(store: KeyStore, event: Event) -> list[PersonKey]:
    """The keys that an event removes. The key of an erased event is unknown, so it removes all keys of then."""
    return [key for key in store.keys.values() if key.state != "removed" and (event.redacted or key.id == _read_id(event))]


def _confirm(key: PersonKey, event: Event) -> PersonKey:
    how, at = str(event.body.get("with", "")), event.time
    return replace(
        key, state="registered", confirmed_with=how, by=event.actor, confirmed_at=at, confirmed_position=event.position
    )


def _remove(key: PersonKey, event: Event) -> PersonKey:
    at, position = event.time, event.position
    return replace(key, state="removed", removed_by=event.actor, removed_at=at, removed_position=position)


async def load_keys(ledger: Ledger) -> KeyStore:
    """Every key that was ever requested. A removed key still proves what it has signed before."""
    try:
        store = await _find_store(ledger)
    except SessionNotFound:
        return KeyStore()
    events: list[Event] = []
    async for page in event_pages(ledger, store, after=0, types=(REQUESTED, CONFIRMED, REMOVED)):
        events += page
    return fold_keys(events)


async def _find_store(ledger: Ledger) -> str:
    return (await ledger.session_by_name(STORE_NAME, namespace=NAMESPACE)).id


async def check_signature(ledger: Ledger, request: Request, option: str, text: str, proof: Mapping[str, Any]) -> dict[str, Any]:
    """What the record keeps of a proof. Raises `PersonKeyProblem` if it does not prove this answer.

    Implements the port of the inbox.
    """
    try:
        signature = msgspec.convert(proof, Signature)
    except msgspec.ValidationError as error:
        raise PersonKeyProblem("The proof has another form.", remedy="Answer on the page.") from error
    key = (await load_keys(ledger)).keys.get(signature.key)
    if key is None or key.state != "registered":
        raise PersonKeyProblem("This key is not registered here.", remedy="Register it on the page, or use another key.")
    if problem := find_signature_problem(key, signature, compute_challenge(request, option, text, signature.nonce)):
        raise PersonKeyProblem(
            f"The signature proves nothing: {problem}.", remedy="Load the question again and answer it there."
        )
    return {**msgspec.structs.asdict(signature), "question": digest_question(request), "fingerprint": key.fingerprint}


async def list_signing_keys(ledger: Ledger, sessions: Iterable[str]) -> list[PersonKey]:
    """The keys that have signed answers of these sessions, in the order of their registration."""
    keys, used = (await load_keys(ledger)).keys, set[str]()
    for session in sessions:
        async for page in event_pages(ledger, session, after=0, types=("request.answered",)):
            proofs = [event.body.get("proof") for event in page if not event.redacted]
            used |= {str(proof.get("key")) for proof in proofs if isinstance(proof, dict)}
    return [key for key in keys.values() if key.id in used]


async def find_proof_problems(ledger: Ledger, session: str) -> list[str]:
    """What is wrong with the signatures of the answers of a session, offline: from the record alone.

    The order in the ledger says whether a key was registered when it signed: the clocks of several machines differ.
    """
    if problems := await _find_store_problems(ledger):
        return problems
    store = await load_keys(ledger)
    async for page in event_pages(ledger, session, after=0, types=("request.answered",)):
        found = [(event.seq, await _find_problem(ledger, event, store)) for event in page if not event.redacted]
        problems += [f"event {seq}: {problem}" for seq, problem in found if problem]
    return problems


async def _find_store_problems(ledger: Ledger) -> list[str]:
    """What is wrong with the record of the keys: signatures prove nothing with keys that somebody has put there."""
    try:
        verdict = await verify_session(ledger, await _find_store(ledger))
    except SessionNotFound:
        return []
    except ChainBroken as error:
        return [f"the record of the keys was changed: {error.sentence}"]
    return [f"the record of the keys was changed: {problem}" for problem in verdict.problems]


async def _find_problem(ledger: Ledger, event: Event, store: KeyStore) -> str:
    body, proof = event.body, event.body.get("proof")
    try:
        request = await ledger.request(str(body.get("request")))
    except RequestNotFound:
        return "it answers a request that does not exist"
    option = str(body.get("option", ""))
    if proof is None and body.get("assurance") != PROVEN:
        is_demanded = needs_signature(request, option, str(body.get("channel", "")), str(body.get("assurance", "")))
        return "the answer has to be signed with a registered key, and it is not signed" if is_demanded else ""
    if not isinstance(proof, dict) or (key := store.keys.get(str(proof.get("key")))) is None:
        return "the answer is called proven, but it has no signature with a known key"
    if problem := _find_key_problem(key, event.position) or _find_wrong_signature(request, body, key):
        return f"the signature of the answer does not prove it: {problem}"
    forgery = store.problems.get(key.id)
    return f"the record of the key {key.fingerprint}, which signed the answer, was forged: {forgery}" if forgery else ""


def _find_key_problem(key: PersonKey, position: int) -> str:
    if not 0 < key.confirmed_position < position:
        return "nobody had confirmed its key"
    return "it was made with a key after it was removed" if 0 < key.removed_position < position else ""


def _find_wrong_signature(request: Request, body: Mapping[str, Any], key: PersonKey) -> str:
    proof = body["proof"]
    signature = msgspec.convert({name: str(proof.get(name, "")) for name in Signature.__struct_fields__}, Signature)
    # Of an erased question only its digest is left, in the record of the answer.
    is_erased = not (request.question or request.options)
    question = str(proof.get("question", "")) if is_erased else digest_question(request)
    answer = (str(body.get("option", "")), str(body.get("text", "")))
    return find_signature_problem(key, signature, compute_digested_challenge(request, question, *answer, signature.nonce))


class PersonKeys:
    """Registers, confirms and removes keys. Only a person does; the surfaces see to that."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context

    async def list(self) -> list[PersonKey]:
        """The keys that are registered, and those that wait for their confirmation."""
        now = self._context.clock()
        keys = (await load_keys(self._context.ledger)).keys.values()
        return [key for key in keys if key.state == "registered" or (key.state == "requested" and key.expires > now)]

    async def request(self, key: PersonKey, *, by: str) -> str:
        """Note a new key. Returns the code that confirms it in a terminal; the record has only its digest."""
        known = (await load_keys(self._context.ledger)).keys
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


def _hash_code(code: str) -> str:
    return hashlib.sha256(b"fidelio.code.v1\0" + code.encode()).hexdigest()
