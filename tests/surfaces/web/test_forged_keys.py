"""Passkeys against somebody who writes into the ledger, and against pages of other origins: what `verify` still finds."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest
from fido2.utils import websafe_encode
from msgspec import to_builtins
from msgspec.structs import replace

from fidelio.app.passkeys import PersonKey, compute_registration_challenge, find_signature_problem, read_new_key
from fidelio.app.person_keys import CONFIRMED, NAMESPACE, REMOVED, REQUESTED, STORE_NAME, PersonKeys, check_signature, load_keys
from fidelio.errors import PersonKeyProblem
from fidelio.inbox.builders import answer_request
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, Event, NewEvent, Request
from tests.support import proves
from tests.support.passkeys import SoftwareKey, register_key
from tests.surfaces.web.conftest import Site, read_form_token
from tests.surfaces.web.test_passkeys import application, question

__all__ = ["application", "question"]


@pytest.fixture
async def ledger(site: Site) -> Ledger:
    return (await site.application.runtime()).context.ledger


async def register(site: Site, software: SoftwareKey) -> PersonKey:
    return await register_key((await site.application.runtime()).context, software)


async def answer(site: Site, question: Request, software: SoftwareKey, option: str = "yes") -> Event:
    inbox = await site.application.inbox()
    proof = software.sign_answer(question, option)
    return (await inbox.answer(question.id, option, by="person:me", channel="web", proof=proof)).events[0]


async def forge_answer(ledger: Ledger, question: Request, proof: Mapping[str, Any]) -> None:
    """Write an answer into the ledger as Fidelio does, without its checks."""
    body = {"request": question.id, "key": question.key, "option": "yes", "effect": {}, "by": "person:me", "channel": "web"}
    event = NewEvent(type="request.answered", body={**body, "assurance": "proven", "after_ms": 1, "proof": proof}, actor="me")
    closed = answer_request(question.id, {"option": "yes"}, by="person:me", channel="web", assurance="proven")
    await ledger.commit(Change(session=question.session, events=(event,), requests=(closed,)))


async def find_store(ledger: Ledger) -> str:
    return (await ledger.session_by_name(STORE_NAME, namespace=NAMESPACE)).id


async def find_problems(site: Site, question: Request) -> str:
    return "\n".join((await (await site.application.records()).verify(question.session)).problems)


def write_events(site: Site, statement: str, *values: object) -> None:
    """Change the file of the ledger, as somebody without Fidelio does."""
    with closing(sqlite3.connect(site.application.settings.home.ledger, timeout=10)) as database, database:
        assert database.execute(statement, values).rowcount == 1


@proves("inbox.proven-origin")
@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost:9",
        "https://localhost:7333",
        "ftp://localhost:7333",
        "http://evil@localhost:7333",
        "http://localhost:7333/",
        "http://localhost",
    ],
)
async def test_a_page_of_another_origin_of_the_same_host_signs_nothing(
    site: Site, question: Request, ledger: Ledger, origin: str
) -> None:
    software = SoftwareKey()
    key = await register(site, software)
    software.origin = origin

    assert key.origin == "http://localhost:7333"
    with pytest.raises(PersonKeyProblem, match="another page"):
        await check_signature(ledger, question, "yes", "", software.sign_answer(question, "yes"))
    await forge_answer(ledger, question, {**software.sign_answer(question, "yes"), "question": "x"})
    assert "another page" in await find_problems(site, question)


@proves("inbox.proven-origin")
@pytest.mark.parametrize(
    ("origin", "is_accepted"),
    [
        ("http://localhost:9", True),
        ("https://localhost", True),
        ("ftp://localhost:9", False),
        ("http://evil@localhost:9", False),
        ("http://localhost:9/x", False),
        ("http://evil.example", False),
        ("", False),
    ],
)
def test_a_key_that_was_noted_without_its_page_is_held_to_its_host(
    origin: str, is_accepted: bool
) -> None:  # a parameter of the test
    software, challenge = SoftwareKey(), b"challenge"
    key = replace(software.create(), origin="")
    software.origin = origin

    assert (find_signature_problem(key, software.sign(challenge, "n"), challenge) == "") is is_accepted


@proves("inbox.proven-origin")
def test_a_key_that_was_made_on_another_page_is_not_read() -> None:
    software = SoftwareKey()

    with pytest.raises(PersonKeyProblem, match="another page"):
        software.create(at="http://localhost:8000")


@proves("inbox.proven-origin")
async def test_a_form_of_another_page_than_the_signed_one_is_refused(site: Site, question: Request) -> None:
    """The key was registered where another program listens now."""
    software = SoftwareKey()
    await register(site, software)
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "option": "yes"}
        asked = (await client.post(f"/inbox/{question.id}/challenge", data=fields)).json()
        signed = software.sign_answer(question, "yes", nonce=asked["nonce"])
        answered = await client.post(f"/inbox/{question.id}", data={**fields, **signed})

    assert (answered.status_code, "another page" in answered.text) == (400, True)
    assert (await (await site.application.inbox()).find(question.id)).state == "open"


@proves("web.key-forged")
async def test_a_forged_fingerprint_counts_for_nothing(site: Site, question: Request, ledger: Ledger) -> None:
    victim, software = await register(site, SoftwareKey()), SoftwareKey()
    forged = replace(software.create(), fingerprint=victim.fingerprint, confirmed_at=1, confirmed_with="a terminal")
    requested = NewEvent(type=REQUESTED, body={"key": to_builtins(forged)}, actor="person:ada")
    await ledger.append(await find_store(ledger), requested)
    unconfirmed = (await load_keys(ledger)).keys[forged.id]
    confirmed = NewEvent(type=CONFIRMED, body={"id": forged.id, "with": "a terminal"}, actor="person:ada")
    await ledger.append(await find_store(ledger), confirmed)
    answered = await answer(site, question, software)

    assert (unconfirmed.confirmed_at, unconfirmed.confirmed_with) == (0, "")
    assert answered.body["proof"]["fingerprint"] not in ("", victim.fingerprint)
    assert "claims another fingerprint" in await find_problems(site, question)


@proves("web.key-forged")
async def test_a_second_request_does_not_replace_a_key(site: Site, question: Request, ledger: Ledger) -> None:
    software, other = SoftwareKey(), SoftwareKey()
    key = await register(site, software)
    forged = replace(other.create(), id=key.id)
    await ledger.append(await find_store(ledger), NewEvent(type=REQUESTED, body={"key": to_builtins(forged)}))
    await answer(site, question, software)

    kept = (await load_keys(ledger)).keys[key.id]
    assert (kept.public, kept.fingerprint, kept.state) == (key.public, key.fingerprint, "registered")
    assert "a second key with its id" in await find_problems(site, question)


@proves("web.key-forged")
@pytest.mark.parametrize(
    "body", [{}, {"key": 1}, {"key": {"id": "x"}}, {"key": {"id": "x", "name": "", "public": "é", "host": ""}}]
)
async def test_a_key_that_cannot_be_read_hides_no_other(
    site: Site, question: Request, ledger: Ledger, body: dict[str, Any]
) -> None:
    software = SoftwareKey()
    key = await register(site, software)
    store = await find_store(ledger)
    await ledger.append(store, NewEvent(type=REQUESTED, body=body))
    await ledger.append(store, *(NewEvent(type=type_, body={}) for type_ in (CONFIRMED, REMOVED)))
    await answer(site, question, software)

    assert list((await load_keys(ledger)).keys) == [key.id]
    assert await find_problems(site, question) == ""


@proves("web.key-times")
async def test_an_answer_that_was_signed_after_the_removal_of_its_key_is_found(
    site: Site, question: Request, ledger: Ledger
) -> None:
    software = SoftwareKey()
    key = await register(site, software)
    await PersonKeys((await site.application.runtime()).context).remove(key.fingerprint, by="person:me")
    await forge_answer(ledger, question, software.sign_answer(question, "yes"))

    assert "after it was removed" in await find_problems(site, question)


@proves("web.key-times")
async def test_an_answer_that_was_signed_before_its_key_was_confirmed_is_found(
    site: Site, question: Request, ledger: Ledger
) -> None:
    software = SoftwareKey()
    keys = PersonKeys((await site.application.runtime()).context)
    code = await keys.request(software.create(), by="person:ada")
    await forge_answer(ledger, question, software.sign_answer(question, "yes"))
    await keys.confirm_by_code(code, by="person:ada")

    assert "nobody had confirmed" in await find_problems(site, question)


@proves("web.key-times")
async def test_an_answer_relies_on_the_chain_of_the_keys(site: Site, question: Request, ledger: Ledger) -> None:
    software = SoftwareKey()
    await register(site, software)
    await answer(site, question, software)
    before = await find_problems(site, question)
    body = json.dumps({"id": "another", "with": "a terminal"})
    write_events(site, "UPDATE events SET body = ? WHERE type = ?", body, CONFIRMED)

    assert before == ""
    assert "keys" in await find_problems(site, question)


@proves("web.key-times")
@pytest.mark.parametrize("is_redacted", [False, True])
async def test_a_removal_that_was_erased_stays_a_removal(
    site: Site, question: Request, ledger: Ledger, *, is_redacted: bool
) -> None:
    software = SoftwareKey()
    key = await register(site, software)
    await PersonKeys((await site.application.runtime()).context).remove(key.fingerprint, by="person:me")
    (removal,) = await ledger.events(await find_store(ledger), types=(REMOVED,))
    if is_redacted:
        await (await site.application.records()).redact(removal.session, [removal.seq], actor="person:me", reason="test")
    else:
        write_events(site, "UPDATE events SET body = NULL, salt = NULL WHERE type = ?", REMOVED)

    assert (await load_keys(ledger)).keys[key.id].state == "removed"
    with pytest.raises(PersonKeyProblem, match="not registered"):
        await answer(site, question, software)
    new = SoftwareKey()
    await register(site, new)
    await answer(site, question, new)
    assert ("keys" in await find_problems(site, question)) is not is_redacted


_HOST = hashlib.sha256(b"localhost").digest()
_WITH_EXTENSIONS = _HOST + b"\x85" + b"\0" * 4
UNREADABLE = [
    ("authenticator_data", _WITH_EXTENSIONS + b"\x5b\xff\xff"),
    ("authenticator_data", _WITH_EXTENSIONS + b"\x81" * 5_000),
    ("authenticator_data", _HOST + b"\x45" + b"\0" * 4),
    ("authenticator_data", b"x" * 36),
    ("authenticator_data", b""),
    ("client_data", b"[" * 5_000),
    ("client_data", b"[]"),
    ("client_data", b'{"type":"webauthn.get","challenge":1,"origin":5}'),
    ("client_data", b"\xff\xfe"),
    ("client_data", b" " * 100_000),
]


@proves("inbox.proven-unreadable")
@pytest.mark.parametrize(("field", "value"), UNREADABLE)
async def test_a_proof_that_cannot_be_read_is_a_problem_of_its_answer(
    site: Site, question: Request, ledger: Ledger, field: str, value: bytes
) -> None:
    software = SoftwareKey(host="127.0.0.1")
    software.origin = site.url
    await register(site, software)
    async with site.visit() as client:
        fields = {"form_token": await read_form_token(client), "option": "yes"}
        nonce = (await client.post(f"/inbox/{question.id}/challenge", data=fields)).json()["nonce"]
        proof = {**software.sign_answer(question, "yes", nonce=nonce), field: websafe_encode(value)}
        answered = await client.post(f"/inbox/{question.id}", data={**fields, **proof})
    with pytest.raises(PersonKeyProblem):
        await check_signature(ledger, question, "yes", "", proof)
    await forge_answer(ledger, question, {**proof, "question": "x"})

    assert answered.status_code == 400
    assert "does not prove it" in await find_problems(site, question)


@proves("inbox.proven-unreadable")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"request": 5},
        {"request": "r_unknown", "option": "yes"},
        {"option": ["yes"], "text": 5},
        {"proof": {"key": {}, "signature": []}},
    ],
)
async def test_an_answer_of_another_shape_is_a_problem_of_its_own(
    site: Site, question: Request, ledger: Ledger, body: dict[str, Any]
) -> None:
    software = SoftwareKey()
    await register(site, software)
    signed = {"request": question.id, "proof": software.sign_answer(question, "yes"), "assurance": "proven"}
    claimed = NewEvent(type="request.answered", body={**({} if not body else signed), **body, "assurance": "proven"})
    await ledger.append(question.session, claimed)
    found = await (await site.application.records()).verify_all()

    assert any(getattr(verdict, "problems", ()) for verdict in found[0])
    assert "event " in await find_problems(site, question)


@proves("inbox.proven-unreadable")
@pytest.mark.parametrize("made", [b"", b"\xff", b"\x01", b"\xa0", b"\x81" * 5_000, b"\x5b\xff\xff", b"\xa1" + b"a" * 9_000])
def test_a_new_key_that_cannot_be_read_is_refused(made: bytes) -> None:
    with pytest.raises(PersonKeyProblem):
        read_new_key(
            "x", websafe_encode(b"{}"), websafe_encode(made), compute_registration_challenge("n"), origin="http://localhost"
        )
