"""Our own worker of a self-hosted environment, against a real server: its tools run in a real sandbox of this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from fidelio.errors import UsageProblem
from fidelio.providers.model import ModelReply, ModelRequest
from fidelio.runtime.service import RuntimeService
from fidelio.runtime.work.worker import EnvironmentWorker, SandboxTools, ToolOutput, WorkApi, open_client
from fidelio.sandbox.host.client import LocalSandboxes
from fidelio.sandbox.host.pool import SandboxPool
from tests.runtime.agent_toolset.conftest import _read_level, _start, open_directory
from tests.runtime.wakes.support import open_runtime, say, use
from tests.sandbox.inside.launching import find_level
from tests.support import proves
from tests.surfaces.v1.conftest import TOKEN
from tests.surfaces.v1.support import converse, message, send
from tests.surfaces.v1.test_work import BASH, SECONDS, Scene, last_results, later

__all__ = ["later", "open_directory"]
Script = Callable[[Callable[[ModelRequest], ModelReply]], None]


@pytest.fixture
def scene(sdk: AsyncAnthropic, script: Script) -> Scene:
    return Scene(sdk, script)


class Gate:
    """Tools that say when a call begins, and go on when the test lets them."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.calls: list[str] = []

    async def carry_out(self, _: str, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        self.calls.append(str(arguments.get("command", tool)))
        self.begun.set()
        await self.may_end.wait()
        return ToolOutput([{"type": "text", "text": "carried out"}])


@asynccontextmanager
async def working(scene: Scene, url: str, tools: Any) -> AsyncIterator[tuple[asyncio.Event, asyncio.Task[None]]]:
    stop = asyncio.Event()
    async with open_client(url, TOKEN) as client:
        worker = EnvironmentWorker(WorkApi(client, scene.environment), tools, stop, lambda _: None)
        worker.look_seconds, worker.idle_seconds = 0.05, 0.2
        running = asyncio.create_task(worker.run())
        try:
            yield stop, running
        finally:
            running.cancel()
            await asyncio.wait([running], timeout=SECONDS)
            if not running.cancelled():
                running.result()


async def finish(scene: Scene, *events: Any) -> None:
    """Send events and wait until the turn has ended."""
    async with asyncio.timeout(SECONDS), await scene.sdk.beta.sessions.events.stream(scene.session) as stream:
        if events:
            await send(scene.sdk, scene.session, *events)
        async for event in stream:
            if event.type == "session.status_idle" and event.stop_reason.type == "end_turn":
                return


@proves("work.own-worker")
async def test_the_tools_run_in_a_sandbox_of_the_machine(scene: Scene, url: str, open_directory: Path) -> None:
    find_level()
    pool = SandboxPool(_start)
    shared = open_directory / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    if os.geteuid() == 0:
        # Sandboxes do not run as root.
        os.chown(shared, 65_534, 65_534)
    await scene.begin(
        use(("bash", {"command": "cd project && echo made > made.txt; cat /etc/shadow; export X=1"})),
        use(("bash", {"command": "pwd; echo $X"}), ("read", {"file_path": "project/made.txt"}), ("read", {"file_path": "no"})),
        say("Done."),
    )
    async with open_runtime(open_directory, sandboxes=LocalSandboxes(pool, _read_level)) as runtime:
        service = RuntimeService(runtime.context)
        tools = SandboxTools(service, str(open_directory), environment=None, mount=f"{shared}:rw")
        await tools.check()
        with pytest.raises(UsageProblem):
            await SandboxTools(service, str(open_directory), environment=None, mount="missing:rw").check()
        async with working(scene, url, tools):
            await finish(scene, message("Go on."))
        await pool.close()

    assert (shared / "made.txt").read_text() == "made\n"
    first, pwd, read, missing = last_results(scene)
    assert "shadow" in first
    assert "root:" not in first
    assert pwd == "/workspace/project\n1"
    assert read == "     1\tmade"
    assert '"ok":false' in missing


@proves("work.own-worker")
async def test_a_stop_lets_the_call_finish_and_leaves_the_rest_to_the_next_worker(scene: Scene, url: str) -> None:
    await scene.begin(use(("bash", {"command": "one"}), ("bash", {"command": "two"})), say("Done."))
    first, second = Gate(), Gate()
    second.may_end.set()
    async with working(scene, url, first) as (stop, running):
        await send(scene.sdk, scene.session, message("Go on."))
        await asyncio.wait_for(first.begun.wait(), SECONDS)
        stop.set()
        first.may_end.set()
        await asyncio.wait_for(running, SECONDS)
    async with working(scene, url, second):
        await finish(scene)

    assert (first.calls, second.calls) == (["one"], ["two"])
    assert last_results(scene) == ["carried out", "carried out"]


@proves("work.own-worker", "work.lost-worker")
async def test_a_worker_that_is_killed_in_a_call_is_replaced_and_the_call_is_not_repeated(
    scene: Scene, url: str, later: Callable[[int], None]
) -> None:
    await scene.begin(use(("bash", {"command": "one"}), ("bash", {"command": "two"})), say("Done."))
    killed, next_ = Gate(), Gate()
    next_.may_end.set()
    async with working(scene, url, killed):
        await send(scene.sdk, scene.session, message("Go on."))
        await asyncio.wait_for(killed.begun.wait(), SECONDS)
        # What a killed process leaves: no stop, no result.
        later(61)
        async with working(scene, url, next_):
            await finish(scene)

    assert (killed.calls, next_.calls) == (["one"], ["two"])
    lost, two = last_results(scene)
    assert "not known how it ended" in lost
    assert two == "carried out"


@proves("work.own-worker")
async def test_a_call_that_waits_for_a_person_is_not_begun(scene: Scene, url: str) -> None:
    asking = {"type": "agent_toolset_20260401", "default_config": {"permission_policy": {"type": "always_ask"}}}
    await scene.begin(BASH, say("Done."), tools=asking)
    tools = Gate()
    tools.may_end.set()
    async with working(scene, url, tools):
        events = await converse(scene.sdk, scene.session, message("Go on."))
        assert not tools.calls
        (call,) = events[-1].stop_reason.event_ids
        await finish(scene, {"type": "user.tool_confirmation", "tool_use_id": call, "result": "allow"})

    assert tools.calls == ["make"]


@proves("work.own-worker")
async def test_a_wrong_key_or_environment_ends_the_worker(scene: Scene, url: str) -> None:
    await scene.begin()
    for key, environment in (("wrong-key-of-the-api", scene.environment), (TOKEN, "env_unknown")):
        async with open_client(url, key) as client:
            worker = EnvironmentWorker(WorkApi(client, environment), Gate(), asyncio.Event(), lambda _: None)
            with pytest.raises(UsageProblem):
                await asyncio.wait_for(worker.run(), SECONDS)
    with pytest.raises(UsageProblem):
        open_client("ftp://example.org", TOKEN)
