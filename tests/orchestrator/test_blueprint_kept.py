"""A run keeps to the blueprint it began with, whatever becomes of the files."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from fidelio.mcp_client import McpServer
from fidelio.orchestrator.blueprints.model import Limits
from fidelio.orchestrator.executors.contract import Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import Usage
from fidelio.orchestrator.record.record import RUN_STARTING
from fidelio.orchestrator.runs.preparation import restore_turn
from fidelio.orchestrator.service.service import AgentService
from tests.orchestrator.adoption import Adoptable, Working
from tests.orchestrator.fakes import House, finished, start
from tests.support import proves


async def spending(turn: Turn, tell: Reporter) -> TurnResult:
    await tell.report_usage(Usage(input_tokens=10))
    return TurnResult(text="done")


async def left_at_work(house: House, service: AgentService, name: str, **more: Any) -> None:
    """A session whose host has gone and whose agent works on."""
    working = Working()
    house.actor.part = working.part
    async with house.host(service):
        await start(service, name, **more)
        await working.begun()


async def kept_by(service: AgentService, name: str) -> str:
    """The digest under which the newest run keeps its blueprint."""
    begun = [event.body for event in await service.events(name) if event.type == RUN_STARTING]
    return str(begun[-1]["blueprint_blob"])


@pytest.fixture
def actor(house: House) -> Adoptable:
    house.actor = actor = Adoptable(again=spending)
    return actor


@proves("orchestrator.blueprint-kept", "orchestrator.adopt")
@pytest.mark.parametrize("what", ["deleted", "changed"])
async def test_a_blueprint_that_is_gone_or_changed_does_nothing_to_a_run_at_work(
    house: House, actor: Adoptable, what: str
) -> None:
    house.shelf.add("singer", limits=Limits(tokens=100, wall_seconds=math.inf), options={"pitch": [440, {"odd": "\ud83d"}]})
    before = house.shelf.known["singer"]
    service = house.service()
    await left_at_work(house, service, "aria", blueprint="singer")

    if what == "deleted":
        del house.shelf.known["singer"]
    else:
        house.shelf.add("singer", limits=Limits(tokens=1))
    async with house.host(service):
        (session,) = await finished(service, "aria")

    assert (session.run.state, session.run.reason) == ("succeeded", "")
    assert [turn.blueprint for turn in actor.adopted] == [before]


@proves("orchestrator.blueprint-kept")
async def test_the_next_turn_has_the_blueprint_as_it_is_now(house: House, actor: Adoptable) -> None:
    house.shelf.add("singer", system_prompt="Sing.")
    service = house.service()
    await left_at_work(house, service, "aria", blueprint="singer")
    async with house.host(service):
        await finished(service, "aria")
        house.shelf.add("singer", system_prompt="Hum.")
        actor.part = spending
        await service.resume("aria", "Again.")
        await finished(service, "aria")

    assert [turn.blueprint.system_prompt for turn in actor.turns] == ["Sing.", "Hum."]


@proves("orchestrator.blueprint-kept")
async def test_a_run_that_began_before_blueprints_were_kept_is_gone_on_with_by_the_files(
    house: House, actor: Adoptable
) -> None:
    house.shelf.add("singer")
    service = house.service()
    await left_at_work(house, service, "aria", blueprint="singer")
    house.shelf.add("singer", limits=Limits(tokens=1))
    at = await service.queries.find("aria")
    older = replace(at, record=replace(at.record, run=replace(at.record.run, blueprint_blob="")))

    assert (await restore_turn(service.context, older)).blueprint == house.shelf.known["singer"]


@proves("orchestrator.blueprint-kept", "orchestrator.delete")
async def test_a_kept_blueprint_goes_with_the_last_session_that_ran_it(house: House, hosted: AgentService) -> None:
    house.shelf.add("singer")
    for name in ("aria", "duet"):
        await start(hosted, name, blueprint="singer")
        await finished(hosted, name)
    digest = await kept_by(hosted, "aria")
    assert await kept_by(hosted, "duet") == digest

    await hosted.delete("aria")
    assert await house.ledger.blob(digest) is not None
    await hosted.delete("duet")
    assert await house.ledger.blob(digest) is None


@proves("orchestrator.blueprint-kept")
async def test_no_secret_is_kept_with_a_blueprint(house: House, hosted: AgentService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICE_KEY", "do-re-mi")
    server = McpServer(command="voice", env={"KEY": "${VOICE_KEY}"})
    house.shelf.add("singer", inherit=("VOICE_KEY",), mcp_servers={"voice": server})
    await start(hosted, "aria", blueprint="singer")
    await finished(hosted, "aria")

    kept = await house.ledger.blob(await kept_by(hosted, "aria")) or b""
    assert house.actor.turns[0].blueprint.mcp_servers["voice"].env == {"KEY": "do-re-mi"}
    assert b"VOICE_KEY" in kept
    assert b"do-re-mi" not in kept
