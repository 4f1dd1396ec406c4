"""Whatever agents call, in whichever of the two dialects: what waits is what the inbox shows, and what waits holds."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from fidelio.engine.record import Record, decode_record, fold
from fidelio.ledger import Ledger, open_ledger
from fidelio.settings import Settings, load_settings
from tests.dialects.conftest import Player, playing
from tests.dialects.gates.conftest import TUNE
from tests.dialects.gates.test_dialect_switch import REHEARSE
from tests.dialects.sample_workflow import write_sample_workflow
from tests.support import proves

ACTIVITIES = ("tune", "play", "bow", "rehearse")
OPTIONS = {"how": "forte", "encore": "some", "cold": "no_", "conductor": "begin", "each": "good"}


class GateCall(NamedTuple):
    """One call of an agent; `what` is the activity or the checkpoint."""

    dialect: str
    tool: str
    what: str = ""


entering = st.builds(GateCall, st.sampled_from(["gates", "sessions"]), st.just("next_activity"), st.sampled_from(ACTIVITIES))
answering = st.builds(GateCall, st.just("gates"), st.just("respond_checkpoint"), st.sampled_from([*TUNE, "each"]))
passing_on = st.just(GateCall("sessions", "respond_checkpoint"))
yielding = st.builds(GateCall, st.just("sessions"), st.just("yield_checkpoint"), st.sampled_from([*TUNE, "each"]))
resuming = st.just(GateCall("sessions", "resume_checkpoint"))
calls = st.lists(entering | answering | passing_on | yielding | resuming, min_size=5, max_size=25)


class Stage:
    """One session, two servers, and a look at what the ledger has."""

    def __init__(self, players: dict[str, Player], ledger: Ledger, session: str) -> None:
        self._players = players
        self._ledger = ledger
        self._session = session

    async def record(self) -> Record:
        session = await self._ledger.session(self._session)
        record = decode_record(session.raw)
        return fold(record, await self._ledger.events(session.id, after=record.seq))

    async def open_requests(self) -> set[str]:
        return {one.id for one in (await self._ledger.requests(session=self._session, state="open")).items}

    async def play(self, call: GateCall) -> bool:
        """Whether the call was accepted."""
        key = {"next_activity": "activity_id"}.get(call.tool, "checkpoint_id")
        more = {key: call.what} if call.what else {}
        if call.tool == "respond_checkpoint":
            waiting = (await self.record()).waiting
            more["option_id"] = OPTIONS[call.what or (waiting.checkpoint if waiting else "how")]
        return not (await self._players[call.dialect](call.tool, session_token=self._session, **more)).is_error


@proves("gates.across", "gates.held", "gates.arm")
@settings(max_examples=20, deadline=None)
@given(calls)
def test_what_waits_is_in_the_inbox_and_holds_every_move(played: list[GateCall]) -> None:
    with tempfile.TemporaryDirectory() as place:
        library = write_sample_workflow(Path(place) / "workflows")
        (library / "score" / "activities" / "04-rehearse.yaml").write_text(REHEARSE)
        home = load_settings(environ={"FIDELIO_HOME": f"{place}/home", "FIDELIO_MIN_RESPONSE_SECONDS": "0"})
        asyncio.run(_check(home, library, played))


async def _check(home: Settings, library: Path, played: list[GateCall]) -> None:
    async with playing(home, library) as sessions, playing(home, library, dialect="gates") as gates:
        token = await gates.start()
        session = str((await gates("get_trace", session_token=token)).json["traceId"])
        async with await open_ledger(home.ledger) as ledger:
            stage = Stage({"sessions": sessions, "gates": gates}, ledger, session)
            for call in played:
                await _check_call(stage, call)


async def _check_call(stage: Stage, call: GateCall) -> None:
    before = await stage.record()
    accepted = await stage.play(call)
    after = await stage.record()

    waiting = {one.request for one in after.pending}
    assert waiting == await stage.open_requests()
    assert (after.status == "blocked") is bool(waiting)
    assert len({one.instance for one in after.pending}) == len(after.pending)
    if call.tool == "next_activity" and call.what != before.activity:
        assert accepted is not bool(before.pending)
    if not accepted:
        assert (after.here, after.pending, after.variables) == (before.here, before.pending, before.variables)
    elif call.tool == "respond_checkpoint":
        assert len(before.pending) - len(after.pending) in (0, 1)
