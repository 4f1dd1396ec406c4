"""Registered keys of people, and the signatures with them that prove who answered.

A key is a passkey: it never leaves the authenticator of its owner, who touches it for every signature. Keys are
events of a store in the ledger: registering needs a confirmation in a terminal that is not an agent's, or a signature with a key
that is registered already. Everything that a check needs is on record, so it works offline.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from fidelio.app.passkeys import (
    PersonKey,
    Signature,
    compute_challenge,
    compute_digested_challenge,
    compute_key_challenge,
    digest_question,
    find_signature_problem,
)
from fidelio.errors import PersonKeyProblem, SessionNotFound
from fidelio.ids import new_id
from fidelio.inbox import PROVEN
from fidelio.inbox.builders import needs_signature
from fidelio.ledger import Ledger
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
    challenge = compute_digested_challenge(request, question, option, body.get("text", ""), signature.nonce)
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


def _hash_code(code: str) -> str:
    return hashlib.sha256(b"fidelio.code.v1\0" + code.encode()).hexdigest()
