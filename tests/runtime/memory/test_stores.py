"""The stores that are read: the checkpoint, the shell state, the shared memory."""

from __future__ import annotations

import msgspec
import pytest

from fidelio.runtime import events as e
from fidelio.runtime.memory.parameters import ReadMemory
from fidelio.runtime.resources.memory_file import render_section
from tests.runtime.memory.support import MemoryBench
from tests.support import proves


@proves("runtime.memory-stores")
async def test_six_stores_are_listed_and_two_can_be_written(bench: MemoryBench) -> None:
    found = await bench.call(await bench.start(), "memory_list")
    assert found["count"] == 6
    assert [store["target"] for store in found["stores"] if store["writable"]] == ["session_state", "working_buffer"]
    assert {store["scope"] for store in found["stores"]} == {"session", "agent"}
    for store in found["stores"]:
        msgspec.convert({"target": store["target"]}, ReadMemory)


@proves("runtime.memory-stores")
async def test_the_checkpoint_says_where_the_session_stands(bench: MemoryBench) -> None:
    session = await bench.start()
    await bench.append(session, e.USER_MESSAGE, content=[{"type": "text", "text": "Hello"}])
    message = (await bench.events(session, e.USER_MESSAGE))[0]
    await bench.append(
        session, e.SPAN_STARTED, span_kind="wake", wake_id="wake_1", span_id="x", processed_seq=message.seq, setup="f00d"
    )
    await bench.append(session, e.WAKE_QUEUED, id="wake_2", due=1_800_000_060_000, reason="look again", note="the build")
    await bench.append(
        session, e.SPAN_COMPLETED, span_kind="wake", wake_id="wake_1", span_id="x", summary="Started.", continues=1
    )
    await bench.append(session, e.STATUS_IDLE, stop_reason={"type": "end_turn"})
    found = (await bench.call(session, "memory_read", target="checkpoint"))["content"]
    assert found["lastWakeId"] == "wake_1"
    assert found["eventCursor"]["lastProcessedEventId"] == message.id
    assert found["eventCursor"]["lastProducedSeq"] == (await bench.load(session)).record.seq
    assert (found["lastOutcome"], found["lastSummary"], found["consecutiveFollowUps"]) == ("continue", "Started.", 1)
    assert found["nextWakeAt"] == "2027-01-15T08:01:00.000Z"
    assert found["queuedWakes"] == [
        {"id": "wake_2", "reason": "look again", "dueAt": "2027-01-15T08:01:00.000Z", "note": "the build"}
    ]
    assert (found["stopReason"], found["lastAgentSetupFingerprint"]) == ("end_turn", "f00d")
    assert (found["activeOutcome"], found["outcomeEvaluationHistory"]) == (None, [])


@proves("runtime.memory-stores")
async def test_the_checkpoint_of_a_new_session_has_nothing_in_it(bench: MemoryBench) -> None:
    found = (await bench.call(await bench.start(), "memory_read", target="checkpoint"))["content"]
    assert found["eventCursor"]["lastProcessedEventId"] is None
    assert [found[key] for key in ("lastWakeId", "lastOutcome", "lastSummary", "nextWakeAt", "stopReason")] == [None] * 5


@proves("runtime.memory-stores")
async def test_the_checkpoint_has_the_outcome_and_its_verdicts(bench: MemoryBench) -> None:
    session = await bench.start()
    criteria = [{"text": "the tests are green"}]
    await bench.append(session, e.OUTCOME_DEFINED, outcome_id="o1", title="Green", criteria=criteria, author="person")
    body = {"outcome_id": "o1", "iteration": 0, "status": "not_ready", "trend": "first_iteration", "results": []}
    await bench.append(session, e.EVALUATION_ENDED, wake_id="wake_1", **body)
    found = (await bench.call(session, "memory_read", target="checkpoint"))["content"]
    assert found["activeOutcome"]["successCriteria"] == ["the tests are green"]
    (entry,) = found["outcomeEvaluationHistory"]
    assert (entry["wakeId"], entry["evaluation"]["status"]) == ("wake_1", "not_ready")


@proves("runtime.memory-stores")
async def test_the_shell_state_has_names_of_variables_and_no_values(bench: MemoryBench) -> None:
    session = await bench.start()
    await bench.append(session, e.SHELL_ENV, set={"API_KEY": "digest-of-the-value"}, unset=[])
    found = await bench.call(session, "memory_read", target="shell_state")
    assert found["content"]["env"] == {"count": 1, "keys": ["API_KEY"]}
    assert "digest-of-the-value" not in str(found)


@proves("runtime.memory-stores")
@pytest.mark.parametrize(("path", "other"), [("MEMORY.md", "memory.md"), ("memory.md", "MEMORY.md")])
async def test_the_shared_memory_is_read_whole_or_only_its_notes(bench: MemoryBench, path: str, other: str) -> None:
    session = await bench.start()
    text = f"# Ours\n{render_section('notes', '- call anna')}\nrest\n"
    version = await bench.share(path, text.encode())
    whole = await bench.call(session, "memory_read", target="workspace_memory")
    notes = await bench.call(session, "memory_read", target="workspace_memory_notes")
    assert (whole["content"], notes["content"]) == (text, "- call anna")
    assert whole["versionId"] == notes["versionId"] == version.version_id
    assert other not in await (await bench.substrate()).list_paths(10)


@proves("runtime.memory-stores")
async def test_a_long_memory_is_cut_and_says_so(bench: MemoryBench) -> None:
    await bench.share("MEMORY.md", b"x" * 200_000)
    found = await bench.call(await bench.start(), "memory_read", target="workspace_memory")
    assert (len(found["content"]), found["truncated"]) == (100_000, True)


@proves("runtime.memory-stores")
async def test_a_binary_memory_is_reported(bench: MemoryBench) -> None:
    await bench.share("MEMORY.md", b"\x00\xff")
    session = await bench.start()
    assert (await bench.refuse(session, "memory_read", target="workspace_memory")).reason == "not_text"
    assert (await bench.refuse(session, "memory_promote_note", content="x")).reason == "not_text"
