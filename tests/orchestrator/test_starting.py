"""How sessions begin: what is checked, what is promised, and where they are found again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fidelio.errors import (
    AgentError,
    AgentSessionExists,
    AgentSessionNotFound,
    AmbiguousAgentSession,
    BadAgentInput,
    BlueprintNotFound,
    ExecutorUnavailable,
    FidelioError,
    UsageProblem,
)
from fidelio.ledger import open_ledger
from fidelio.orchestrator.record.model import StartAgent
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import AgentLimits, load_settings
from tests.orchestrator.fakes import OrchestratorHarness, start, wait_until_finished
from tests.support import proves


@proves("orchestrator.durable-start", "orchestrator.status")
async def test_another_process_sees_a_session_as_soon_as_its_start_has_returned(
    harness: OrchestratorHarness, service: AgentService
) -> None:
    started = await start(service, "aria", "Sing.")

    async with await open_ledger(harness.home.ledger) as other:
        (event, *_) = await other.events(started.id)
        seen = await other.session_by_name("aria", namespace=started.project)
    assert (event.type, seen.status) == ("session.created", "queued")
    assert (started.status, started.run.state, started.run.number) == ("running", "queued", 1)


@proves("orchestrator.names")
@pytest.mark.parametrize("name", ["", "a\n", "a b", "x" * 61, "../up"])
async def test_a_bad_name_is_refused_with_the_rules(service: AgentService, name: str) -> None:
    with pytest.raises(UsageProblem, match="Invalid session name") as refusal:
        await start(service, name)

    assert "alphanumeric, dash, underscore; max 60 chars" in str(refusal.value)


@proves("orchestrator.names")
async def test_a_name_that_looks_like_an_option_is_a_name(hosted: AgentService) -> None:
    await start(hosted, "--help", "Sing.")

    (session,) = await wait_until_finished(hosted, "--help")
    assert (await hosted.result(session.id)).text == "Sing."


@proves("orchestrator.unique")
async def test_of_concurrent_starts_with_a_name_only_one_succeeds(service: AgentService) -> None:
    answers = await asyncio.gather(*(start(service, "aria", str(number)) for number in range(8)), return_exceptions=True)

    refusals = [answer for answer in answers if isinstance(answer, AgentSessionExists)]
    assert len(refusals) == 7
    assert "Session already exists" in str(refusals[0])
    assert "Use `resume_agent_session` or choose a different name" in str(refusals[0])
    assert len((await service.list()).items) == 1


@proves("orchestrator.unique", "orchestrator.scope")
async def test_the_same_name_can_be_used_in_another_project(
    harness: OrchestratorHarness, service: AgentService, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    here = await start(service, "aria")
    there = await start(service, "aria", project=str(tmp_path / "other"))

    assert (await service.find("aria")).id == here.id
    assert (await service.find("aria", str(tmp_path / "other"))).id == there.id


@proves("orchestrator.scope")
async def test_a_name_of_another_project_is_found_where_it_is_the_only_one(service: AgentService, tmp_path: Path) -> None:
    for place in ("one", "two", "three"):
        (tmp_path / place).mkdir()
    only = await start(service, "solo", project=str(tmp_path / "one"))
    for place in ("two", "three"):
        await start(service, "duo", project=str(tmp_path / place))

    assert (await service.find("solo")).id == only.id
    with pytest.raises(AmbiguousAgentSession) as refusal:
        await service.find("duo")
    assert str(tmp_path / "two") in str(refusal.value)
    assert str(tmp_path / "three") in str(refusal.value)


@proves("orchestrator.scope", "orchestrator.id-or-name")
async def test_with_a_project_nothing_outside_of_it_is_found(service: AgentService, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    session = await start(service, "aria", project=str(tmp_path / "one"))

    for name in ("aria", session.id):
        with pytest.raises(AgentSessionNotFound, match=r"Session does not exist.*start_agent_session"):
            await service.find(name, str(tmp_path))
        assert (await service.find(name, str(tmp_path / "one"))).id == session.id
        assert (await service.find(name)).id == session.id


@proves("orchestrator.scope")
async def test_one_directory_is_one_project_whichever_of_its_paths_names_it(service: AgentService, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    session = await start(service, "aria", project=str(tmp_path / "link"))

    assert (await service.find("aria", str(tmp_path / "real" / ".." / "real"))).id == session.id
    with pytest.raises(AgentSessionExists):
        await start(service, "aria", project=str(tmp_path / "real"))


@proves("orchestrator.absolute")
async def test_a_relative_project_is_refused_everywhere(service: AgentService) -> None:
    with pytest.raises(UsageProblem, match="absolute"):
        await start(service, "aria", project="some/where")
    with pytest.raises(UsageProblem, match="absolute"):
        await service.list("some/where")
    with pytest.raises(UsageProblem, match="absolute"):
        await service.find("aria", ".")


@proves("orchestrator.vanished")
async def test_sessions_of_a_deleted_directory_are_listed_stopped_and_deleted(service: AgentService, tmp_path: Path) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    await start(service, "aria", project=str(place))
    place.rmdir()

    assert [one.name for one in (await service.list(str(place))).items] == ["aria"]
    assert (await service.stop("aria", str(place), by="me")).run.state == "stopped"
    with pytest.raises(UsageProblem, match="does not exist"):
        await service.resume("aria", "Again.", str(place))
    assert (await service.delete("aria", str(place))).count == 1


REFUSALS = [
    (StartAgent(name="aria", prompt="x", blueprint="nobody"), BlueprintNotFound),
    (StartAgent(name="aria", prompt="  "), UsageProblem),
    (StartAgent(name="aria", prompt="x", project="/no/such/place"), UsageProblem),
    (StartAgent(name="aria", prompt="x", executor="nobody"), ExecutorUnavailable),
    (StartAgent(name="aria", prompt="x", executor="mute"), ExecutorUnavailable),
    (StartAgent(name="aria", prompt="x", executor="picky"), AgentError),
    (StartAgent(name="aria", prompt={"tempo": "fast"}, blueprint="strict"), BadAgentInput),
    (StartAgent(name="aria", prompt="x", worktree=True), UsageProblem),
    (StartAgent(name="aria", prompt="x", parent="s_nobody"), AgentSessionNotFound),
    (StartAgent(name="aria", prompt="x", callback=True), UsageProblem),
]


@proves("orchestrator.checked-start")
@pytest.mark.parametrize(("asked", "refusal"), REFUSALS)
async def test_a_start_that_cannot_work_is_refused_and_leaves_nothing(
    harness: OrchestratorHarness, asked: StartAgent, refusal: type[FidelioError]
) -> None:
    schema = {"type": "object", "properties": {"tempo": {"type": "integer"}}, "required": ["tempo"]}
    harness.blueprints.add("strict", input_schema=schema)
    harness.others |= {
        "mute": type(harness.actor)(name="mute", works=False),
        "picky": type(harness.actor)(name="picky", complaints=("It knows no `tempo`.",)),
    }
    service = harness.service()

    with pytest.raises(refusal):
        await service.start(asked)
    assert (await service.list()).items == ()


@proves("orchestrator.checked-start")
async def test_an_object_that_fits_the_schema_becomes_the_prompt(harness: OrchestratorHarness, hosted: AgentService) -> None:
    harness.blueprints.add("strict", input_schema={"type": "object", "required": ["tempo"]})

    await hosted.start(StartAgent(name="aria", prompt={"tempo": 120}, blueprint="strict"))
    await wait_until_finished(hosted, "aria")

    assert '"tempo": 120' in harness.actor.turns[0].prompt


@proves("orchestrator.depth")
async def test_sessions_start_sessions_only_so_deep(harness: OrchestratorHarness) -> None:
    harness.limits = AgentLimits(depth=2)
    service = harness.service()
    parent = await start(service, "zero")
    parent = await start(service, "one", parent=parent.id)
    parent = await start(service, "two", parent="one")

    assert parent.depth == 2
    with pytest.raises(UsageProblem, match="FIDELIO_AGENTS_DEPTH"):
        await start(service, "three", parent=parent.id)


@proves("orchestrator.settings")
def test_limits_come_from_the_environment() -> None:
    environ = {
        "FIDELIO_HOME": "/h",
        "FIDELIO_AGENTS_PER_PROJECT": "7",
        "FIDELIO_AGENTS_TOTAL": "9",
        "FIDELIO_AGENTS_DEPTH": "0",
    }

    assert load_settings(environ=environ).agents == AgentLimits(per_project=7, total=9, depth=0)


@proves("orchestrator.settings")
@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "٣", "99999"])
def test_a_bad_limit_is_refused_at_the_start(value: str) -> None:
    with pytest.raises(UsageProblem, match="FIDELIO_AGENTS_TOTAL"):
        load_settings(environ={"FIDELIO_HOME": "/h", "FIDELIO_AGENTS_TOTAL": value})


@proves("orchestrator.settings")
async def test_without_a_name_the_executor_that_was_set_is_used(harness: OrchestratorHarness, service: AgentService) -> None:
    assert (await start(service, "aria")).executor == "actor"
