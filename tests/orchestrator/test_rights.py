"""What an agent may let others do: never more than it may do itself, and never without an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fidelio.errors import LimitReached, UsageProblem
from fidelio.ledger.redaction import EventView, blank_body
from fidelio.orchestrator.blueprints.model import MODES, Limits, Permissions, narrow_permissions, reduce_limits
from fidelio.orchestrator.executors.contract import AgentQuestion, Reporter, Turn, TurnResult
from fidelio.orchestrator.record.model import AgentSession, Usage
from fidelio.orchestrator.record.record import SESSION_CREATED, AgentRecord
from fidelio.orchestrator.record.unit_of_work import AgentRecords
from fidelio.orchestrator.service.service import AgentService
from fidelio.settings import AgentLimits
from tests.orchestrator.fakes import FakeExecutor, OrchestratorHarness, echo, start, wait_until, wait_until_finished
from tests.support import proves

lists = st.lists(st.sampled_from(["Bash", "Edit", "mcp__a"]), max_size=3).map(tuple)
answerers = st.sampled_from(["person", "proven"])
all_permissions = st.builds(Permissions, mode=st.sampled_from(MODES), allow=lists, deny=lists, answered_by=answerers)


@proves("orchestrator.rights")
@given(all_permissions, all_permissions)
def test_narrowed_permissions_exceed_neither(wanted: Permissions, most: Permissions) -> None:
    found = narrow_permissions(wanted, most)

    assert MODES.index(found.mode) == min(MODES.index(wanted.mode), MODES.index(most.mode))
    assert set(found.deny) == {*wanted.deny, *most.deny}
    assert set(found.allow) <= set(wanted.allow)
    assert most.mode == "full" or set(found.allow) <= set(most.allow)
    assert narrow_permissions(found, most) == found
    assert narrow_permissions(wanted, None) == wanted


async def begin(service: AgentService, name: str, mode: str, **more: Any) -> AgentSession:
    return await start(service, name, blueprint=mode, **more)


@pytest.fixture
def modes(harness: OrchestratorHarness) -> OrchestratorHarness:
    """A blueprint for each permission mode, and one of an executor that no mode restrains."""
    for mode in MODES:
        harness.blueprints.add(mode, permissions=Permissions(mode=mode))
    harness.others = {"command": FakeExecutor(name="command")}
    return harness


@proves("orchestrator.rights")
async def test_a_child_gets_at_most_the_mode_of_its_parent_also_later(modes: OrchestratorHarness) -> None:
    service = modes.service()
    async with modes.host(service):
        parent = await begin(service, "parent", "read")
        child = await begin(service, "child", "full", parent=parent.id)
        await begin(service, "grandchild", "edit", parent=child.id)
        await wait_until_finished(service, "parent", "child", "grandchild")
        await service.resume("child", "Again.", by="cli")
        await wait_until_finished(service, "child")

    given = {turn.session: turn.blueprint.permissions.mode for turn in modes.actor.turns}
    assert set(given.values()) == {"read"}
    assert len(modes.actor.turns) == 4


@proves("orchestrator.rights")
@pytest.mark.parametrize("mode", ["read", "ask", "edit"])
async def test_a_restrained_agent_starts_no_unrestrained_one(modes: OrchestratorHarness, mode: str) -> None:
    service = modes.service()
    parent = await begin(service, "parent", mode)

    with pytest.raises(UsageProblem, match=f"permission mode `{mode}` and cannot start"):
        await begin(service, "child", "full", parent=parent.id, executor="command")

    free = await begin(service, "free", "full")
    await begin(service, "allowed", "full", parent=free.id, executor="command")


@proves("orchestrator.rights")
async def test_a_restrained_agent_starts_none_elsewhere(modes: OrchestratorHarness, tmp_path: Path) -> None:
    service, inside, outside = modes.service(), modes.project / "part", tmp_path / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    parent, free = await begin(service, "parent", "edit"), await begin(service, "free", "full")

    with pytest.raises(UsageProblem, match="cannot start an agent in"):
        await begin(service, "child", "read", parent=parent.id, project=str(outside))

    await begin(service, "child", "read", parent=parent.id, project=str(inside))
    await begin(service, "other", "read", parent=free.id, project=str(outside))


@proves("orchestrator.rights")
@pytest.mark.parametrize("verb", ["resume", "send"])
async def test_an_agent_sets_none_with_more_rights_to_work(modes: OrchestratorHarness, verb: str) -> None:
    service = modes.service()
    async with modes.host(service):
        strong, weak = await begin(service, "strong", "full"), await begin(service, "weak", "read")
        below = await begin(service, "below", "read", parent=strong.id)
        await wait_until_finished(service, "strong", "weak", "below")

        with pytest.raises(UsageProblem, match="permission mode `read`"):
            await getattr(service, verb)("strong", "Do it for me.", by=f"agent:{weak.id}")

        await getattr(service, verb)("strong", "I am done.", by=f"agent:{below.id}")
        await wait_until_finished(service, "strong")


@proves("orchestrator.rights")
async def test_an_agent_permits_nothing_that_it_may_not_do_itself(modes: OrchestratorHarness) -> None:
    async def ask(turn: Turn, reporter: Reporter) -> TurnResult:
        if turn.session == parent.id:
            return await echo(turn, reporter)
        options = (("allow", "Allow"), ("refuse", "Refuse"))
        reply = await reporter.ask(AgentQuestion(key="k", kind="permission", text="May I?", options=options))
        return TurnResult(text=reply.option)

    service = modes.service()
    parent = await begin(service, "parent", "ask")
    modes.actor.part = ask
    async with modes.host(service):
        await begin(service, "child", "ask", parent=parent.id)
        await wait_until(service, "child", lambda session: session.question is not None)
        more = {"by": f"agent:{parent.id}", "channel": "relayed", "caller": parent.id}

        with pytest.raises(UsageProblem, match="cannot permit others anything"):
            await service.answer("child", option="allow", **more)
        await service.answer("child", option="refuse", **more)

        await wait_until_finished(service, "child")
        assert (await service.result("child")).text == "refuse"


@proves("orchestrator.depth")
async def test_an_agent_cannot_raise_the_depth_of_its_line(harness: OrchestratorHarness) -> None:
    harness.limits = AgentLimits(depth=1)
    first = await start(harness.service(), "first")
    # The service of a process whose environment the agent has changed.
    harness.limits = AgentLimits(depth=50)
    agent = harness.service()
    child = await start(agent, "child", parent=first.id)

    with pytest.raises(UsageProblem, match="2 levels below the first; 1 are allowed"):
        await start(agent, "grandchild", parent=child.id)
    with pytest.raises(UsageProblem, match="1 are allowed"):
        await agent.check_caller(child.id)


@proves("orchestrator.unasked-limits")
async def test_runs_that_no_person_asked_for_share_the_limits_of_one(harness: OrchestratorHarness) -> None:
    harness.blueprints.add("bounded", limits=Limits(turns=3))
    service = harness.service()

    async def message_itself(turn: Turn, reporter: Reporter) -> TurnResult:
        await service.send(turn.session, "And again.", by=f"agent:{turn.session}")
        return await echo(turn, reporter)

    harness.actor.part = message_itself
    async with harness.host(service):
        await start(service, "restless", blueprint="bounded")
        await wait_until(service, "restless", lambda session: session.run.state == "failed")
        failed = await service.find("restless")
        taken = len(harness.actor.turns)
        harness.actor.part = echo
        await service.send("restless", "Go on.", by="cli")
        (done,) = await wait_until_finished(service, "restless")

    assert (failed.run.reason, taken) == ("limit.turns", 3)
    assert done.run.state == "succeeded"


@proves("orchestrator.unasked-limits")
async def test_an_agent_that_resumes_another_is_told_that_its_limit_is_used_up(harness: OrchestratorHarness) -> None:
    harness.blueprints.add("bounded", limits=Limits(turns=1))
    service = harness.service()
    async with harness.host(service):
        other = await start(service, "other")
        await start(service, "once", blueprint="bounded")
        await wait_until_finished(service, "once", "other")

        with pytest.raises(LimitReached, match="limit of turns since a person last asked"):
            await service.resume("once", "Again.", by=f"agent:{other.id}")
        await service.resume("once", "Again.", by="cli")
        await wait_until_finished(service, "once")


@proves("orchestrator.unasked-limits")
def test_every_limit_of_usage_and_time_is_shared() -> None:
    limits = Limits(wall_seconds=10, turns=3, tokens=100, cost_usd=1)

    left = reduce_limits(limits, Usage(turns=1, input_tokens=20, output_tokens=20, cost_usd=0.25), 4000)

    assert (left.wall_seconds, left.turns, left.tokens, left.cost_usd) == (6, 2, 60, 0.75)
    assert reduce_limits(limits, Usage(), 0) == limits
    for spent, ms in ((Usage(turns=3), 0), (Usage(input_tokens=100), 0), (Usage(cost_usd=1), 0), (Usage(), 10_000)):
        with pytest.raises(LimitReached):
            reduce_limits(limits, spent, ms)


@proves("orchestrator.unasked-limits")
@pytest.mark.parametrize(("by", "state"), [("cli", "succeeded"), ("agent:s_000000000001", "failed")])
async def test_only_a_message_of_a_person_lets_a_busy_agent_go_on(harness: OrchestratorHarness, by: str, state: str) -> None:
    harness.blueprints.add("bounded", limits=Limits(turns=1))
    service = harness.service()

    async def be_messaged(turn: Turn, reporter: Reporter) -> TurnResult:
        harness.actor.part = echo
        await service.send(turn.session, "Go on.", by=by)
        return await echo(turn, reporter)

    harness.actor.part = be_messaged
    async with harness.host(service):
        await start(service, "busy", blueprint="bounded")
        second = await wait_until(service, "busy", lambda session: session.run.number == 2 and not session.run.is_active)

    assert second.run.state == state


@proves("orchestrator.rights", "chain.redacted-projections")
@given(all_permissions)
def test_a_session_whose_start_is_erased_may_do_no_more_than_before(most: Permissions) -> None:
    body = {"depth": 1, "most": msgspec.to_builtins(most), "prompt": "a secret"}
    left = blank_body(body, AgentRecords.structure)

    record = AgentRecords().fold(AgentRecord(), [EventView(1, SESSION_CREATED, 0, left)])

    assert "a secret" not in str(left)
    assert record.most == most
