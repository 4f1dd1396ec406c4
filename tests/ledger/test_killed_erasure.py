"""A process killed while it erases sessions: each batch is erased completely or not at all."""

from __future__ import annotations

import os
import random
import secrets
import time
from contextlib import suppress

from fidelio.errors import SessionNotFound
from fidelio.ledger import Ledger, open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.ledger.model import Change, NewEvent, NewSession, OpenRequest
from tests.ledger.programs import eraser
from tests.ledger.programs.processes import child
from tests.support import proves

ROUNDS = 8


@proves("erasing.whole")
async def test_a_killed_process_has_deleted_whole_portions(address: str) -> None:
    seed = int(os.environ.get("KILL_SEED") or secrets.randbits(32))
    print(f"Repeat this run with KILL_SEED={seed}.")  # noqa: T201  # pytest shows it when the test fails
    rng = random.Random(seed)
    sessions = [f"s_{number}" for number in range(120)]
    async with await open_ledger(address) as ledger:
        await ledger.commit(*[_create_session(session) for session in sessions])
        await ledger.update_index()
    for _ in range(ROUNDS):
        _kill_one(address, sessions, rng)
        async with await open_ledger(address) as ledger:
            await _check(ledger, sessions)

    async with await open_ledger(address) as ledger:
        await ledger.erase(sessions, actor="ada", reason="the rest")
        await _check(ledger, sessions)
        assert (await ledger.sessions()).items == ()
        await ledger.check()


def _create_session(session: str) -> Change:
    events = tuple(NewEvent(type="note", body={"text": f"secret {session} {number}"}) for number in range(10))
    question = OpenRequest(id=f"r_{session}", kind="question", key="k", question="secret?")
    create = NewSession(kind="agent", name=session)
    return Change(session=session, create=create, events=events, record={"a": "secret"}, requests=(question,))


def _kill_one(address: str, sessions: list[str], rng: random.Random) -> None:
    with child(eraser.main, address, sessions) as victim:
        victim.receive()
        time.sleep(rng.random() * 0.03)  # a random moment for the kill, not a wait for a condition
        victim.kill()


async def _check(ledger: Ledger, sessions: list[str]) -> None:
    await _wait_for_last_commit(ledger, sessions)
    alive = [await _is_alive(ledger, session) for session in sessions]
    pairs = [set(alive[start : start + eraser.PAIR]) for start in range(0, len(alive), eraser.PAIR)]
    assert all(len(pair) == 1 for pair in pairs), "half a portion was deleted"
    for session in sessions:
        await verify_session(ledger, session)


async def _wait_for_last_commit(ledger: Ledger, sessions: list[str]) -> None:
    """Append to a session, which waits for a commit of a killed client that the server still runs."""
    for session in sessions:
        if (await ledger.session(session)).status != "deleted":
            with suppress(SessionNotFound):
                await ledger.append(session, NewEvent(type="buried"))
            return


async def _is_alive(ledger: Ledger, session: str) -> bool:
    """Whether the session exists; asserts that it is not partly erased."""
    row, events = await ledger.session(session), await ledger.events(session)
    request = await ledger.request(f"r_{session}")
    has_body = {not event.redacted for event in events if event.type == "note"}
    states = {row.status != "deleted", row.name is not None, bool(row.record), request.state == "open", *has_body}
    assert len(states) == 1, "half a session was deleted"
    return states.pop()
