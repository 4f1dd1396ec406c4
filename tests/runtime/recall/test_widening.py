"""Recall of logs whose reading a person has widened."""

from __future__ import annotations

from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.navigation.widening import widen_agent, widen_session
from tests.runtime.navigation.support import PROJECT, message
from tests.runtime.recall.support import RecallWorld
from tests.support import proves


@proves("navigation.widened")
async def test_a_widened_log_is_found_but_no_learning_of_it(world: RecallWorld) -> None:
    closed = await define(world.context, "closed", Environment(), by="test")
    online = await define(world.context, "online", Environment(network="unrestricted"), by="test")
    offline, other = [
        await world.start(message("zebra"), environment="closed", environment_version=closed.version) for _ in range(2)
    ]
    await world.learn("closed zebra", "stripes", session=offline)
    own = await world.start(environment="online", environment_version=online.version)

    assert await world.sources(own, "zebra") == []
    await widen_session(world.context, offline, "unrestricted", by="anna")
    assert await world.sources(own, "zebra") == [(offline, "session_context")]
    await widen_agent(world.context, PROJECT, "default", "unrestricted", by="anna")
    assert await world.sources(own, "zebra") == sorted([(offline, "session_context"), (other, "session_context")])
    await widen_agent(world.context, PROJECT, "default", "limited", by="anna")
    assert await world.sources(own, "zebra") == [(offline, "session_context")]
