"""Redaction erases what was derived from an event, and the session still verifies."""

from __future__ import annotations

import pytest

from fidelio.errors import BadRecord
from fidelio.ledger import Ledger
from fidelio.ledger.audit import check_request, verify_session
from fidelio.ledger.model import Change, CloseRequest, NewEvent, Query
from fidelio.ledger.redaction import read_body
from fidelio.ledger.unit_of_work import SessionDecision
from tests.support import proves
from tests.support.tampering import Notes, bind, record_everything, tamper


async def read_record(ledger: Ledger) -> Notes:
    return bind(ledger).records.read((await ledger.session("s_a")).raw)


@proves("chain.redacted-projections")
async def test_the_record_is_computed_again_without_the_erased_text(ledger: Ledger) -> None:
    await record_everything(ledger)
    assert (await read_record(ledger)).texts == ("a quoted text",)

    await ledger.redact("s_a", [1, 4], actor="ada", reason="x")

    # The level is structure and stays; the text is gone.
    assert await read_record(ledger) == Notes(6, "enforce", ("",))
    verdict = await verify_session(ledger, "s_a")
    assert (verdict.problems, verdict.not_covered, verdict.redacted) == ((), (), 2)
    assert await ledger.search(Query(text="quoted")) == ()


@proves("chain.redacted-projections")
async def test_nothing_is_left_of_an_event_that_is_not_folded(ledger: Ledger) -> None:
    """Its keys may be texts too, and no package has named those that are not."""
    await record_everything(ledger)
    await ledger.append("s_a", NewEvent(type="other", body={"a secret key": 1, "level": "a secret level", "number": 4711}))
    await ledger.redact("s_a", [6], actor="ada", reason="x")

    notice = (await ledger.events("s_a", after=6))[0]
    assert [word for word in ("secret", "level", "4711") if word in (notice.raw or "")] == []
    assert (await verify_session(ledger, "s_a")).problems == ()


@proves("chain.redacted-projections")
async def test_a_session_goes_on_after_a_redaction(ledger: Ledger) -> None:
    await record_everything(ledger)
    await ledger.redact("s_a", [4], actor="ada", reason="x")
    unit = bind(ledger)
    note = NewEvent(type="note", body={"text": "more"})

    after = await unit.update("s_a", lambda _: SessionDecision(None, (note,)))

    assert after.record.texts == ("", "more")
    assert (await verify_session(ledger, "s_a")).problems == ()


@proves("chain.redacted-projections")
async def test_an_erased_event_that_was_not_folded_yet_does_not_stop_the_session(ledger: Ledger, address: str) -> None:
    """As an earlier version left it: it erased bodies and not the record."""
    await record_everything(ledger)
    await ledger.append("s_a", NewEvent(type="note", body={"text": "late"}))
    await tamper(address, "UPDATE events SET $body = NULL, salt = NULL WHERE session = 's_a' AND seq = 6")

    assert (await bind(ledger).load("s_a")).record.seq == 6


@proves("chain.redacted-projections")
async def test_the_texts_of_a_request_go_with_the_events_that_opened_and_closed_it(ledger: Ledger) -> None:
    await record_everything(ledger)
    await ledger.redact("s_a", [3], actor="ada", reason="x")
    request = await ledger.request("r_1")
    assert (request.question, request.answer, request.answered_by) == ("Go on?", {}, "person:ada")
    assert (await verify_session(ledger, "s_a")).problems == ()

    await ledger.redact("s_a", [2], actor="ada", reason="x")
    request = await ledger.request("r_1")
    assert (request.question, request.options, request.detail, request.state) == ("", (), {}, "answered")
    assert (await verify_session(ledger, "s_a")).problems == ()
    await check_request(ledger, request)


@proves("chain.redacted-projections", "chain.covers-projections")
async def test_a_text_cannot_be_put_into_the_place_of_an_erased_one(ledger: Ledger, address: str) -> None:
    await record_everything(ledger)
    await ledger.redact("s_a", [2, 3, 4], actor="ada", reason="x")
    await tamper(address, "UPDATE requests SET question = 'Pay?' WHERE id = 'r_1'")
    assert (await verify_session(ledger, "s_a")).problems == ("Request r_1 differs from its event in: question",)
    await tamper(address, "UPDATE requests SET question = '', answered_by = 'person:bob' WHERE id = 'r_1'")
    assert (await verify_session(ledger, "s_a")).problems == ("Request r_1 differs from its event in: by",)


@proves("chain.redacted-projections")
async def test_an_open_request_is_answered_before_its_text_is_erased(ledger: Ledger) -> None:
    await record_everything(ledger)
    with pytest.raises(BadRecord, match="r_2 of this event still waits"):
        await ledger.redact("s_a", [5], actor="ada", reason="x")
    assert (await ledger.session("s_a")).last_seq == 5

    close = CloseRequest(id="r_2", state="dismissed", by="ada")
    await ledger.commit(Change(session="s_a", events=(NewEvent(type="ended", body={"request": "r_2"}),), requests=(close,)))
    await ledger.redact("s_a", [5], actor="ada", reason="x")
    assert (await ledger.session("s_a")).status == "completed"
    assert (await verify_session(ledger, "s_a")).problems == ()


@proves("chain.redacted-projections")
async def test_the_events_of_an_earlier_version_are_redacted_with_their_requests(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.ledger.encoding.add_marks", lambda _change, bodies, _digests, **_: bodies)
    await record_everything(ledger)
    monkeypatch.undo()

    await ledger.redact("s_a", [2, 3], actor="ada", reason="x")

    request = await ledger.request("r_1")
    assert (request.question, request.options, request.answer) == ("", (), {})
    assert (await verify_session(ledger, "s_a")).problems == ()


@proves("chain.redacted-projections")
async def test_nobody_redacts_a_session_whose_record_cannot_be_computed_again(ledger: Ledger) -> None:
    await record_everything(ledger)
    ledger.record_type = lambda _kind: None

    with pytest.raises(BadRecord, match="cannot be computed again"):
        await ledger.redact("s_a", [4], actor="ada", reason="x")


@proves("chain.redacted-projections")
async def test_the_definition_of_a_session_stays_when_its_first_event_is_redacted(ledger: Ledger) -> None:
    await record_everything(ledger)
    digest = (await ledger.events("s_a"))[0].body["snapshot"]
    await ledger.redact("s_a", [1], actor="ada", reason="x")
    (first,) = await ledger.events("s_a", limit=1)

    assert await ledger.blob(digest) == b"the definition"
    assert (first.redacted, await read_body(ledger, first)) == (True, {"level": "enforce", "snapshot": digest})
    assert (await verify_session(ledger, "s_a")).problems == ()

    await ledger.erase(["s_a"], actor="ada", reason="x")
    assert await ledger.blob(digest) is None
