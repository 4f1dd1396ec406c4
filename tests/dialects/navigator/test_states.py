"""The state token: sealed, resumable here and elsewhere, and never larger than it may be."""

from __future__ import annotations

import asyncio
import base64
import gzip
import shutil
from pathlib import Path

import pytest

from fidelio.errors import BadToken
from fidelio.inbox import Inbox
from fidelio.ledger import open_ledger
from fidelio.ledger.audit import verify_session
from fidelio.settings import Settings, load_settings
from fidelio.tokens.keyring import FixedKeys
from fidelio.tokens.packed import MAX_BYTES, PREFIX, PackedSeal
from fidelio.workflows.report import report_session
from tests.dialects.conftest import Opens, Player, playing
from tests.dialects.navigator.conftest import Guide
from tests.support import proves


@pytest.fixture
def elsewhere(tmp_path: Path, settings: Settings) -> Settings:
    """Another home with the same keys."""
    other = load_settings(environ={"FIDELIO_HOME": str(tmp_path / "other"), "FIDELIO_MIN_RESPONSE_SECONDS": "0"})
    other.home.ensure()
    settings.home.ensure()
    return other


def share_keys(settings: Settings, other: Settings) -> None:
    shutil.copy2(settings.home.keys, other.home.keys)


@proves("navigator.state")
async def test_the_state_has_its_documented_form(guide: Guide) -> None:
    await guide.start("tour")
    content = guide.state.removeprefix(PREFIX).split(".")[0]

    assert guide.state.startswith("v1.gzB64.H4sI")
    assert b'"workflow":"tour"' in gzip.decompress(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))


@proves("navigator.state")
async def test_a_changed_byte_is_refused_wherever_it_is(memory: Opens) -> None:
    async with memory() as play:
        state = (await Guide(play).start("tour")).state
        for place in (*range(0, len(state), 37), len(state) - 1):
            changed = state[:place] + ("A" if state[place] != "A" else "B") + state[place + 1 :]
            for tool, more in (("nav_situation", {}), ("nav_action", {"action": "complete_step", "step_id": "list"})):
                reply = await play(tool, state=changed, **more)
                assert reply.is_error, place
        for cut in (state[:-1], state + "A", state[:40], "v1.gzB64.", "v1.gzB64.H4sIAAAA"):
            assert (await play("nav_situation", state=cut)).is_error

        assert (await Guide(play, state).look()).place() == ("tour", "pack", "list")


@proves("navigator.state")
async def test_an_older_state_opens_the_current_record(guide: Guide) -> None:
    await guide.start("tour")
    first = guide.state
    await guide.step("list", "shine")

    late = await Guide(guide.play, first).look()
    assert late.last["checkpoint"]["id"] == "size"
    await late.say("size", "big")
    assert (await guide.look()).required == [("complete_step", "ask")]


@proves("navigator.state")
async def test_two_agents_cannot_both_move_a_session(memory: Opens) -> None:
    async with memory() as play:
        guide = await Guide(play).start("camp")
        first = guide.state
        await guide.go("cook")
        stale = await Guide(play, first).do("transition", activity_id="__terminal__")

        assert stale.code == "STALE_STATE"
        assert "nav_situation" in stale.last["message"]
        assert (await guide.look()).place() == ("camp", "cook", None)


@proves("navigator.state", "navigator.offers")
async def test_of_agents_that_complete_the_same_step_at_once_one_does(memory: Opens) -> None:
    async with memory() as play, memory() as other:
        state = (await Guide(play).start("tour")).state
        tries = [Guide(server, state).do("complete_step", step_id="list") for server in (play, other) * 4]
        async with asyncio.timeout(30):
            replies = [one.last for one in await asyncio.gather(*tries)]

    assert sorted(reply["success"] for reply in replies) == [False] * 7 + [True]
    assert {reply["error"]["code"] for reply in replies if not reply["success"]} == {"STEP_ALREADY_COMPLETE"}


@proves("navigator.carried")
async def test_a_server_with_the_same_keys_goes_on_from_the_state(
    memory: Opens, settings: Settings, elsewhere: Settings
) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour", stops=["mill", "well"])
        await guide.step("list")
        await guide.say("size", "big")
        await guide.step("ask", "fold")
        await guide.go("visit")
        await guide.advance("each")
        session, state = guide.token, guide.state
    share_keys(settings, elsewhere)
    async with memory(house_settings=elsewhere) as play:
        assert "not genuine" not in (await play("nav_situation", state=state)).text
        there = await Guide(play, state).look()
        assert there.last["position"] == guide.last["position"]
        await there.step("look")
        await there.say("rate", "enough")
        await there.step("note")
        await there.go("home")
        assert there.place() == ("tour", "home", "rest")
        # A session token opens what this ledger knows by now.
        assert (await Guide(play, session).look()).place() == ("tour", "home", "rest")
    async with await open_ledger(elsewhere.ledger) as ledger:
        restored, *_ = await ledger.events()
        report = await report_session(ledger, restored.session)
        assert (await verify_session(ledger, restored.session)).events > 5
    assert (restored.type, restored.body["record"]["workflow"]) == ("session.restored", "tour")
    assert report.restored
    assert [visit.activity for visit in report.visits] == ["visit", "home"]
    assert report.variables["tired"] is True


@proves("navigator.carried")
async def test_a_server_without_the_workflow_restores_the_session_and_names_no_place_of_its_definition(
    memory: Opens, settings: Settings, elsewhere: Settings, tmp_path: Path
) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour")
    share_keys(settings, elsewhere)
    (tmp_path / "none").mkdir()
    for _ in range(2):  # the second server reads what the first has written
        async with playing(elsewhere, tmp_path / "none", dialect="navigator") as play:
            refused = await play("nav_situation", state=guide.state)
            assert "tour" in refused.text
    async with await open_ledger(elsewhere.ledger) as ledger:
        report = await report_session(ledger, (await ledger.events())[0].session)

    assert (report.restored, report.found_in) == (True, "")


@proves("navigator.carried", "navigator.inbox")
async def test_a_question_that_waited_waits_there_too(memory: Opens, settings: Settings, elsewhere: Settings) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour")
        await guide.step("list", "shine")
    share_keys(settings, elsewhere)
    async with memory(house_settings=elsewhere) as play:
        there = await Guide(play, guide.state).look()
        async with await open_ledger(elsewhere.ledger) as ledger:
            (request,) = (await Inbox(ledger).list_requests()).items
            assert request.id == there.last["checkpoint"]["request_id"]
            await Inbox(ledger).answer(request.id, "big", by="person:test", channel="cli")
        assert (await there.look()).required == [("complete_step", "ask")]


@proves("navigator.carried", "navigator.triggers")
async def test_the_parent_that_waits_is_carried_along(memory: Opens, settings: Settings, elsewhere: Settings) -> None:
    async with memory() as play:
        guide = await Guide(play).start("ferry")
        await guide.step("queue", "cross")
    share_keys(settings, elsewhere)
    async with memory(house_settings=elsewhere) as play:
        there = await Guide(play, guide.state).look()
        assert there.place() == ("crossing", "sail", "steer")
        await there.step("steer")
        await there.go("__terminal__")
        assert there.place() == ("ferry", "board", "land")


@proves("navigator.carried")
async def test_where_the_ledger_knows_the_session_the_ledger_decides(
    memory: Opens, settings: Settings, elsewhere: Settings
) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour")
        share_keys(settings, elsewhere)
        async with memory(house_settings=elsewhere) as there:
            await Guide(there, guide.state).step("list")
        assert (await guide.look()).place() == ("tour", "pack", "list")


@proves("navigator.carried")
async def test_a_server_with_other_keys_refuses_and_says_so(memory: Opens, elsewhere: Settings) -> None:
    async with memory() as play:
        guide = await Guide(play).start("tour")
    async with memory(house_settings=elsewhere) as play:
        refused = await play("nav_situation", state=guide.state)

    assert refused.is_error
    assert "keys this server does not have" in refused.text


@proves("navigator.bounded")
def test_a_sealed_bomb_is_not_unpacked() -> None:
    seal = PackedSeal(FixedKeys(b"k" * 32), "state")
    assert seal.open(seal.seal(b"x" * MAX_BYTES)) == b"x" * MAX_BYTES

    bomb = seal.seal(b"x" * (MAX_BYTES * 100))
    assert len(bomb) < MAX_BYTES
    with pytest.raises(BadToken):
        seal.open(bomb)


@proves("navigator.state")
def test_a_state_is_sealed_for_its_purpose() -> None:
    keys = FixedKeys(b"k" * 32)
    with pytest.raises(BadToken):
        PackedSeal(keys, "other").open(PackedSeal(keys, "state").seal(b"{}"))


@proves("navigator.state")
async def test_the_short_handle_and_the_session_token_open_the_session_too(play: Player) -> None:
    reply = await play("nav_start", workflow_id="tour")
    found = await Guide(play, reply.token).look()

    assert found.state.startswith(PREFIX)
    await found.step("list")
