"""What a child session gets of its parent: a share of the budget, and at most its rights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from fidelio.providers.model import ModelInfo, ModelReply, ModelRequest, Price
from fidelio.runtime import events as e
from fidelio.runtime.delegation.rules import MAX_CHILDREN, MAX_DEPTH
from fidelio.runtime.environments.versions import Environment
from fidelio.runtime.record import RuntimeRecord
from tests.runtime.wakes.support import PROJECT, Runtime, open_runtime, replies, results_of, say, texts_of, use
from tests.support import proves

DELEGATE = ("session_delegate", {"message": "Do a part."})


async def find_children(runtime: Runtime, session: str) -> list[RuntimeRecord]:
    page = await runtime.ledger.sessions(kind="runtime", parent=session, limit=50)
    return [await runtime.record(child.id) for child in page.items]


async def count_family(runtime: Runtime) -> list[RuntimeRecord]:
    page = await runtime.ledger.sessions(kind="runtime", limit=200)
    records = [await runtime.record(found.id) for found in page.items]
    return [record for record in records if record.agent_version and record.role == "session"]


def read_results(request: ModelRequest) -> list[dict[str, Any]]:
    texts = [block.text for result in results_of(request) for block in result.content]  # type: ignore[union-attr]  # texts
    return [msgspec.json.decode(text) for text in texts]


@proves("runtime.child-budget")
async def test_a_family_uses_what_its_first_session_may_use(tmp_path: Path) -> None:
    limit = 40_000

    def reply(request: ModelRequest) -> ModelReply:
        parent = "Work with others." in texts_of(request)
        return use(DELEGATE) if parent and len(results_of(request)) < 5 else use(("permissions_describe", {}))

    async with open_runtime(tmp_path, reply) as runtime:
        session = await runtime.begin(limits={"tokens": limit, "wakes_per_day": 0})
        await runtime.tell(session, "Work with others.")
        await runtime.work(most=400)

        family = await count_family(runtime)
        largest = max(record.wakes.usage.tokens // max(1, record.wakes.usage.requests) for record in family)
        used = sum(record.wakes.usage.tokens for record in family)
        assert len(family) > 2
        # A budget is checked before each request, so each session may go beyond its own by its last one.
        assert used <= limit + 2 * largest * len(family)
        assert sum(record.budget.get("tokens", 0) for record in family[1:] if record.depth == 1) <= limit
        record = await runtime.record(session)
        assert record.wakes.stop_reason == "budget_reached"
        assert record.wakes.reserved["tokens"] == sum(child.budget["tokens"] for child in await find_children(runtime, session))


@proves("runtime.child-budget")
async def test_a_child_gets_half_of_what_is_left_in_tokens_money_and_time(tmp_path: Path) -> None:
    info = ModelInfo(price=Price(input=1.0, output=1.0))
    async with open_runtime(tmp_path, replies(use(DELEGATE)), info=info) as runtime:
        session = await runtime.begin(limits={"tokens": 100_000, "wall_seconds": 1_000, "wakes_per_day": 7})
        await runtime.tell(session, "Go.")
        await runtime.run(await runtime.claim())

        (child,) = await find_children(runtime, session)
        parent = await runtime.record(session)
        assert 40_000 < child.budget["tokens"] <= 50_000
        assert 2.0 < child.budget["usd"] <= 2.5
        assert 400 < child.budget["wall_seconds"] <= 500
        assert child.budget["wakes_per_day"] == 7
        assert parent.wakes.reserved == {name: child.budget[name] for name in ("tokens", "usd", "wall_seconds")}


@proves("runtime.child-budget")
async def test_a_parent_with_nothing_to_share_is_told_to_do_it_itself(tmp_path: Path) -> None:
    info = ModelInfo(price=Price(input=0.0, output=0.0))
    async with open_runtime(tmp_path, replies(use(DELEGATE)), info=info) as runtime:
        session = await runtime.begin(limits={"usd": 0.000001})
        await runtime.tell(session, "Go.")
        await runtime.work()

        assert await find_children(runtime, session) == []
        assert read_results(runtime.requests[1])[0]["error"]["code"] == "budget_reached"


@proves("runtime.child-budget")
async def test_limits_that_are_off_stay_off_and_reserve_nothing(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, replies(use(DELEGATE))) as runtime:
        session = await runtime.begin(limits={"tokens": 0, "usd": 0, "wakes_per_day": 0})
        await runtime.tell(session, "Go.")
        await runtime.work()

        (child,) = await find_children(runtime, session)
        assert child.budget == {"tokens": 0, "usd": 0, "wakes_per_day": 0, "wall_seconds": 0}
        assert (await runtime.record(session)).wakes.reserved == {}


@proves("runtime.child-limits")
async def test_a_session_has_at_most_eight_children(tmp_path: Path) -> None:
    calls = [DELEGATE] * (MAX_CHILDREN + 1)
    async with open_runtime(tmp_path, replies(use(*calls))) as runtime:
        session = await runtime.begin(limits={"tokens": 0})
        await runtime.tell(session, "Go.")
        await runtime.run(await runtime.claim())

        assert MAX_CHILDREN == len(await find_children(runtime, session)) == 8
        codes = [result.get("error", {}).get("code") for result in read_results(runtime.requests[1])]
        assert codes == [None] * MAX_CHILDREN + ["too_many_children"]


@proves("runtime.child-limits")
async def test_delegation_ends_three_levels_below_the_first_session(tmp_path: Path) -> None:
    def reply(request: ModelRequest) -> ModelReply:
        return say("Done.", {"outcome": "sleep"}) if results_of(request) else use(DELEGATE)

    async with open_runtime(tmp_path, reply) as runtime:
        session = await runtime.begin(limits={"tokens": 0})
        await runtime.tell(session, "Go.")
        await runtime.work()

        family = await count_family(runtime)
        assert sorted(record.depth for record in family) == list(range(MAX_DEPTH + 1)) == [0, 1, 2, 3]
        assert {record.root for record in family if record.depth} == {session}
        refused = [
            result["error"]["code"] for request in runtime.requests for result in read_results(request) if "error" in result
        ]
        assert refused == ["too_deep"]


@proves("runtime.child-rights")
async def test_a_child_has_the_version_of_the_environment_that_its_parent_has(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, replies(use(DELEGATE))) as runtime:
        await runtime.service.environments.define("box", Environment(network="none"), by="person:test")
        session = await runtime.begin(environment="box")
        await runtime.service.environments.define("box", Environment(network="unrestricted"), by="person:test")
        await runtime.tell(session, "Go.")
        await runtime.work()

        (child,) = await find_children(runtime, session)
        parent = await runtime.record(session)
        assert (child.environment, child.environment_version) == (parent.environment, parent.environment_version) == ("box", 1)


@proves("runtime.child-rights")
@pytest.mark.parametrize("has", [True, False])
async def test_a_child_has_vaults_and_a_mount_only_if_its_parent_has(tmp_path: Path, has: bool) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    async with open_runtime(tmp_path, replies(use(DELEGATE))) as runtime:
        await runtime.service.vaults.add("keys", "secret-value", by="person:test")
        await runtime.define()
        more: dict[str, Any] = {"vaults": ("keys",), "mount": f"{shown}:ro"} if has else {}
        session = await runtime.start(**more)
        await runtime.tell(session, "Go.")
        await runtime.work()

        (child,) = await find_children(runtime, session)
        assert child.vaults == (("keys",) if has else ())
        assert (child.mount_source, child.mount_mode) == ((str(shown), "ro") if has else ("", ""))


@proves("runtime.child-rights")
async def test_a_policy_that_is_set_for_the_agent_later_opens_nothing_for_a_child(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, replies(use(DELEGATE))) as runtime:
        session = await runtime.begin()
        await runtime.service.set_agent_policy(PROJECT, "helper", "shell_run", "always_allow", by="person:test")
        await runtime.tell(session, "Go.")
        await runtime.work()

        (child,) = await find_children(runtime, session)
        assert child.policies == (await runtime.record(session)).policies == {}
        assert (await runtime.events(session, e.CHILD_CREATED))[0].body["budget"] == child.budget
