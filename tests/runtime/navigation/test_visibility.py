"""Which sessions a session may read."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.errors import ToolRefused
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.navigation.visibility import OPENNESS, load_visible, may_read
from fidelio.runtime.record import RuntimeRecord
from fidelio.sandbox.model import Network
from tests.runtime.navigation.support import World
from tests.support import proves

OWN = RuntimeRecord(agent="a", project="/p")


async def define_networks(world: World) -> dict[Network, dict[str, Any]]:
    found: dict[Network, dict[str, Any]] = {}
    for network in OPENNESS:
        hosts = ("example.org",) if network == "limited" else ()
        version = await define(world.context, network, Environment(network=network, hosts=hosts), by="test")
        found[network] = {"environment": network, "environment_version": version.version}
    return found


@proves("navigation.visible")
async def test_a_session_reads_only_sessions_with_a_network_at_least_as_open(world: World) -> None:
    bodies = await define_networks(world)
    sessions = {network: await world.start(**bodies[network]) for network in OPENNESS}
    for own, reader in sessions.items():
        call = await world.call(reader, "session_get_snapshot")
        for theirs, other in sessions.items():
            if OPENNESS[theirs] >= OPENNESS[own]:
                assert (await load_visible(call, other)).id == other
                continue
            with pytest.raises(ToolRefused) as refused:
                await load_visible(call, other)
            assert refused.value.reason == "network_too_open"


@proves("navigation.visible")
@pytest.mark.parametrize("difference", [{"agent": "other"}, {"project": "/elsewhere"}, {"role": "store"}])
async def test_sessions_of_others_are_refused_like_unknown_ones(world: World, difference: dict[str, str]) -> None:
    own, other = await world.start(), await world.start(**difference)
    call = await world.call(own, "session_get_snapshot")

    for name in (other, "s_unknown", "'; drop"):
        with pytest.raises(ToolRefused) as refused:
            await load_visible(call, name)
        assert refused.value.reason == "session_not_found"


@proves("navigation.visible")
async def test_the_own_session_is_always_visible(world: World) -> None:
    own = await world.start(environment="deleted", environment_version=7)
    call = await world.call(own, "session_get_snapshot")

    assert (await load_visible(call, None)).id == (await load_visible(call, own)).id == own


@proves("navigation.visible")
def test_an_unknown_network_hides_the_other_session() -> None:
    gone = RuntimeRecord(agent="a", project="/p", environment="gone", environment_version=3)

    assert not may_read(OWN, gone, {("", 0): "limited"})
    assert may_read(OWN, gone, {("", 0): "none"})
    assert not may_read(gone, OWN, {("", 0): "unrestricted"})
