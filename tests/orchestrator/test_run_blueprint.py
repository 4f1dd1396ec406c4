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
from tests.orchestrator.adoption import AdoptingExecutor, EndlessTurn
from tests.orchestrator.fakes import OrchestratorHarness, start, wait_until_finished
from tests.support import proves


async def spending(turn: Turn, reporter: Reporter) -> TurnResult:
    await reporter.report_usage(Usage(input_tokens=10))
    return TurnResult(text="done")


async def left_at_work(harness: OrchestratorHarness, service: AgentService, name: str, **more: Any) -> None:
    """A session whose host has gone and whose agent works on."""
    working = EndlessTurn()
    harness.actor.part = working.part
    async with harness.host(service):
        await start(service, name, **more)
        await working.begun()


async def kept_by(service: AgentService, name: str) -> str:
    """The digest under which the newest run keeps its blueprint."""
    begun = [event.body for event in await service.events(name) if event.type == RUN_STARTING]
    return str(begun[-1]["blueprint_blob"])


@pytest.fixture
def actor(harness: OrchestratorHarness) -> AdoptingExecutor:
    harness.actor = actor = AdoptingExecutor(again=spending)
    return actor


@proves("orchestrator.blueprint-kept", "orchestrator.adopt")
@pytest.mark.parametrize("what", ["deleted", "changed"])
async def test_a_blueprint_that_is_gone_or_changed_does_nothing_to_a_run_at_work(
    harness: OrchestratorHarness, actor: AdoptingExecutor, what: str
) -> None:
    harness.blueprints.add(
        "singer", limits=Limits(tokens=100, wall_seconds=math.inf), options={"pitch": [440, {"odd": "\ud83d"}]}
    )
    before = harness.blueprints.known["singer"]
    service = harness.service()
    await left_at_work(harness, service, "aria", blueprint="singer")

    if what == "deleted":
        del harness.blueprints.known["singer"]
    else:
        harness.blueprints.add("singer", limits=Limits(tokens=1))
    async with harness.host(service):
        (session,) = await wait_until_finished(service, "aria")

    assert (session.run.state, session.run.reason) == ("succeeded", "")
    assert [turn.blueprint for turn in actor.adopted] == [before]


@proves("orchestrator.blueprint-kept")
async def test_the_next_turn_has_the_blueprint_as_it_is_now(harness: OrchestratorHarness, actor: AdoptingExecutor) -> None:
    harness.blueprints.add("singer", system_prompt="Sing.")
    service = harness.service()
    await left_at_work(harness, service, "aria", blueprint="singer")
    async with harness.host(service):
        await wait_until_finished(service, "aria")
        harness.blueprints.add("singer", system_prompt="Hum.")
        actor.part = spending
        await service.resume("aria", "Again.")
        await wait_until_finished(service, "aria")

    assert [turn.blueprint.system_prompt for turn in actor.turns] == ["Sing.", "Hum."]


@proves("orchestrator.blueprint-kept")
async def test_a_run_that_began_before_blueprints_were_kept_is_gone_on_with_by_the_files(
    harness: OrchestratorHarness, actor: AdoptingExecutor
) -> None:
    harness.blueprints.add("singer")
    service = harness.service()
    await left_at_work(harness, service, "aria", blueprint="singer")
    harness.blueprints.add("singer", limits=Limits(tokens=1))
    at = await service.queries.find("aria")
    older = replace(at, record=replace(at.record, run=replace(at.record.run, blueprint_blob="")))

    assert (await restore_turn(service.context, older)).blueprint == harness.blueprints.known["singer"]


@proves("orchestrator.blueprint-kept", "orchestrator.delete")
async def test_a_kept_blueprint_goes_with_the_last_session_that_ran_it(
    harness: OrchestratorHarness, hosted: AgentService
) -> None:
    harness.blueprints.add("singer")
    for name in ("aria", "duet"):
        await start(hosted, name, blueprint="singer")
        await wait_until_finished(hosted, name)
    digest = await kept_by(hosted, "aria")
    assert await kept_by(hosted, "duet") == digest

    await hosted.delete("aria")
    assert await harness.ledger.blob(digest) is not None
    await hosted.delete("duet")
    assert await harness.ledger.blob(digest) is None


@proves("orchestrator.blueprint-kept")
async def test_no_secret_is_kept_with_a_blueprint(
    harness: OrchestratorHarness, hosted: AgentService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICE_KEY", "do-re-mi")
    server = McpServer(command="voice", env={"KEY": "${VOICE_KEY}"})
    harness.blueprints.add("singer", inherit=("VOICE_KEY",), mcp_servers={"voice": server})
    await start(hosted, "aria", blueprint="singer")
    await wait_until_finished(hosted, "aria")

    kept = await harness.ledger.blob(await kept_by(hosted, "aria")) or b""
    assert harness.actor.turns[0].blueprint.mcp_servers["voice"].env == {"KEY": "do-re-mi"}
    assert b"VOICE_KEY" in kept
    assert b"do-re-mi" not in kept
