"""Counting sessions without listing them."""

from __future__ import annotations

from fidelio.ledger import Ledger
from fidelio.ledger.model import Change
from tests.support import proves
from tests.support.ledgers import start


@proves("ledger.sessions")
async def test_sessions_are_counted_as_they_are_listed(ledger: Ledger) -> None:
    for number in range(7):
        await start(ledger, f"s_{number}", namespace="/one" if number % 2 else "/two")
    await ledger.commit(Change(session="s_1", status="completed"))
    await ledger.erase(["s_3"], actor="me", reason="deleted")
    counted = {
        "all": await ledger.count_sessions(),
        "one": await ledger.count_sessions(namespace="/one"),
        "done": await ledger.count_sessions(status="completed"),
        "done in two": await ledger.count_sessions(namespace="/two", status="completed"),
        "deleted": await ledger.count_sessions(status="deleted"),
        "kind": await ledger.count_sessions(kind="runtime"),
    }
    assert counted == {"all": 6, "one": 2, "done": 1, "done in two": 0, "deleted": 1, "kind": 0}
