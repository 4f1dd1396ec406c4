"""Erasure with an expected sequence number."""

from __future__ import annotations

import pytest

from fidelio.errors import SequenceConflict
from fidelio.ledger import Ledger
from fidelio.ledger.audit import verify_session
from tests.support import proves
from tests.support.ledgers import say, start


@proves("families.erase-expected")
async def test_what_has_moved_on_is_not_erased_nor_is_what_was_to_go_with_it(ledger: Ledger) -> None:
    for session in ("s_a", "s_b"):
        await start(ledger, session, name=session)
    expect = {session: (await ledger.session(session)).last_seq for session in ("s_a", "s_b")}
    await say(ledger, "s_b", {"a": "One more word."})

    with pytest.raises(SequenceConflict) as conflict:
        await ledger.erase(["s_a", "s_b"], actor="ada", reason="x", expect=expect)

    assert conflict.value.actual == expect["s_b"] + 1
    assert [(await ledger.session(session)).name for session in ("s_a", "s_b")] == ["s_a", "s_b"]
    assert (await ledger.events("s_b"))[-1].body == {"a": "One more word."}
    for session in ("s_a", "s_b"):
        await verify_session(ledger, session)


@proves("families.erase-expected")
async def test_what_is_as_it_was_is_erased(ledger: Ledger) -> None:
    await start(ledger, "s_a")
    seq = (await ledger.session("s_a")).last_seq

    await ledger.erase(["s_a"], actor="ada", reason="x", expect={"s_a": seq})
    await ledger.erase(["s_a"], actor="ada", reason="again", expect={"s_a": seq})

    session = await ledger.session("s_a")
    assert (session.status, session.reason, session.last_seq) == ("deleted", "x", seq + 1)
