"""What a session was begun with and is gone: agent, environment, vault or model. Nothing that was sent is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.app.records import record_type
from fidelio.runtime import events as e
from fidelio.runtime.environments.versions import Environment, define
from fidelio.runtime.ports import NoModels
from fidelio.runtime.stores import find_store
from tests.runtime.harness.support import make_sandboxes
from tests.runtime.wakes.support import LEASE_MS, PROJECT, Runtime, open_runtime, replies, results_of, say, texts_of, use
from tests.support import proves

PERSON = "person:test"
RUN = ("shell_run", {"command": "make"})
WRITE = ("write", {"path": "a.txt", "content": "A"})
KINDS = ["agent", "environment", "model"]


class Parts:
    """What the session of a test needs, which can be lost and restored."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._find = runtime.context.ports.models.find

    async def begin(self) -> str:
        await self._define_environment()
        return await self._runtime.begin(environment="box")

    async def _define_environment(self) -> None:
        await define(self._runtime.context, "box", Environment(), by=PERSON)

    async def lose(self, kind: str) -> None:
        context = self._runtime.context
        if kind == "model":
            context.ports.models.find = NoModels().find  # type: ignore[method-assign]  # it is gone
            return
        store = (
            await find_store(context, "substrate", project=PROJECT, agent="helper")
            if kind == "agent"
            else await find_store(context, "environments")
        )
        assert store is not None
        await self._runtime.service.delete_session(store.id, by=PERSON, reason="a test")

    async def restore(self, kind: str) -> None:
        if kind == "model":
            self._runtime.context.ports.models.find = self._find  # type: ignore[method-assign]  # it is back
        elif kind == "agent":
            await self._runtime.define(environment="box")
        else:
            await self._define_environment()


@proves("runtime.setup-missing")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_message_waits_until_what_is_missing_is_back(tmp_path: Path, kind: str) -> None:
    async with open_runtime(tmp_path) as runtime:
        parts = Parts(runtime)
        session = await parts.begin()
        await parts.lose(kind)
        await runtime.tell(session, "First.")
        assert await runtime.work() == 1

        (error,) = await runtime.events(session, e.SESSION_ERROR)
        assert error.body["error"]["type"] == "agent_setup_error"
        assert error.body["error"]["message"]
        record = await runtime.record(session)
        assert (record.status, record.wakes.stop_reason, record.wakes.pending) == ("idle", "retries_exhausted", 1)
        await parts.restore(kind)
        await runtime.tell(session, "Second.")
        await runtime.work()
        assert "First." in texts_of(runtime.requests[0])
        assert "Second." in texts_of(runtime.requests[0])
        assert (await runtime.record(session)).wakes.stop_reason == "end_turn"


@proves("runtime.setup-missing")
@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_person_allowed_is_carried_out_when_everything_is_back(tmp_path: Path, kind: str) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, replies(use(RUN), say("Built.")), sandboxes=sandboxes) as runtime:
        parts = Parts(runtime)
        session = await parts.begin()
        await runtime.tell(session, "Build.")
        await runtime.work()
        (call,) = (await runtime.record(session)).wakes.blocking
        await parts.lose(kind)
        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"})
        await runtime.work()
        assert sandboxes.actions == []

        await parts.restore(kind)
        await runtime.tell(session, "Go on.")
        await runtime.work()
        assert sandboxes.actions == ["run_shell"]
        assert [result.is_error for result in results_of(runtime.requests[1])] == [False]
        assert "Go on." in texts_of(runtime.requests[2])


@proves("runtime.setup-missing")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_wake_that_died_and_cannot_go_on_gives_every_call_a_result(tmp_path: Path, kind: str) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, replies(use(WRITE, RUN), say("Never.")), sandboxes=sandboxes) as runtime:
        parts = Parts(runtime)
        session = await parts.begin()
        write = sandboxes.replies["write_text"]

        def die(_: dict[str, object]) -> dict[str, object]:
            raise MemoryError("the process dies")

        sandboxes.replies["write_text"] = die
        await runtime.tell(session, "Write and build.")
        with pytest.raises(MemoryError):
            await runtime.run(await runtime.claim())
        await parts.lose(kind)
        runtime.clock.now += LEASE_MS + 1
        await runtime.work()

        record = await runtime.record(session)
        assert (record.status, record.wakes.open_calls, record.approvals) == ("idle", (), {})
        assert (await runtime.ledger.requests(session=session)).items == ()
        sandboxes.replies["write_text"] = write
        await parts.restore(kind)
        runtime.script(replies(say("Back.")))
        await runtime.tell(session, "Still there?")
        await runtime.work()
        results = results_of(runtime.requests[-1])
        assert [result.is_error for result in results] == [True, True]
        assert "not known how it ended" in str(results[0].content)


@proves("runtime.setup-missing")
async def test_a_queued_wake_comes_back_when_everything_is_back(tmp_path: Path) -> None:
    later = {"outcome": "sleep", "queuedWakes": [{"reason": "look again", "delaySeconds": 60}]}
    async with open_runtime(tmp_path, replies(say("Later.", later))) as runtime:
        parts = Parts(runtime)
        session = await parts.begin()
        await runtime.tell(session, "Remind me.")
        await runtime.work()
        await parts.lose("model")
        runtime.clock.now += 61_000
        assert await runtime.work() == 1
        assert await runtime.work() == 0, "it is tried again in a loop"

        await parts.restore("model")
        runtime.clock.now += 15 * 60 * 1000 + 1
        await runtime.work()
        assert "look again" in texts_of(runtime.requests[-1])


@proves("runtime.setup-missing")
async def test_a_vault_that_was_removed_leaves_the_session_at_work(tmp_path: Path) -> None:
    sandboxes = make_sandboxes()
    async with open_runtime(tmp_path, replies(use(WRITE), say("Written.")), sandboxes=sandboxes) as runtime:
        runtime.ledger.record_type = record_type
        await runtime.define()
        await runtime.service.vaults.add("token", "secret", by=PERSON)
        session = await runtime.start(vaults=("token",))
        await runtime.service.vaults.remove("token", by=PERSON)
        await runtime.tell(session, "Write.")
        await runtime.work()

        assert (await runtime.record(session)).wakes.stop_reason == "end_turn"
        assert len(results_of(runtime.requests[-1])) == 1
