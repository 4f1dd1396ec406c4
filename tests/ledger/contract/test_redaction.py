"""Redaction of events: bodies are erased, and the chain stays valid."""

from __future__ import annotations

import hashlib

import pytest

from fidelio.errors import BadRecord, SessionNotFound
from fidelio.ledger import Ledger
from fidelio.ledger.model import Change, NewEvent, PutDocument, Query
from tests.support import proves
from tests.support.chains import verify_chain
from tests.support.ledgers import say, start


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@proves("ledger.redaction", "chain.redacted")
async def test_a_redacted_body_is_gone_and_the_chain_still_verifies(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    secret = await say(ledger, "s_a", {"a": "secret"})
    kept = await say(ledger, "s_a", {"a": "public"})
    head = (await ledger.session("s_a")).head

    done = await ledger.redact("s_a", [secret.seq], actor="ada", reason="a password")

    events = await ledger.events("s_a")
    assert (events[1].raw, events[1].salt, events[1].body, events[1].redacted) == (None, None, {}, True)
    assert (events[1].digest, events[1].hash, events[1].position) == (secret.digest, secret.hash, secret.position)
    assert events[2] == kept
    notice = events[3]
    assert done.events == (notice,)
    assert (notice.type, notice.actor, notice.body) == ("event.redacted", "ada", {"seqs": [2], "reason": "a password"})
    verdict = verify_chain("s_a", events, expected_heads=[head, done.session.head])
    assert (verdict.events, verdict.redacted) == (4, 1)


@proves("ledger.redaction")
async def test_a_redacted_event_is_no_longer_found(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    indexed = await say(ledger, "s_a", {"a": "secret one"})
    await ledger.update_index()
    late = await say(ledger, "s_a", {"a": "secret two"})
    await say(ledger, "s_a", {"a": "secret three"})
    await ledger.redact("s_a", [indexed.seq, late.seq], actor="ada", reason="x")
    await ledger.update_index()

    assert [hit.seq for hit in await ledger.search(Query(text="secret"))] == [4]
    assert await ledger.search(Query(text="on*")) == ()


@proves("ledger.redaction")
async def test_only_blobs_that_nobody_else_refers_to_are_erased(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    mine, shared, text = b"only mine", b"shared", b"a text"
    await ledger.commit(
        Change(
            session="s_a",
            blobs=(mine, shared),
            documents=(PutDocument(space="n", path="p", text=text.decode()),),
            events=(
                NewEvent(type="note", blobs=(sha(mine), sha(shared), sha(text))),
                NewEvent(type="note", blobs=(sha(shared),)),
            ),
        )
    )
    await ledger.redact("s_a", [2], actor="ada", reason="x")

    assert await ledger.blob(sha(mine)) is None
    assert await ledger.blob(sha(shared)) == shared
    assert await ledger.blob(sha(text)) == text
    await ledger.redact("s_a", [3], actor="ada", reason="x")
    assert await ledger.blob(sha(shared)) is None


@proves("ledger.redaction")
async def test_redacting_twice_changes_nothing_more(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ledger.redact("s_a", [1, 1], actor="ada", reason="x")
    await ledger.update_index()
    await ledger.redact("s_a", [1], actor="ada", reason="x")

    events = await ledger.events("s_a")
    assert [event.body.get("seqs") for event in events] == [None, [1], [1]]
    verify_chain("s_a", events)


@proves("ledger.redaction")
async def test_what_cannot_be_redacted_is_refused_and_nothing_is_erased(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await ledger.redact("s_a", [1], actor="ada", reason="x")
    await say(ledger, "s_a", {"a": "stays"})

    with pytest.raises(BadRecord, match="no event 9"):
        await ledger.redact("s_a", [3, 9], actor="ada", reason="x")
    with pytest.raises(BadRecord, match="cannot be redacted"):
        await ledger.redact("s_a", [3, 2], actor="ada", reason="x")
    with pytest.raises(BadRecord):
        await ledger.redact("s_a", [], actor="ada", reason="x")
    with pytest.raises(SessionNotFound):
        await ledger.redact("s_nobody", [1], actor="ada", reason="x")

    assert (await ledger.events("s_a"))[2].body == {"a": "stays"}
    assert (await ledger.session("s_a")).last_seq == 3


@proves("ledger.positions")
async def test_positions_go_on_after_a_redaction(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    last = await say(ledger, "s_a", {"a": "secret"})
    done = await ledger.redact("s_a", [last.seq], actor="ada", reason="x")
    after = await say(ledger, "s_a", {})

    assert last.position < done.events[0].position < after.position
