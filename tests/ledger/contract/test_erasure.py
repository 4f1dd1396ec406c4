"""Erasure of sessions: contents are deleted, chains stay valid, and other sessions are unchanged."""

from __future__ import annotations

import hashlib

import pytest

from fidelio.errors import BadRecord, SessionExists, SessionNotFound, StaleLease
from fidelio.ledger import Ledger
from fidelio.ledger.audit import verify_all, verify_session
from fidelio.ledger.chain import ChainVerdict
from fidelio.ledger.model import Change, CloseRequest, Completion, NewEvent, NewJob, OpenRequest, Query
from tests.support import proves
from tests.support.ledgers import MovingClock, say, start


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@proves("erasing.gone", "erasing.chain")
async def test_a_deleted_session_has_said_nothing_and_its_chain_verifies(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a", kind="agent", namespace="/p", name="ada")
    said = await say(ledger, "s_a", {"a": "secret"})
    await ledger.commit(Change(session="s_a", status="failed", reason="a secret", record={"prompt": "secret"}))
    head = (await ledger.session("s_a")).head
    clock.now += 5
    await ledger.erase(["s_a"], actor="person:ada", reason="no longer needed")

    session, events = await ledger.session("s_a"), await ledger.events("s_a")
    assert (session.status, session.reason, session.record) == ("deleted", "no longer needed", {})
    assert (session.kind, session.namespace, session.name, session.updated_at) == ("agent", "/p", None, clock.now)
    assert [event.redacted for event in events] == [True, True, False]
    assert (events[1].salt, events[1].digest, events[1].hash) == (None, said.digest, said.hash)
    last = events[2]
    assert (last.type, last.actor, last.body) == ("session.deleted", "person:ada", {"reason": "no longer needed"})
    verdict = await verify_session(ledger, "s_a", heads=[head, session.head])
    assert (verdict.events, verdict.redacted) == (3, 2)


@proves("erasing.chain")
async def test_deleted_sessions_are_verified_with_all_others(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    await ledger.erase(["s_a"], actor="ada", reason="x")

    verdicts = [verdict async for verdict in verify_all(ledger)]

    assert [each.session for each in verdicts if isinstance(each, ChainVerdict)] == ["s_b", "s_a"]


@proves("erasing.gone", "erasing.neighbours")
async def test_a_deleted_session_is_no_longer_found_and_the_others_are(ledger: Ledger) -> None:
    for session in ("s_a", "s_b", "s_c"):
        await start(ledger, session)
        await say(ledger, session, {"a": "indexed wöndrous"})
        await say(ledger, session, {"a": "plain word"})
    await ledger.update_index()
    for session in ("s_a", "s_b", "s_c"):
        await say(ledger, session, {"a": "late word"})
    await ledger.erase(["s_a", "s_c"], actor="ada", reason="x")
    for _ in range(2):
        found = await ledger.search(Query(text="w*"))
        assert [(hit.session, hit.seq) for hit in found if hit.session != "s_b"] == []
        await ledger.update_index()

    assert [(hit.session, hit.seq) for hit in await ledger.search(Query(text="word"))] == [("s_b", 4), ("s_b", 3)]
    assert [(hit.session, hit.seq) for hit in await ledger.search(Query(text="wöndrous"))] == [("s_b", 2)]


@proves("erasing.gone")
async def test_blobs_go_with_the_last_session_that_refers_to_them(ledger: Ledger) -> None:
    mine, shared = b"only mine", b"shared"
    for session, blobs in (("s_a", (mine, shared)), ("s_b", (shared,))):
        await start(ledger, session)
        notes = tuple(NewEvent(type="note", blobs=(sha(blob),)) for blob in blobs)
        await ledger.commit(Change(session=session, blobs=blobs, events=notes))
    await ledger.erase(["s_a"], actor="ada", reason="x")
    after_one = await ledger.blob(sha(mine)), await ledger.blob(sha(shared))
    await ledger.erase(["s_b"], actor="ada", reason="x")

    assert after_one == (None, shared)
    assert await ledger.blob(sha(shared)) is None


@proves("erasing.name")
async def test_the_name_is_free_and_the_id_is_not(ledger: Ledger) -> None:
    await start(ledger, "s_a", namespace="/p", name="ada")
    await ledger.erase(["s_a"], actor="ada", reason="x")

    with pytest.raises(SessionNotFound):
        await ledger.session_by_name("ada", namespace="/p")
    with pytest.raises(SessionExists):
        await start(ledger, "s_a")
    await start(ledger, "s_b", namespace="/p", name="ada")
    assert (await ledger.session_by_name("ada", namespace="/p")).id == "s_b"
    await ledger.erase(["s_b"], actor="ada", reason="x")
    assert (await ledger.session("s_b")).name is None


@proves("erasing.lists")
async def test_lists_show_deleted_sessions_only_to_whoever_asks_for_them(ledger: Ledger) -> None:
    await start(ledger, "s_a", kind="agent", namespace="/p")
    await start(ledger, "s_b", kind="agent", namespace="/p", parent="s_a")
    await start(ledger, "s_c", kind="agent", namespace="/p", parent="s_a")
    await ledger.erase(["s_a", "s_b"], actor="ada", reason="x")
    filters: tuple[dict[str, str], ...] = ({}, {"kind": "agent"}, {"namespace": "/p"}, {"parent": "s_a"})

    for given in filters:
        page = await ledger.sessions(**given)  # type: ignore[arg-type]  # kinds as plain text
        assert [session.id for session in page.items] == ["s_c"]
    assert [session.id for session in (await ledger.sessions(status="deleted")).items] == ["s_b", "s_a"]
    assert [session.id for session in (await ledger.sessions(status="deleted", parent="s_a")).items] == ["s_b"]


@proves("erasing.closed")
async def test_nothing_more_is_written_to_a_deleted_session(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    await ledger.erase(["s_a"], actor="ada", reason="x")

    for change in (
        Change(session="s_a", events=(NewEvent(type="note"),)),
        Change(session="s_a", status="active"),
        Change(session="s_b", jobs=(NewJob(kind="wake", session="s_a"),)),
    ):
        with pytest.raises(SessionNotFound, match="Session s_a was deleted"):
            await ledger.commit(change)
    assert (await ledger.session("s_a")).last_seq == 2


@proves("erasing.closed", "erasing.waiting")
async def test_work_of_a_deleted_session_is_gone_and_its_worker_is_refused(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    for session in ("s_a", "s_a", "s_b"):
        await ledger.commit(Change(session=session, jobs=(NewJob(kind="wake", session=session),)))
    lease = await ledger.claim("me", ["wake"], lease_ms=1000)
    assert lease is not None
    await ledger.erase([lease.session], actor="ada", reason="x")

    with pytest.raises(StaleLease):
        await ledger.settle(lease, Completion())
    with pytest.raises(StaleLease):
        await ledger.heartbeat(lease, lease_ms=1000)
    assert [job.session for job in await ledger.jobs()] == ["s_b"]
    following = await ledger.claim("me", ["wake"], lease_ms=1000)
    assert following is not None
    assert following.session == "s_b"
    await ledger.settle(following, Completion())
    assert await ledger.next_due(["wake"]) is None


@proves("erasing.waiting")
async def test_what_a_deleted_session_asked_is_dismissed_and_empty(ledger: Ledger, clock: MovingClock) -> None:
    await start(ledger, "s_a")
    for number in (1, 2):
        asked = OpenRequest(
            id=f"r_{number}",
            kind="question",
            key=f"secret {number}",
            question="secret?",
            options=({"id": "y"},),
            detail={"a": 1},
        )
        await ledger.commit(Change(session="s_a", requests=(asked,)))
    await ledger.commit(Change(session="s_a", requests=(CloseRequest(id="r_1", answer={"option": "y"}, by="bea"),)))
    clock.now += 5
    await ledger.erase(["s_a"], actor="ada", reason="x")

    for id_, state, by in (("r_1", "answered", "bea"), ("r_2", "dismissed", "ada")):
        request = await ledger.request(id_)
        assert (request.state, request.answered_by, request.key) == (state, by, id_)
        assert (request.question, request.options, request.subject, request.detail, request.answer) == ("", (), "", {}, {})
    assert (await ledger.request("r_2")).closed_at == clock.now
    assert (await ledger.requests()).items == ()


@proves("erasing.whole")
async def test_a_batch_with_an_unknown_session_erases_nothing(ledger: Ledger) -> None:
    await start(ledger, "s_a", name="ada")
    await say(ledger, "s_a", {"a": "stays"})

    with pytest.raises(SessionNotFound, match="s_nobody"):
        await ledger.erase(["s_a", "s_nobody"], actor="ada", reason="x")
    with pytest.raises(BadRecord):
        await ledger.erase(["s_a"], actor="a\nb", reason="x")
    with pytest.raises(BadRecord):
        await ledger.erase(["s_a", "no id"], actor="ada", reason="x")

    assert (await ledger.events("s_a"))[1].body == {"a": "stays"}
    assert (await ledger.session_by_name("ada")).status == "active"
    await say(ledger, "s_a", {"a": "goes on"})


@proves("erasing.whole")
async def test_deleting_twice_changes_nothing_more(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    await start(ledger, "s_b")
    await ledger.erase(["s_a", "s_a"], actor="ada", reason="first")
    await ledger.erase(["s_b", "s_a"], actor="bea", reason="second")
    await ledger.erase([], actor="bea", reason="third")

    assert [event.actor for event in await ledger.events("s_a")] == ["system", "ada"]
    assert (await ledger.session("s_a")).reason == "first"
    assert (await ledger.session("s_b")).reason == "second"


@proves("erasing.whole", "erasing.chain")
async def test_more_sessions_than_one_transaction_takes_are_all_deleted(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.ledger.encoding.LARGEST_BATCH", 3)
    names = [f"s_{number}" for number in range(8)]
    for name in names:
        await start(ledger, name)
    await ledger.erase(names, actor="ada", reason="x")

    assert (await ledger.sessions()).items == ()
    verdicts = [verdict async for verdict in verify_all(ledger)]
    assert [isinstance(verdict, ChainVerdict) for verdict in verdicts] == [True] * 8
