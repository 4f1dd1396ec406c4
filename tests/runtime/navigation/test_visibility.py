"""Which sessions a session may read."""

from __future__ import annotations

from typing import Any

import pytest

from fidelio.errors import ToolRefused, UsageProblem
from fidelio.runtime import events as e
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.navigation.visibility import OPENNESS, load_visible, may_read
from fidelio.runtime.navigation.widening import Widening, list_widenings, widen_agent, widen_session
from fidelio.runtime.record import RuntimeRecord
from fidelio.runtime.stores import find_store
from fidelio.sandbox.model import Network
from tests.runtime.navigation.support import PROJECT, World
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


@proves("navigation.widened")
async def test_a_person_widens_the_reading_of_a_session_and_takes_it_back(world: World) -> None:
    bodies = await define_networks(world)
    closed, other = [await world.start(**bodies["none"]) for _ in range(2)]
    readers = {network: await world.start(**bodies[network]) for network in OPENNESS}

    async def readable_by() -> set[Network]:
        return {network for network, reader in readers.items() if await can_read(world, reader, closed)}

    assert await readable_by() == {"none"}
    for widened, expected in (("limited", {"none", "limited"}), ("host", set(OPENNESS)), ("", {"none"})):
        await widen_session(world.context, closed, widened, by="anna")
        assert await readable_by() == expected
        assert not await can_read(world, readers["host"], other)

    events = await world.context.ledger.events(closed, types=(e.CONFIGURED,))
    assert [(event.actor, event.body) for event in events] == [("anna", {"readers": to}) for to in ("limited", "host", "")]


@proves("navigation.widened")
async def test_a_person_widens_the_reading_of_all_logs_of_an_agent(world: World) -> None:
    bodies = await define_networks(world)
    closed, reader = await world.start(**bodies["none"]), await world.start(**bodies["limited"])
    stranger = await world.start(agent="other", **bodies["none"])

    for widened in ("limited", ""):
        await widen_agent(world.context, PROJECT, "default", widened, by="anna")
        later = await world.start(**bodies["none"])
        assert [await can_read(world, reader, each) for each in (closed, later)] == [bool(widened)] * 2
        assert not await can_read(world, reader, stranger)


@proves("navigation.widened")
async def test_what_is_widened_is_listed(world: World) -> None:
    session = await world.start()
    assert await list_widenings(world.context, PROJECT) == ()

    await widen_session(world.context, session, "limited", by="anna")
    await widen_agent(world.context, PROJECT, "default", "host", by="anna")

    expected = (Widening("default", "", "host"), Widening("default", session, "limited"))
    assert await list_widenings(world.context, PROJECT) == expected


@proves("navigation.widened")
@pytest.mark.parametrize("readers", ["none", "open", "HOST"])
async def test_an_unknown_network_widens_nothing(world: World, readers: str) -> None:
    session = await world.start()
    with pytest.raises(UsageProblem, match=f"'{readers}' is not a network of readers"):
        await widen_session(world.context, session, readers, by="anna")
    with pytest.raises(UsageProblem, match="is not a network of readers"):
        await widen_agent(world.context, PROJECT, "default", readers, by="anna")

    assert not may_read(OWN, RuntimeRecord(agent="a", project="/p", environment="x", readers=readers), {("", 0): "limited"})


@proves("navigation.widened")
async def test_a_store_is_not_widened_by_its_id(world: World) -> None:
    await widen_agent(world.context, PROJECT, "default", "host", by="anna")
    store = await find_store(world.context, "substrate", project=PROJECT, agent="default")
    assert store is not None
    with pytest.raises(UsageProblem, match="is a store"):
        await widen_session(world.context, store.id, "", by="anna")


async def can_read(world: World, reader: str, other: str) -> bool:
    """Whether the session is both read and listed; the two must agree."""
    listed = await world.use(reader, "session_list", limit=50)
    is_listed = other in {each["sessionId"] for each in listed["sessions"]}
    try:
        await world.use(reader, "session_get_snapshot", sessionId=other)
    except ToolRefused:
        assert not is_listed
        return False
    assert is_listed
    return True
