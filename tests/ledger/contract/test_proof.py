"""What is stored beside the events follows from them, and a change of it behind the back of the ledger is found."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.errors import BadRecord, ChainBroken, RecordMismatch
from fidelio.ledger import Ledger
from fidelio.ledger.audit import check_request, verify_all, verify_session
from fidelio.ledger.chain import ChainVerdict, hash_session_id
from fidelio.ledger.model import Change, CloseRequest, Event, NewEvent, NewSession, Query, SessionHead
from tests.support import proves
from tests.support.ledgers import say, start
from tests.support.tampering import ASKED, Notes, bind, record_everything, tamper

FORGERIES = {
    "event 4 has lost its body": "UPDATE events SET $body = NULL, salt = NULL WHERE session = 's_a' AND seq = 4",
    "event 3 has lost its body": "UPDATE events SET $body = NULL, salt = NULL WHERE session = 's_a' AND seq = 3",
    "Request r_1 differs from its event in: question": "UPDATE requests SET question = 'Stop?' WHERE id = 'r_1'",
    "Request r_1 differs from its event in: options": "UPDATE requests SET options = '[]' WHERE id = 'r_1'",
    "Request r_1 differs from its event in: rest": "UPDATE requests SET detail = '{}' WHERE id = 'r_1'",
    "Request r_1 differs from its event in: answer": """UPDATE requests SET answer = '{"option":"no"}' WHERE id = 'r_1'""",
    "Request r_1 differs from its event in: by": "UPDATE requests SET answered_by = 'person:bob' WHERE id = 'r_1'",
    "Request r_1 differs from its event in: channel": "UPDATE requests SET channel = 'web' WHERE id = 'r_1'",
    "Request r_1 differs from its event in: assurance": "UPDATE requests SET assurance = 'proven' WHERE id = 'r_1'",
    "Request r_1 differs from its event in: closed": "UPDATE requests SET closed_at = 7 WHERE id = 'r_1'",
    "Request r_1 differs from its event in: opened": "UPDATE requests SET opened_at = 7 WHERE id = 'r_1'",
    "Request r_2 differs from its event in: state": "UPDATE requests SET state = 'dismissed' WHERE id = 'r_2'",
    "request r_1 is missing": "DELETE FROM requests WHERE id = 'r_1'",
    "request r_9 is in the inbox, but no event": "UPDATE requests SET id = 'r_9' WHERE id = 'r_2'",
    "its record differs from its events in: texts": "UPDATE sessions SET record = replace(record, 'quoted', 'forged')",
    "its record differs from its events in: level": "UPDATE sessions SET record = replace(record, 'enforce', 'advise')",
    "its record cannot be read": "UPDATE sessions SET record = 'no json' WHERE id = 's_a'",
    "its record is missing": "UPDATE sessions SET record = '{}' WHERE id = 's_a'",
    "its record is that of event 1, but event 4 wrote": (
        """UPDATE sessions SET record = '{"seq":1,"level":"enforce"}' WHERE id = 's_a'"""
    ),
    "its row has the status 'completed'": "UPDATE sessions SET status = 'completed' WHERE id = 's_a'",
    "its row has the status 'active' ('why')": "UPDATE sessions SET reason = 'why' WHERE id = 's_a'",
    "its row says that it was deleted": "UPDATE sessions SET status = 'deleted' WHERE id = 's_a'",
    "its row says that it ends with event 3, but its last event is 5": (
        "UPDATE sessions SET last_seq = 3, head = (SELECT hash FROM events WHERE session = 's_a' AND seq = 3) WHERE id = 's_a'"
    ),
    "its row says that it ends with event 4, but its last event is 5": "UPDATE sessions SET last_seq = 4 WHERE id = 's_a'",
    "its row says that it ends with event 0, but its last event is 5": "UPDATE sessions SET last_seq = 0 WHERE id = 's_a'",
    "its row has the name 'otto'": "UPDATE sessions SET name = 'otto' WHERE id = 's_a'",
    "its row has the namespace 'm'": "UPDATE sessions SET namespace = 'm' WHERE id = 's_a'",
    "its row has the parent None": "UPDATE sessions SET parent = NULL WHERE id = 's_a'",
    "its row has the kind 'agent'": "UPDATE sessions SET kind = 'agent' WHERE id = 's_a'",
    "its row has the time of its start 7": "UPDATE sessions SET created_at = 7 WHERE id = 's_a'",
    "a version of document plans/s_a is missing": "DELETE FROM document_versions WHERE session = 's_a'",
    "no event wrote a stored version of document plans/other": "UPDATE document_versions SET path = 'other'",
    "differs from its digest": "UPDATE blobs SET content = convert_to('x', 'UTF8')",
    "is missing": "DELETE FROM blobs",
}


async def verify_chains(ledger: Ledger) -> dict[str, ChainVerdict]:
    """The verdicts of all sessions, none of whose chains is broken."""
    found = [verdict async for verdict in verify_all(ledger)]
    whole = {verdict.session: verdict for verdict in found if isinstance(verdict, ChainVerdict)}
    assert len(whole) == len(found)
    return whole


@proves("chain.covers-projections")
async def test_an_untouched_session_holds_with_everything_beside_it(ledger: Ledger) -> None:
    await record_everything(ledger)

    verdicts = (await verify_chains(ledger)).values()

    assert [(verdict.session, verdict.problems, verdict.not_covered) for verdict in verdicts] == [
        ("s_a", (), ()),
        ("s_up", (), ()),
    ]


@proves("chain.covers-projections")
@pytest.mark.parametrize("problem", FORGERIES)
async def test_a_change_beside_the_events_is_found(ledger: Ledger, address: str, problem: str) -> None:
    await record_everything(ledger)
    statement = FORGERIES[problem]
    if not address.startswith("postgresql://"):
        statement = statement.replace("convert_to('x', 'UTF8')", "x'78'")
    await tamper(address, statement)

    verdict = await verify_session(ledger, "s_a")

    assert not verdict.holds
    assert any(problem in found for found in verdict.problems), verdict.problems
    assert verdict.not_covered == ()


@proves("chain.covers-requests-at-use")
async def test_a_changed_request_is_noticed_when_it_is_used(ledger: Ledger, address: str) -> None:
    await record_everything(ledger)
    for request in ("r_1", "r_2"):
        await check_request(ledger, await ledger.request(request))
    await tamper(address, "UPDATE requests SET question = 'Delete everything?' WHERE id = 'r_2'")
    with pytest.raises(RecordMismatch, match="r_2 differs from its event in: question"):
        await check_request(ledger, await ledger.request("r_2"))
    await tamper(address, "UPDATE requests SET id = 'r_9' WHERE id = 'r_2'")
    with pytest.raises(RecordMismatch, match="No event opened request r_9"):
        await check_request(ledger, await ledger.request("r_9"))


@proves("chain.covers-requests-at-use")
async def test_a_request_of_a_deleted_session_is_what_its_deletion_has_left(ledger: Ledger, address: str) -> None:
    await record_everything(ledger)
    await ledger.erase(["s_a"], actor="me", reason="over")
    for request in ("r_1", "r_2"):
        await check_request(ledger, await ledger.request(request))
    await tamper(address, "UPDATE requests SET question = 'Delete everything?' WHERE id = 'r_1'")
    await tamper(address, "UPDATE requests SET state = 'open' WHERE id = 'r_2'")

    with pytest.raises(RecordMismatch, match="r_1 has texts although the session was deleted"):
        await check_request(ledger, await ledger.request("r_1"))
    with pytest.raises(RecordMismatch, match="r_2 is open although the session was deleted"):
        await check_request(ledger, await ledger.request("r_2"))


@proves("chain.covers-requests-at-use")
async def test_a_session_that_only_looks_deleted_explains_no_request(ledger: Ledger, address: str) -> None:
    await record_everything(ledger)
    await tamper(address, "UPDATE sessions SET status = 'deleted' WHERE id = 's_a'")
    await tamper(address, "UPDATE requests SET id = 'r_9', question = '', options = '[]', detail = '{}' WHERE id = 'r_1'")

    with pytest.raises(RecordMismatch, match="No event opened request r_9"):
        await check_request(ledger, await ledger.request("r_9"))


@proves("chain.covers-requests-at-use")
async def test_a_request_that_is_closed_while_it_is_checked_has_no_difference(ledger: Ledger, address: str) -> None:
    await record_everything(ledger)
    before = await ledger.request("r_2")
    assert before.state == "open"
    close = CloseRequest(id="r_2", answer={"option": "x"}, by="me", channel="cli", assurance="local")
    await ledger.commit(Change(session="s_a", events=(NewEvent(type="step"),), requests=(close,)))
    # Read before the answer, and compared with the events after it.
    await check_request(ledger, before)
    nobody = "answer = '{}', answered_by = '', channel = '', assurance = '', closed_at = NULL"
    await tamper(address, f"UPDATE requests SET state = 'open', {nobody} WHERE id = 'r_2'")

    with pytest.raises(RecordMismatch, match="r_2 differs from its event in"):
        await check_request(ledger, await ledger.request("r_2"))


@proves("chain.covers-projections")
async def test_a_changed_blob_is_not_handed_out(ledger: Ledger, address: str) -> None:
    await record_everything(ledger)
    digest = (await ledger.events("s_a"))[0].body["snapshot"]
    assert await ledger.blob(digest) == b"the definition"
    content = "convert_to('x', 'UTF8')" if address.startswith("postgresql://") else "x'78'"
    await tamper(address, f"UPDATE blobs SET content = {content}")

    with pytest.raises(RecordMismatch, match="differs from its digest"):
        await ledger.blob(digest)


@proves("chain.not-covered")
async def test_what_an_earlier_version_wrote_is_not_covered_and_not_broken(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.ledger.encoding.add_marks", lambda _change, bodies, _digests, **_: bodies)
    await record_everything(ledger)
    monkeypatch.undo()
    await ledger.commit(Change(session="s_a", record=Notes(3, "advise")))

    verdict = await verify_session(ledger, "s_a")

    assert verdict.problems == ()
    assert verdict.not_covered == (
        "its record differs from its events in: level",
        "2 requests were written by an earlier version",
        "no event wrote a stored version of document plans/s_a",
    )
    for request in ("r_1", "r_2"):
        await check_request(ledger, await ledger.request(request))


@proves("chain.not-covered")
async def test_a_later_event_of_an_old_session_covers_what_it_stored(
    ledger: Ledger, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.ledger.encoding.add_marks", lambda _change, bodies, _digests, **_: bodies)
    await start(ledger, "s_a")
    monkeypatch.undo()
    asked = NewEvent(type="asked", body={"request": "r_1"})
    await ledger.commit(Change(session="s_a", events=(asked,), requests=(ASKED,)))
    await tamper(address, "UPDATE requests SET question = 'Stop?'")

    assert (await verify_session(ledger, "s_a")).problems == ("Request r_1 differs from its event in: question",)


@proves("chain.covers-projections")
async def test_nobody_above_the_ledger_writes_or_sees_its_mark(ledger: Ledger) -> None:
    done = await start(ledger, "s_a")
    assert done.events[0].body == {}
    assert '"ledger"' in (done.events[0].raw or "")
    with pytest.raises(BadRecord, match="belongs to the ledger"):
        await say(ledger, "s_a", {"ledger": {"v": 1}})
    assert await ledger.search(Query(text="v")) == ()


@proves("chain.covers-projections")
async def test_a_session_that_only_looks_deleted_is_found(ledger: Ledger, address: str) -> None:
    bind(ledger)
    await start(ledger, "s_a")
    await ledger.erase(["s_a"], actor="ada", reason="x")
    assert (await verify_session(ledger, "s_a")).problems == ()
    await tamper(address, "UPDATE sessions SET status = 'active'")

    assert "its events end with session.deleted" in (await verify_session(ledger, "s_a")).problems[0]


@proves("chain.covers-projections")
async def test_a_body_that_a_deletion_explains_is_no_problem(ledger: Ledger) -> None:
    await record_everything(ledger)
    await ledger.erase(["s_a"], actor="ada", reason="x")

    verdict = await verify_session(ledger, "s_a")

    assert (verdict.problems, verdict.not_covered, verdict.redacted) == ((), (), 5)


@proves("chain.covers-every-session")
async def test_no_flag_hides_a_session_from_verification(ledger: Ledger, address: str) -> None:
    await record_everything(ledger)
    flag = "status = 'deleted'" if address.startswith("postgresql://") else "deleted = 1"
    await tamper(address, f"UPDATE sessions SET {flag} WHERE id = 's_a'")

    verdicts = await verify_chains(ledger)

    assert set(verdicts) == {"s_a", "s_up"}
    assert "lists leave it out although it was not deleted: its row was changed" in verdicts["s_a"].problems
    await tamper(address, "UPDATE events SET $body = replace($body, 'quoted', 'forged')")
    broken = [verdict.session async for verdict in verify_all(ledger) if isinstance(verdict, ChainBroken)]
    assert broken == ["s_a"]


@proves("chain.covers-every-session")
async def test_a_deleted_session_that_lists_show_is_named_once(ledger: Ledger, address: str) -> None:
    bind(ledger)
    await start(ledger, "s_a")
    await ledger.erase(["s_a"], actor="ada", reason="x")
    await tamper(address, "UPDATE sessions SET status = 'active'")
    await tamper(address, "UPDATE sessions SET " + ("reason = 'x'" if address.startswith("postgresql://") else "deleted = 0"))

    (verdict,) = [verdict async for verdict in verify_all(ledger)]

    assert isinstance(verdict, ChainVerdict)
    assert "lists contain it although it was deleted: its row was changed" in verdict.problems


@proves("chain.not-covered")
@pytest.mark.parametrize("redacted", [False, True])
async def test_an_event_without_a_mark_does_not_turn_a_forged_record_into_an_old_one(
    ledger: Ledger, address: str, monkeypatch: pytest.MonkeyPatch, redacted: bool
) -> None:
    await record_everything(ledger)
    if redacted:
        await ledger.redact("s_a", [1], actor="ada", reason="x")
    monkeypatch.setattr("fidelio.ledger.encoding.add_marks", lambda _change, bodies, _digests, **_: bodies)
    done = await ledger.append("s_a", NewEvent(type="other"))
    monkeypatch.undo()
    await tamper(address, "UPDATE sessions SET record = replace(record, 'quoted', 'forged')")
    await tamper(address, "UPDATE requests SET id = 'r_9' WHERE id = 'r_2'")

    verdict = await verify_session(ledger, "s_a")

    assert verdict.not_covered == ()
    assert f"event {done.session.last_seq} has no mark of the ledger, but an event before it has one" in verdict.problems
    assert "its record differs from its events in: texts" in verdict.problems
    with pytest.raises(RecordMismatch, match="No event opened request r_9"):
        await check_request(ledger, await ledger.request("r_9"))


@proves("chain.covers-every-session")
async def test_a_session_that_grows_while_it_is_read_holds(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    await record_everything(ledger)
    read = type(ledger).events

    async def read_slowly(self: Ledger, session: str, **options: Any) -> tuple[Event, ...]:
        await ledger.append(session, NewEvent(type="other"))
        found = await read(self, session, **options)
        await ledger.append(session, NewEvent(type="other"))
        return found

    monkeypatch.setattr(type(ledger), "events", read_slowly)

    assert (await verify_session(ledger, "s_a")).problems == ()


@proves("chain.covers-every-session")
async def test_heads_are_read_from_the_events(ledger: Ledger, address: str) -> None:
    await record_everything(ledger)
    await ledger.commit(Change(session="s_new", create=NewSession(kind="workflow")))
    last = (await ledger.events("s_a"))[-1]
    await tamper(address, "UPDATE sessions SET last_seq = 1 WHERE id = 's_a'")

    page = await ledger.heads(limit=2)
    rest = await ledger.heads(cursor=page.next)

    assert page.items == (SessionHead("s_new", 0, hash_session_id("s_new")), SessionHead("s_a", 5, last.hash))
    assert ([head.session for head in rest.items], rest.next) == (["s_up"], None)


@proves("chain.covers-every-session")
async def test_what_belongs_to_no_session_is_named(ledger: Ledger, address: str) -> None:
    await record_everything(ledger)
    await tamper(address, "UPDATE requests SET session = 's_gone' WHERE id = 'r_2'")
    await tamper(address, "DELETE FROM sessions WHERE id = 's_up'")

    verdicts = await verify_chains(ledger)

    assert {session: verdict.problems for session, verdict in verdicts.items() if session != "s_a"} == {
        "s_gone": ("it has no row, but events, documents or requests (r_2) belong to it",),
        "s_up": ("it has no row, but events, documents or requests belong to it",),
    }
    strays = [verdicts[name] for name in ("s_gone", "s_up")]
    assert [(verdict.events, verdict.redacted) for verdict in strays] == [(0, 0)] * 2
    with pytest.raises(RecordMismatch, match="No event opened request r_2"):
        await check_request(ledger, await ledger.request("r_2"))


@proves("chain.covers-projections")
async def test_what_a_deletion_says_is_compared_with_its_session(ledger: Ledger, address: str) -> None:
    await record_everything(ledger)
    await ledger.erase(["s_a"], actor="ada", reason="a law")
    await tamper(address, "UPDATE sessions SET reason = 'a wish' WHERE id = 's_a'")
    await tamper(address, "UPDATE requests SET state = 'open' WHERE id = 'r_2'")

    assert (await verify_session(ledger, "s_a")).problems == (
        "its row has the reason 'a wish', but its session.deleted event says another",
        "request r_2 is open although the session was deleted",
    )
