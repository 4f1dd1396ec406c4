"""session_state and working_buffer: what an agent writes stays, with all its versions."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fidelio.engine.variables import is_blank
from fidelio.errors import DocumentConflict
from fidelio.ids import new_id
from fidelio.runtime import events as e
from fidelio.runtime.memory.session_memory import MAX_CHARACTERS, SessionMemory
from fidelio.runtime.memory.tools import IMPLEMENTATIONS
from tests.runtime.memory.support import MemoryBench
from tests.support import proves

WRITE, READ, VERSIONS = "memory_write", "memory_read", "memory_list_versions"


@proves("runtime.memory-writes")
async def test_what_was_written_is_there_after_the_wake(bench: MemoryBench) -> None:
    """Reference 26, defect 15: the end of the wake lost it."""
    session = await bench.start()
    await bench.append(session, e.SPAN_STARTED, span_kind="wake", wake_id="wake_1", span_id="x")
    await bench.call(session, WRITE, target="session_state", content="half of the parser is done", wake="wake_1")
    await bench.call(session, WRITE, target="working_buffer", content="why is the cache cold?", wake="wake_1")
    await bench.append(session, e.SPAN_COMPLETED, span_kind="wake", wake_id="wake_1", span_id="x", summary="Worked.")
    await bench.append(session, e.STATUS_IDLE, stop_reason={"type": "end_turn"})
    await bench.wake(session)
    state = await bench.call(session, READ, target="session_state")
    buffer = await bench.call(session, READ, target="working_buffer")
    assert (state["content"], buffer["content"]) == ("half of the parser is done", "why is the cache cold?")
    assert (await bench.call(session, VERSIONS, target="session_state"))["count"] == 1


@proves("runtime.memory-writes")
async def test_a_store_is_empty_and_without_a_version_before_the_first_write(bench: MemoryBench) -> None:
    found = await bench.call(await bench.start(), READ, target="working_buffer")
    assert (found["content"], found["versionId"], found["truncated"]) == ("", None, False)


@proves("runtime.memory-writes")
async def test_append_adds_a_line_and_replace_does_not(bench: MemoryBench) -> None:
    session = await bench.start()
    for content, mode in (("one", "append"), ("  two \n", "append"), ("three", "replace"), ("four", "append")):
        stored = await bench.call(session, WRITE, target="working_buffer", content=content, mode=mode)
    assert stored["content"] == "three\nfour"
    second = await bench.call(session, "memory_read_version", target="working_buffer", versionId="working_buffer.2")
    assert second["content"] == "one\ntwo"


@proves("runtime.memory-writes")
@pytest.mark.parametrize("content", [" ", "\n\t", "\u200b\u200d", "\u2060\ufeff", "\u3164", "\u202e\u00ad"])
async def test_a_content_in_which_nothing_can_be_seen_is_refused(bench: MemoryBench, content: str) -> None:
    session = await bench.start()
    refused = await bench.refuse(session, WRITE, target="session_state", content=content)
    assert refused.reason == "empty_content"
    assert (await bench.refuse(session, "memory_promote_note", content=content)).reason == "empty_content"


@proves("runtime.memory-writes")
async def test_a_store_does_not_grow_beyond_its_limit(bench: MemoryBench) -> None:
    session = await bench.start()
    await bench.call(session, WRITE, target="session_state", content="x" * MAX_CHARACTERS)
    refused = await bench.refuse(session, WRITE, target="session_state", content="y", mode="append")
    assert refused.reason == "memory_full"
    assert (await bench.call(session, READ, target="session_state"))["content"] == "x" * MAX_CHARACTERS


@proves("runtime.memory-writes")
async def test_characters_that_no_database_stores_are_replaced(bench: MemoryBench) -> None:
    stored = await bench.call(await bench.start(), WRITE, target="session_state", content="a\0b")
    assert stored["content"] == "a\ufffdb"


@proves("runtime.memory-versions")
async def test_a_version_says_when_how_and_in_which_wake_it_came(bench: MemoryBench) -> None:
    session = await bench.start()
    stored = await bench.call(session, WRITE, target="session_state", content="one\ntwo", wake="wake_7")
    (version,) = (await bench.call(session, VERSIONS, target="session_state"))["versions"]
    assert version == {
        "versionId": stored["versionId"],
        "agentId": "default",
        "sessionId": session,
        "target": "session_state",
        "createdAt": "2027-01-15T08:00:00.000Z",
        "source": "memory_write",
        "mode": "replace",
        "contentHash": stored["contentHash"],
        "sizeBytes": 7,
        "wakeId": "wake_7",
        "preview": "one two",
    }
    (event,) = await bench.events(session, e.MEMORY_CHANGED)
    assert event.body["version_id"] == stored["versionId"]
    assert event.body["wake_id"] == "wake_7"


@proves("runtime.memory-versions")
async def test_a_write_on_top_of_another_version_is_refused(bench: MemoryBench) -> None:
    session = await bench.start()
    first = await bench.call(session, WRITE, target="session_state", content="one")
    await bench.call(session, WRITE, target="session_state", content="two", expectedVersionId=first["versionId"])
    refused = await bench.refuse(session, WRITE, target="session_state", content="3", expectedVersionId=first["versionId"])
    assert refused.reason == "precondition_failed"
    assert "session_state.2" in str(refused)
    empty = await bench.refuse(session, WRITE, target="working_buffer", content="4", expectedVersionId="working_buffer.1")
    assert "no version" in str(empty)


@proves("runtime.memory-versions")
async def test_of_two_writes_at_once_only_one_is_committed(bench: MemoryBench) -> None:
    session = await bench.start()
    first = await bench.prepare(session, WRITE, target="session_state", content="mine", mode="append")
    call, arguments, preparation = await bench.prepare(session, WRITE, target="session_state", content="yours", mode="append")
    await bench.finish(first)
    stale = await IMPLEMENTATIONS[WRITE].run(call, arguments, preparation)
    await bench.commit(call, stale)
    with pytest.raises(DocumentConflict):
        await bench.commit(call, stale)
    assert (await bench.call(session, READ, target="session_state"))["content"] == "mine\nyours"


@proves("runtime.memory-versions")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(["replace", "append"]), st.text(max_size=40)), min_size=1, max_size=6))
async def test_every_version_can_be_read_as_it_was_written(bench: MemoryBench, writes: list[tuple[str, str]]) -> None:
    session = await bench.start(new_id("s"))
    expected: list[str] = []
    for mode, text in writes:
        if is_blank(text):
            continue
        stored = await bench.call(session, WRITE, target="working_buffer", content=text, mode=mode)
        expected.append(str(stored["content"]))
    listed = (await bench.call(session, VERSIONS, target="working_buffer", limit=50))["versions"]
    read = [
        await bench.call(session, "memory_read_version", target="working_buffer", versionId=version["versionId"])
        for version in listed
    ]
    assert [each["content"] for each in reversed(read)] == expected


@proves("runtime.memory-versions")
@pytest.mark.parametrize(
    "version",
    [
        "session_state.2",
        "working_buffer.1",
        "session_state.x",
        "session_state.-1",
        "session_state.",
        "ver_1",
        "session_state.\u0661",
    ],
)
async def test_an_unknown_version_is_refused(bench: MemoryBench, version: str) -> None:
    session = await bench.start()
    await bench.call(session, WRITE, target="session_state", content="one")
    refused = await bench.refuse(session, "memory_read_version", target="session_state", versionId=version)
    assert refused.reason == "not_found"


@proves("runtime.memory-own-session")
async def test_another_session_cannot_be_written(bench: MemoryBench) -> None:
    """Reference 26, defect 9: any session of the agent could be written without asking."""
    mine, other = await bench.start("a"), await bench.start("b")
    refused = await bench.refuse(mine, WRITE, target="session_state", content="obey me", sessionId=other)
    assert refused.reason == "other_session"
    assert (await bench.call(other, READ, target="session_state"))["content"] == ""
    own = await bench.call(mine, WRITE, target="session_state", content="mine", sessionId=mine)
    assert own["sessionId"] == mine


@proves("runtime.memory-own-session")
async def test_a_session_reads_the_memory_of_its_agent_only(bench: MemoryBench) -> None:
    mine, other = await bench.start("a"), await bench.start("b")
    stranger = await bench.start("c", agent="somebody-else")
    await bench.call(other, WRITE, target="session_state", content="from b")
    assert (await bench.call(mine, READ, target="session_state", sessionId=other))["content"] == "from b"
    assert (await bench.call(mine, VERSIONS, target="session_state", sessionId=other))["count"] == 1
    refused = await bench.refuse(mine, READ, target="session_state", sessionId=stranger)
    assert refused.reason == "session_not_found"


@proves("runtime.memory-own-session")
async def test_a_session_with_a_network_does_not_read_an_offline_one(bench: MemoryBench) -> None:
    online, offline = await bench.start_in("unrestricted", "on"), await bench.start_in("none", "off")
    await bench.call(offline, WRITE, target="working_buffer", content="the secret plan")
    refused = await bench.refuse(online, READ, target="working_buffer", sessionId=offline)
    assert refused.reason == "network_too_open"
    assert "secret" not in str(refused)


def test_an_empty_store_has_no_version() -> None:
    assert SessionMemory("s_1", "session_state").version_id is None
