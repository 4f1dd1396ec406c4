"""Self-hosted environments: the work queue with the official SDK, its own worker, and what happens when a worker dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import APIStatusError, AsyncAnthropic
from anthropic.lib.environments import EnvironmentWorker
from anthropic.types.beta.environments import (
    BetaSelfHostedWork,
    BetaSelfHostedWorkHeartbeatResponse,
)

from fidelio.app.application import Application
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime.work import queue as work_queue
from fidelio.runtime.work.queue import WorkQueue
from tests.runtime.wakes.support import replies, results_of, say, use
from tests.support import proves
from tests.surfaces.v1.conftest import KEY, TOKEN
from tests.surfaces.v1.strict import check_object
from tests.surfaces.v1.support import converse, list_events, message, only, send

Script = Callable[[Callable[[ModelRequest], ModelReply]], None]
TOOLSET: dict[str, Any] = {"type": "agent_toolset_20260401"}
SECONDS = 30.0


class Scene:
    """A session in a self-hosted environment, and a model that calls tools."""

    def __init__(self, sdk: AsyncAnthropic, script: Script) -> None:
        self.sdk, self.requests = sdk, list[ModelRequest]()
        self._script = script
        self.environment = self.session = ""

    @property
    def work(self) -> Any:
        return self.sdk.beta.environments.work

    async def begin(self, *turns: ModelReply, tools: Any = None) -> None:
        given_tools: Any = [tools or TOOLSET]
        given = replies(*turns)

        def reply(request: ModelRequest) -> ModelReply:
            self.requests.append(request)
            return given(request)  # type: ignore[return-value]  # these replies are ready

        self._script(reply)
        agent = await self.sdk.beta.agents.create(name="Helper", model="scripted:test", tools=given_tools)
        environment = await self.sdk.beta.environments.create(name="Mine", config={"type": "self_hosted"})
        session = await self.sdk.beta.sessions.create(agent=agent.id, environment_id=environment.id)
        self.environment, self.session = environment.id, session.id

    async def call(self, *turns: ModelReply, tools: Any = None) -> list[Any]:
        """Let the model call tools; returns the calls that wait."""
        await self.begin(*turns, tools=tools)
        events = await converse(self.sdk, self.session, message("Go on."))
        waiting = events[-1].stop_reason.event_ids
        return [event for event in only(events, "agent.tool_use") if event.id in waiting]

    async def poll(self, **more: Any) -> BetaSelfHostedWork | None:
        found: BetaSelfHostedWork | None = await self.work.poll(self.environment, **more)
        return found if found is None else check_object(found)

    async def claim(self) -> BetaSelfHostedWork:
        """An item that is acknowledged and has a heartbeat."""
        item = await self.poll()
        assert item is not None
        await self.work.ack(item.id, environment_id=self.environment)
        await self.beat(item, "NO_HEARTBEAT")
        return item

    async def beat(self, item: BetaSelfHostedWork, expected: str, **more: Any) -> BetaSelfHostedWorkHeartbeatResponse:
        beat = await self.work.heartbeat(item.id, environment_id=self.environment, expected_last_heartbeat=expected, **more)
        found: BetaSelfHostedWorkHeartbeatResponse = check_object(beat)
        return found

    async def retrieve(self, item: BetaSelfHostedWork) -> BetaSelfHostedWork:
        found: BetaSelfHostedWork = check_object(await self.work.retrieve(item.id, environment_id=self.environment))
        return found

    async def answer(self, call: Any, text: str) -> list[Any]:
        """Send a result; returns what happens up to the end of the turn."""
        found: list[Any] = []
        async with asyncio.timeout(SECONDS), await self.sdk.beta.sessions.events.stream(self.session) as stream:
            await send(self.sdk, self.session, result_of(call, text))
            async for event in stream:
                found.append(event)
                if event.type == "session.status_idle" and event.stop_reason.type == "end_turn":
                    return found
        raise AssertionError("the stream has ended")


def result_of(call: Any, text: str) -> dict[str, Any]:
    return {"type": "user.tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": text}]}


def last_results(scene: Scene) -> list[str]:
    return ["".join(block.text for block in result.content) for result in results_of(scene.requests[-1])]  # type: ignore[union-attr]  # texts


@pytest.fixture
def scene(sdk: AsyncAnthropic, script: Script) -> Scene:
    return Scene(sdk, script)


@pytest.fixture
def later(application: Application, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let time pass for the queue."""
    passed = [0]
    settle = WorkQueue.__init__

    def create(self: WorkQueue, context: Any, project: str, environment: str) -> None:
        from msgspec.structs import replace

        clock = context.clock
        settle(self, replace(context, clock=lambda: clock() + passed[0]), project, environment)

    monkeypatch.setattr(work_queue.WorkQueue, "__init__", create)

    def move(seconds: int) -> None:
        passed[0] += seconds * 1000

    return move


BASH = use(("bash", {"command": "make"}))


@proves("work.life")
async def test_a_call_becomes_work_and_its_result_reaches_the_model(scene: Scene) -> None:
    (call,) = await scene.call(BASH, say("It works."))
    item = await scene.poll()
    stats = check_object(await scene.work.stats(scene.environment))

    assert item is not None
    assert (item.state, item.data.type, item.data.id) == ("queued", "session", scene.session)
    assert (stats.depth, stats.pending) == (0, 1)
    assert (await scene.work.ack(item.id, environment_id=scene.environment)).state == "starting"
    assert (await scene.beat(item, "NO_HEARTBEAT")).state == "active"
    assert (call.name, call.input, call.evaluated_permission) == ("bash", {"command": "make"}, "allow")

    events = await scene.answer(call, "ok")
    assert last_results(scene) == ["ok"]
    assert events[-1].stop_reason.type == "end_turn"
    stopped = check_object(await scene.work.stop(item.id, environment_id=scene.environment, force=True))
    assert stopped.state == "stopped"
    assert stopped.stopped_at
    assert await scene.poll() is None
    listed = [work async for work in scene.work.list(scene.environment)]
    assert [work.id for work in listed] == [item.id]


@proves("work.life")
async def test_only_what_a_worker_can_do_becomes_work(scene: Scene) -> None:
    await scene.begin(use(("bash", {"command": 5}), ("web_fetch", {"url": "https://example.org"})), say("Well."))
    events = await converse(scene.sdk, scene.session, message("Go on."))

    assert events[-1].stop_reason.type == "end_turn"
    assert [event.is_error for event in only(events, "agent.tool_result")] == [True, True]
    assert "web_fetch" not in {tool.name for tool in scene.requests[0].tools}
    assert await scene.poll() is None


@proves("work.lease")
async def test_an_item_goes_to_one_worker(scene: Scene) -> None:
    await scene.call(BASH)
    polled = await asyncio.gather(*(scene.poll() for _ in range(5)))

    assert sum(item is not None for item in polled) == 1


@proves("work.lease")
async def test_an_item_that_nobody_acknowledges_is_polled_again(scene: Scene, later: Callable[[int], None]) -> None:
    await scene.call(BASH)
    first = await scene.poll()

    assert first is not None
    assert await scene.poll() is None
    later(6)
    assert await scene.poll(reclaim_older_than_ms=60_000) is None
    again = await scene.poll()
    assert again is not None
    assert again.id == first.id


@proves("work.lease")
async def test_a_heartbeat_must_name_the_last_one(scene: Scene) -> None:
    await scene.call(BASH)
    item = await scene.claim()
    stored = (await scene.retrieve(item)).latest_heartbeat_at

    for wrong in ("NO_HEARTBEAT", "2020-01-01T00:00:00Z"):
        with pytest.raises(APIStatusError) as refused:
            await scene.beat(item, wrong)
        assert refused.value.status_code == 412
        body: Any = refused.value.body
        assert body["error"]["details"]["error_code"] == "heartbeat_precondition_failed"
        assert body["error"]["details"]["current_state"]["last_heartbeat"] == stored
    second = await scene.beat(item, str(stored), desired_ttl_seconds=300)
    assert (second.lease_extended, second.ttl_seconds) == (True, 300)
    assert second.last_heartbeat > str(stored)


@proves("work.lease")
async def test_heartbeats_without_a_pause_are_not_all_stored(scene: Scene, later: Callable[[int], None]) -> None:
    await scene.call(use(("bash", {"command": "make"})))
    item = await scene.claim()
    first = (await scene.retrieve(item)).latest_heartbeat_at

    for _ in range(5):
        beat = await scene.beat(item, str(first))
        assert (beat.last_heartbeat, beat.lease_extended) == (first, True)
    later(16)
    assert (await scene.beat(item, str(first))).last_heartbeat != first


@proves("work.lease")
async def test_a_stop_reaches_the_worker_by_its_heartbeat(scene: Scene) -> None:
    await scene.call(BASH)
    item = await scene.claim()
    stopping = await scene.work.stop(item.id, environment_id=scene.environment)
    beat = await scene.beat(item, "whatever")

    assert stopping.state == beat.state == "stopping"
    await scene.work.stop(item.id, environment_id=scene.environment, force=True)
    assert (await scene.beat(item, "x")).lease_extended is False
    with pytest.raises(APIStatusError) as again:
        await scene.work.stop(item.id, environment_id=scene.environment, force=True)
    assert again.value.status_code == 409


@proves("work.lost-worker")
async def test_a_dead_worker_loses_its_item_and_the_model_learns_what_may_have_happened(
    scene: Scene, later: Callable[[int], None]
) -> None:
    turn = use(("bash", {"command": "deploy"}), ("read", {"file_path": "a.txt"}))
    bash, read = await scene.call(turn, say("I looked."))
    item = await scene.claim()
    later(61)
    again = await scene.poll()

    assert again is not None
    assert again.id == item.id
    assert again.latest_heartbeat_at is None
    # The worker that was thought dead finds that the item is not its own any more.
    with pytest.raises(APIStatusError) as stale:
        await scene.beat(item, "x")
    assert stale.value.status_code == 412
    with pytest.raises(APIStatusError) as late:
        await send(scene.sdk, scene.session, result_of(bash, "deployed"))
    assert late.value.status_code == 400
    await scene.answer(read, "content")
    lost, content = last_results(scene)
    assert "not known how it ended" in lost
    assert content == "content"


@proves("work.lost-worker")
async def test_a_worker_that_says_what_it_carries_out_loses_nothing_else(scene: Scene, later: Callable[[int], None]) -> None:
    first, second = await scene.call(use(("bash", {"command": "one"}), ("bash", {"command": "two"})), say("Done."))
    item = await scene.claim()
    stored = first.id.replace("sevt_", "toolu_")
    await scene.work.update(item.id, environment_id=scene.environment, metadata={"fidelio_call": stored, "mine": "x"})
    later(61)
    again = await scene.poll()

    assert again is not None
    assert again.metadata == {"mine": "x"}
    await scene.answer(second, "two is done")
    assert "not known how it ended" in last_results(scene)[0]
    assert last_results(scene)[1] == "two is done"


@proves("work.result")
async def test_a_call_takes_one_result_and_only_when_it_may_run(scene: Scene) -> None:
    asking = {**TOOLSET, "default_config": {"permission_policy": {"type": "always_ask"}}}
    (call,) = await scene.call(BASH, say("Done."), tools=asking)

    assert call.evaluated_permission == "ask"
    with pytest.raises(APIStatusError) as early:
        await send(scene.sdk, scene.session, result_of(call, "made up"))
    assert early.value.status_code == 400
    await send(scene.sdk, scene.session, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"})
    await scene.answer(call, "real")
    assert last_results(scene) == ["real"]
    with pytest.raises(APIStatusError) as second:
        await send(scene.sdk, scene.session, result_of(call, "again"))
    assert second.value.status_code == 400
    assert len(only(await list_events(scene.sdk, scene.session), "user.tool_result")) == 1


@proves("work.result")
async def test_an_agent_with_the_key_is_no_worker(scene: Scene, url: str) -> None:
    (call,) = await scene.call(BASH)
    headers = {**KEY, "Fidelio-Agent": "r_1"}
    async with httpx2.AsyncClient(base_url=url, headers=headers) as agent:
        root = f"/v1/environments/{scene.environment}/work"
        assert (await agent.get(f"{root}/poll")).status_code == 403
        assert (await agent.get(root)).status_code == 403
        sent = await agent.post(f"/v1/sessions/{scene.session}/events", json={"events": [result_of(call, "made up")]})
        assert sent.status_code == 403


@proves("work.life")
@pytest.mark.parametrize("query", ["block_ms=0", "block_ms=1000", "block_ms=x", "reclaim_older_than_ms=-1"])
async def test_a_wrong_number_is_refused_by_name(scene: Scene, url: str, query: str) -> None:
    await scene.begin()
    async with httpx2.AsyncClient(base_url=url, headers=KEY) as client:
        answer = await client.get(f"/v1/environments/{scene.environment}/work/poll?{query}")
        unknown = await client.post(f"/v1/environments/{scene.environment}/work/work_x/ack")

    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["error"]["message"]
    assert unknown.status_code == 404


@proves("work.life")
async def test_a_poll_waits_for_work(scene: Scene) -> None:
    await scene.begin(BASH)

    async def wait() -> BetaSelfHostedWork:
        while True:
            if (item := await scene.poll(block_ms=999)) is not None:
                return item

    waiting = asyncio.create_task(wait())
    await converse(scene.sdk, scene.session, message("Go on."))
    async with asyncio.timeout(SECONDS):
        assert (await waiting).data.id == scene.session


@asynccontextmanager
async def sdk_worker(scene: Scene, url: str, workdir: Path) -> AsyncIterator[None]:
    async with AsyncAnthropic(base_url=url, api_key=TOKEN) as client:
        worker = EnvironmentWorker(
            client, environment_id=scene.environment, environment_key=TOKEN, workdir=workdir, max_idle=1.0
        )
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running], timeout=SECONDS)


@proves("work.sdk-worker")
async def test_the_worker_of_the_sdk_carries_out_the_tools(scene: Scene, url: str, tmp_path: Path) -> None:
    await scene.begin(
        use(("write", {"file_path": "a.txt", "content": "from the model"})),
        use(("bash", {"command": "cat a.txt; exit 3"}), ("read", {"file_path": "a.txt"})),
        say("Done."),
    )
    async with (
        sdk_worker(scene, url, tmp_path),
        asyncio.timeout(SECONDS),
        await scene.sdk.beta.sessions.events.stream(scene.session) as stream,
    ):
        await send(scene.sdk, scene.session, message("Go on."))
        async for event in stream:
            if event.type == "session.status_idle" and event.stop_reason.type == "end_turn":
                break

    assert (tmp_path / "a.txt").read_text() == "from the model"
    assert last_results(scene)[-1] == "from the model"
    assert "from the model" in last_results(scene)[-2]
