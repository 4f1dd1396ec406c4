from __future__ import annotations

from pathlib import Path

import pytest

from fidelio.errors import AgentDefinitionProblem, UsageProblem
from fidelio.ledger.redaction import view_events
from fidelio.providers.model import ModelInfo
from fidelio.runtime import events as e
from fidelio.runtime.memory.session_memory import load_session_memory
from fidelio.runtime.record import RuntimeRecord, RuntimeRecords, fold
from fidelio.runtime.wakes.conversation import load_conversation
from tests.runtime.snapshots.support import DiskSandboxes, find_workspace, write
from tests.runtime.wakes.support import Runtime, open_runtime, replies, say, texts_of, use
from tests.support import proves

BY = "person:test"


async def talk(runtime: Runtime, session: str, text: str, *answers: object) -> str:
    """Send a message, let it be answered, and return the id of its wake."""
    runtime.script(replies(*answers))  # type: ignore[arg-type]  # replies of the model
    await runtime.tell(session, text)
    await runtime.work()
    return (await runtime.record(session)).wakes.last


@proves("runtime.fork-conversation")
async def test_the_next_request_of_a_fork_begins_with_the_same_messages(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        long = "A long text. " * 1_000
        await talk(runtime, session, long, use(write("a.txt", "one"), text="I write."), say(long, {"outcome": "sleep"}))
        wake = await talk(runtime, session, "And now?", say("Nothing."))
        await talk(runtime, session, "Later.", say("Later."))
        fork = await runtime.service.fork(session, wake=wake, by=BY)
        before = runtime.requests[-2]
        await talk(runtime, fork, "Go on.", say("Gladly."))
        first = runtime.requests[-1]

        assert first.messages[: len(before.messages)] == before.messages
        assert (first.system, first.tools) == (before.system, before.tools)
        assert len(first.messages) == len(before.messages) + 2
        assert "Go on." in texts_of(first)


@proves("runtime.fork-source")
async def test_a_fork_says_where_it_comes_from_and_leaves_its_source_alone(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        wake = await talk(runtime, session, "Hello.", use(write("a.txt", "one")), say("Hello."))
        await runtime.service.set_schedule(session, "daily", 86_400, "Look.", by=BY)
        before = (await runtime.ledger.session(session)).last_seq
        fork = await runtime.service.fork(session, by=BY)
        record = await runtime.record(fork)

        (started,) = await runtime.events(fork, e.STARTED)
        assert started.body["forked_from"]["session"] == session
        assert started.body["forked_from"]["wake"] == wake
        assert (await runtime.ledger.session(session)).last_seq == before
        assert (record.status, record.wakes.current, record.wakes.open_calls) == ("idle", "", ())
        assert (record.wakes.queued, record.wakes.schedules, record.wakes.usage.tokens) == ((), (), 0)
        assert (record.wakes.day_wakes, record.wakes.count) == (0, 0)
        assert await runtime.work() == 0
        (await find_workspace(runtime, fork) / "a.txt").write_text("changed in the fork")
        assert (await find_workspace(runtime, session) / "a.txt").read_text() == "one"


@proves("runtime.fork-source")
async def test_the_record_of_a_fork_follows_from_its_events_alone(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await talk(runtime, session, "Hello.", use(write("a.txt", "one")), say("Hello."))
        fork = await runtime.service.fork(session, by=BY)
        stored = await runtime.record(fork)

        assert fold(RuntimeRecord(), view_events(await runtime.events(fork), {})) == stored


@proves("runtime.fork-workspace")
async def test_the_workspace_of_a_fork_is_what_it_was_after_the_wake(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        first = await talk(runtime, session, "One.", use(write("a.txt", "one")), say("One."))
        second = await talk(runtime, session, "Well?", say("Well."))
        third = await talk(runtime, session, "Two.", use(write("a.txt", "two"), write("b.txt", "b")), say("Two."))
        for wake, expected in ((first, "one"), (second, "one"), (third, "two"), (None, "two")):
            fork = await runtime.service.fork(session, wake=wake, by=BY)
            workspace = await find_workspace(runtime, fork)
            assert (workspace / "a.txt").read_text() == expected
            assert (workspace / "b.txt").exists() == (expected == "two")
        await talk(runtime, session, "Three.", use(write("a.txt", "three")), say("Three."))
        for wake, expected in ((second, "one"), (third, "two")):
            fork = await runtime.service.fork(session, wake=wake, by=BY)
            assert (await find_workspace(runtime, fork) / "a.txt").read_text() == expected


@proves("runtime.fork-workspace")
async def test_a_fork_follows_no_link_of_the_workspace(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await talk(runtime, session, "One.", use(write("a.txt", "one")), say("One."))
        workspace = await find_workspace(runtime, session)
        (workspace / "link").symlink_to("/etc")
        (workspace / "loop").symlink_to(".")
        fork = await runtime.service.fork(session, by=BY)
        copy = await find_workspace(runtime, fork)

        assert (copy / "link").readlink() == Path("/etc")
        assert sorted(path.name for path in copy.iterdir()) == ["a.txt", "link", "loop"]


@proves("runtime.fork-memory")
async def test_the_memory_of_a_fork_is_that_of_the_wake(tmp_path: Path) -> None:
    def remember(text: str) -> tuple[str, dict[str, str]]:
        return "memory_write", {"target": "session_state", "content": text, "mode": "replace"}

    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        first = await talk(runtime, session, "Remember.", use(remember("the first")), say("I do."))
        runtime.clock.now += 1_000
        await talk(runtime, session, "Again.", use(remember("the second")), say("I do."))
        early = await runtime.service.fork(session, wake=first, by=BY)
        late = await runtime.service.fork(session, by=BY)

        for fork, expected in ((early, "the first"), (late, "the second")):
            memory = await load_session_memory(runtime.context, fork, "session_state")
            assert (memory.text, memory.number) == (expected, 1)
        assert (await load_session_memory(runtime.context, late, "working_buffer")).number == 0


@proves("runtime.fork-compacted")
async def test_of_a_compacted_conversation_the_fork_has_the_summary_and_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        for number in range(4):
            await talk(runtime, session, f"Question {number}. " * 500, say(f"Answer {number}. " * 500))
        models = type(runtime.context.ports.models)
        monkeypatch.setattr(models, "describe", lambda *_: ModelInfo(window=12_000))
        await talk(runtime, session, "And?", say("The summary."), say("It is short now."))
        assert len(await runtime.events(session, e.CONTEXT_COMPACTED)) == 1
        fork = await runtime.service.fork(session, by=BY)

        source, copy = await runtime.record(session), await runtime.record(fork)
        original = await load_conversation(runtime.ledger, session, after=source.wakes.compacted_seq)
        copied = await load_conversation(runtime.ledger, fork, after=copy.wakes.compacted_seq)
        assert copied.messages == original.messages
        assert copy.wakes.compacted_messages == source.wakes.compacted_messages


@proves("runtime.fork-conversation")
async def test_a_redacted_message_is_redacted_in_the_fork(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        await talk(runtime, session, "Hello.", say("A secret."))
        (message,) = await runtime.events(session, e.AGENT_MESSAGE)
        runtime.ledger.record_type = lambda _: RuntimeRecords()
        await runtime.ledger.redact(session, [message.seq], actor=BY, reason="It was a secret.")
        fork = await runtime.service.fork(session, by=BY)

        original = await load_conversation(runtime.ledger, session)
        assert (await load_conversation(runtime.ledger, fork)).messages == original.messages
        assert all("A secret." not in str(event.body) for event in await runtime.events(fork))


@proves("runtime.fork-conversation")
async def test_a_call_that_waits_for_a_person_is_not_copied(tmp_path: Path) -> None:
    async with open_runtime(tmp_path, sandboxes=DiskSandboxes()) as runtime:
        session = await runtime.begin()
        await talk(runtime, session, "Build.", use(("shell_run", {"command": "make"}), text="I build."))
        assert (await runtime.record(session)).wakes.blocking
        fork = await runtime.service.fork(session, by=BY)
        await talk(runtime, fork, "Never mind.", say("All right."))

        assert (await runtime.record(fork)).approvals == {}
        assert (await runtime.record(fork)).status == "idle"
        assert len((await runtime.record(session)).wakes.blocking) == 1


@proves("runtime.fork-model")
async def test_a_fork_may_have_another_model_and_version(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin(system="Be short.")
        await talk(runtime, session, "Hello.", say("Hello."))
        await runtime.define(system="Be long.")
        same = await runtime.service.fork(session, by=BY)
        other = await runtime.service.fork(session, model="scripted:other", version=2, by=BY)
        for fork in (same, other):
            await talk(runtime, fork, "Well?", say("Well."))

        assert ("Be short." in runtime.requests[-2].system, runtime.requests[-2].model) == (True, "test")
        assert ("Be long." in runtime.requests[-1].system, runtime.requests[-1].model) == (True, "other")
        with pytest.raises(AgentDefinitionProblem):
            await runtime.service.fork(session, version=9, by=BY)


@proves("runtime.fork-refused")
async def test_what_has_no_ended_wake_cannot_be_forked(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        session = await runtime.begin()
        with pytest.raises(UsageProblem, match="no wake has ended"):
            await runtime.service.fork(session, by=BY)
        await talk(runtime, session, "Hello.", say("Hello."))
        with pytest.raises(UsageProblem, match="no wake 'wake_x' has ended"):
            await runtime.service.fork(session, wake="wake_x", by=BY)
        directories = list((tmp_path / "home" / "sandboxes").iterdir())

        with pytest.raises(AgentDefinitionProblem):
            await runtime.service.fork(session, version=7, by=BY)

        assert list((tmp_path / "home" / "sandboxes").iterdir()) == directories
