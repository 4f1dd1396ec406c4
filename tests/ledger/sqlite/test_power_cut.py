"""Power loss at every sync: acknowledged events are stored and the chain is valid."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fidelio.ledger.model import Change, NewEvent, NewJob, NewSession, PutDocument
from fidelio.ledger.sqlite import SqliteLedger, open_sqlite
from tests.ledger.sqlite.disks import Cut, WeakPower, registered
from tests.support import proves
from tests.support.chains import verify_chain

ROUNDS = 12


@proves("ledger.power-cut", "ledger.durable")
@pytest.mark.parametrize("seed", range(3))
async def test_acknowledged_events_survive_a_power_cut_at_every_sync(tmp_path: Path, seed: int) -> None:
    power = WeakPower(seed)
    (tmp_path / "weak").mkdir()
    with registered(power):
        await _busy_run(power, tmp_path / "weak" / "ledger.db")
    assert len(power.cuts) > 4 * ROUNDS

    for number, cut in enumerate(power.cuts):
        await _check(cut, tmp_path / f"cut-{number}")


async def _busy_run(power: WeakPower, path: Path) -> None:
    async with await open_sqlite(path, vfs=power.name) as ledger:
        for session in ("s_a", "s_b", "s_c"):
            await ledger.commit(Change(session=session, create=NewSession(kind="agent")))
        for number in range(ROUNDS):
            await asyncio.gather(*(_append(ledger, power, session, number) for session in ("s_a", "s_b", "s_c")))
            if number % 4 == 3:
                # A checkpoint moves everything from the log into the file: the moment when most could go wrong.
                await ledger.redact("s_a", [1], actor="ada", reason="x")
                await ledger.update_index()


async def _append(ledger: SqliteLedger, power: WeakPower, session: str, number: int) -> None:
    document = PutDocument(space="n", path=f"{session}/{number}", text=f"text {number} " * 200)
    await ledger.commit(
        Change(
            session=session,
            events=(NewEvent(type="note", body={"n": number, "text": "x" * 700}),),
            documents=(document,),
            jobs=(NewJob(kind="wake", session=session, key="k"),),
        )
    )
    power.acknowledged += 1


def _is_stump(path: Path) -> bool:
    return path.stat().st_size == 0


async def _check(cut: Cut, where: Path) -> None:
    cut.restore(where)
    if await asyncio.to_thread(_is_stump, where / "ledger.db"):
        # Here the file is born under the eyes of the test; a real one appears whole, under its name, when it is complete.
        assert cut.acknowledged == 0
        return
    async with await open_sqlite(where / "ledger.db") as ledger:
        await ledger.check()
        notes = 0
        for session in (await ledger.sessions()).items:
            events = await ledger.events(session.id)
            verify_chain(session.id, events, expected_heads=[session.head])
            notes += sum(event.type == "note" for event in events)
        documents = (await ledger.documents("n", limit=1000)).items
    assert notes >= cut.acknowledged
    assert len(documents) == notes
