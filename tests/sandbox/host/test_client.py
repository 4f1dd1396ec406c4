"""The client of the host: what it sends again, what it never sends again, and who starts the host."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from fidelio.errors import SandboxesBusy, SandboxLost, SandboxUnavailable
from fidelio.sandbox.host.client import SandboxClient
from fidelio.sandbox.host.pool import PoolLimits
from fidelio.sandbox.model import LevelReport
from tests.sandbox.host.fakes import HostHarness
from tests.support import proves


async def settled(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # what another task has done
            await asyncio.sleep(0)


@proves("sandbox.one-per-session")
async def test_clients_get_the_same_sandbox_of_a_session(harness: HostHarness) -> None:
    async with harness.serving():
        spec, clients = harness.spec(), [harness.client() for _ in range(4)]
        states = await asyncio.gather(*(client.start(spec) for client in clients))
        results = await asyncio.gather(*(client.call(spec, "stat", {"n": n}) for n, client in enumerate(clients)))

    assert len({state.incarnation for state in states}) == 1
    assert sum(state.is_new for state in states) == 1
    assert [result.output["echo"]["n"] for result in results] == [0, 1, 2, 3]


@proves("sandbox.replies-by-id")
async def test_replies_reach_their_callers_in_any_order(harness: HostHarness) -> None:
    async with harness.serving():
        spec, client, other = harness.spec(), harness.client(), harness.client()
        await client.start(spec)
        await other.start(spec)
        process = harness.launcher.of("s_1")
        process.hold = True
        calls = [asyncio.create_task(each.call(spec, "stat", {"n": n})) for n, each in enumerate([client, other] * 10)]
        await settled(lambda: len(process.requests) == 20)
        process._held.reverse()
        process.release()
        results = await asyncio.gather(*calls)

    assert [result.output["echo"]["n"] for result in results] == list(range(20))


@proves("sandbox.replies-by-id")
@pytest.mark.parametrize("size", [1, 1_000, 131_000, 131_072, 140_000, 5 << 20])
async def test_payloads_of_any_size_arrive_whole(harness: HostHarness, size: int) -> None:
    async with harness.serving():
        result = await harness.client().call(harness.spec(), "write_text", {"content": "ä" * size})

    assert result.output["echo"]["content"] == "ä" * size


@proves("sandbox.never-resent")
async def test_an_action_that_may_have_been_sent_is_never_sent_again(harness: HostHarness) -> None:
    spec, client = harness.spec(), harness.client()
    async with harness.serving() as host:
        await client.start(spec)
        first = harness.launcher.of("s_1")
        first.hold = True
        call = asyncio.create_task(client.call(spec, "run_shell", {"command": "once"}))
        await settled(lambda: first.requests)

        await host.pool.stop("s_1", "disk_bytes", "The session uses too much of the disk.")

        with pytest.raises(SandboxLost, match=r"The sandbox ended before it replied\. The session uses too much of the disk\."):
            await call
        assert [len(process.requests) for process in harness.launcher.started] == [1]


@proves("sandbox.never-resent")
async def test_an_action_is_lost_with_its_host(harness: HostHarness) -> None:
    spec, client = harness.spec(), harness.client()
    async with harness.serving():
        await client.start(spec)
        harness.launcher.of("s_1").hold = True
        call = asyncio.create_task(client.call(spec, "run_shell", {"command": "once"}))
        await settled(lambda: harness.launcher.of("s_1").requests)
    with pytest.raises(SandboxLost):
        await call

    async with harness.serving():
        state = await client.start(spec)
        assert state.is_new
        assert harness.launcher.of("s_1").requests == []


@proves("sandbox.never-resent")
async def test_an_action_that_the_host_has_not_forwarded_is_sent_to_the_next_sandbox(harness: HostHarness) -> None:
    spec, client = harness.spec(), harness.client()
    async with harness.serving() as host:
        await client.start(spec)
        # The frame is on its way when the sandbox is closed.
        call = asyncio.create_task(client.call(spec, "run_shell", {"command": "once"}))
        await asyncio.sleep(0)
        await host.pool.stop("s_1", "pool_full", "Another one was needed.")
        result = await call

        assert result.ok
        assert [len(process.requests) for process in harness.launcher.started] == [0, 1]
        state = await client.start(spec)
        assert (state.is_new, state.closed_because and state.closed_because.reason) == (True, "pool_full")
        assert not (await client.start(spec)).is_new


@proves("sandbox.never-resent")
async def test_an_action_without_a_reply_in_time_is_lost(harness: HostHarness) -> None:
    async with harness.serving():
        spec, client = harness.spec(), harness.client()
        await client.start(spec)
        harness.launcher.of("s_1").hold = True

        with pytest.raises(SandboxLost, match=r"did not reply within 0\.05 seconds"):
            await client.call(spec, "stat", {}, timeout=0.05)

        harness.launcher.of("s_1").hold = False
        assert (await client.call(spec, "stat", {})).ok


@proves("sandbox.host-bad-replies")
@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"null",
        b"[]",
        b'{"ok": 1}',
        b'{"ok": true, "output": []}',
        b'{"ok": false, "error": "no"}',
        b"[" * 200_000,
        b"\xff",
    ],
)
async def test_a_reply_that_is_not_valid_is_an_error_of_that_call_only(harness: HostHarness, reply: bytes) -> None:
    async with harness.serving():
        spec, other, client = harness.spec(), harness.spec("s_2"), harness.client()
        await client.start(spec)
        harness.launcher.of("s_1").raw_reply = reply or b" "

        with pytest.raises(SandboxLost, match="a reply that is not valid"):
            await client.call(spec, "stat", {})

        assert (await client.call(other, "stat", {})).ok


@proves("sandbox.host-started")
async def test_the_first_call_starts_a_host_and_reading_does_not(harness: HostHarness) -> None:
    async def refuse() -> None:
        raise AssertionError("This call must not start a host.")

    reading = harness.client(refuse)
    assert await reading.state("s_1") is None
    assert not await reading.stop("s_1")
    assert (await reading.connections("s_1")).entries == ()
    with pytest.raises(SandboxUnavailable, match="No process of this home hosts the sandboxes"):
        await harness.client().start(harness.spec())

    started, until = list[asyncio.Task[None]](), asyncio.Event()

    async def ensure() -> None:
        context = harness.serving()
        await context.__aenter__()
        started.append(asyncio.create_task(leave(context)))

    async def leave(context: Any) -> None:
        await until.wait()
        await context.__aexit__(None, None, None)

    client = SandboxClient(harness.home, ensure)
    assert (await client.call(harness.spec(), "stat", {})).ok
    assert len(started) == 1
    until.set()
    await started[0]


@proves("sandbox.session-stop")
async def test_state_and_stop_know_what_is_live(harness: HostHarness) -> None:
    async with harness.serving():
        client, spec = harness.client(), harness.spec()
        assert await client.state("s_1") is None
        started = await client.start(spec)
        state = await harness.client().state("s_1")

        assert state is not None
        assert (state.incarnation, state.is_new) == (started.incarnation, False)
        assert await harness.client().stop("s_1")
        assert not await harness.client().stop("s_1")
        assert await client.state("s_1") is None
        again = await client.start(spec)
        assert (again.is_new, again.closed_because and again.closed_because.reason) == (True, "stop_requested")


@proves("sandbox.pool-busy")
async def test_a_client_gets_the_error_of_the_host(harness: HostHarness) -> None:
    async with harness.serving(limits=PoolLimits(live=1)):
        client = harness.client()
        await client.start(harness.spec())
        harness.launcher.of("s_1").shell = {"alive": True, "busy": True}

        with pytest.raises(SandboxesBusy, match=r"1 sandboxes are live, which is the limit.*close the shell"):
            await client.start(harness.spec("s_2"))


@proves("sandbox.host-level")
async def test_without_a_level_the_remedy_reaches_the_caller(harness: HostHarness) -> None:
    reports = [LevelReport("none", "There is nothing.", "Install bubblewrap."), LevelReport("bubblewrap", "It is there.")]
    async with harness.serving(detect_level=lambda: reports[0]):
        client = harness.client()
        with pytest.raises(SandboxUnavailable, match=r"There is nothing\. Install bubblewrap\."):
            await client.start(harness.spec())

        # Meanwhile a person has installed it.
        del reports[0]
        assert (await client.start(harness.spec())).level == "bubblewrap"
        assert (await client.level()).level == "bubblewrap"


@proves("sandbox.pool-spec")
async def test_a_client_attaches_again_with_another_configuration(harness: HostHarness) -> None:
    async with harness.serving():
        client, spec = harness.client(), harness.spec()
        await client.call(spec, "stat", {})
        await client.call(replace(spec, environment={"A": "1"}), "stat", {})

        assert [process.spec.environment for process in harness.launcher.started] == [{}, {"A": "1"}]
        assert len(harness.launcher.live) == 1
