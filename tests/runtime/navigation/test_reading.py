"""Reading logs: parts of them, wakes, ids that do not belong there, and bounds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fidelio.errors import UsageProblem
from fidelio.ledger.long_text import store_text
from fidelio.ledger.model import Change, NewEvent
from fidelio.runtime import events as e
from fidelio.runtime.navigation import log
from fidelio.runtime.navigation.event_views import EVENT_TYPES, TOTAL_CHARS, WHOLE_CHARS
from fidelio.runtime.navigation.parameters import ReadEvents
from fidelio.runtime.tools.definitions import DEFINITIONS
from fidelio.toolkit import read_arguments
from tests.runtime.navigation.support import World, make, message, reply, suggestions, wake
from tests.support import proves


async def ids_of(world: World, session: str) -> list[str]:
    return [event.id for event in await world.context.ledger.events(session)]


def shown_ids(found: dict[str, Any]) -> list[str]:
    return [event["id"] for event in found["events"]]


async def start_long(world: World, count: int = 30) -> tuple[str, list[str]]:
    session = await world.start(*(message(f"number {each}") for each in range(count)))
    return session, await ids_of(world, session)


@proves("navigation.events")
async def test_without_an_anchor_the_newest_events_come_in_log_order(world: World) -> None:
    session, ids = await start_long(world)

    found = await world.use(session, "session_get_events", limit=5)

    assert (shown_ids(found), found["hasMore"], found["count"]) == (ids[-5:], True, 5)
    assert found["sessionId"] == session


@proves("navigation.events")
async def test_before_after_and_around_give_events_in_log_order(world: World) -> None:
    session, ids = await start_long(world)
    anchor = ids[15]

    before = await world.use(session, "session_get_events", beforeEventId=anchor, limit=3)
    after = await world.use(session, "session_get_events", afterEventId=anchor, limit=3)
    around = await world.use(session, "session_get_events", aroundEventId=anchor, beforeLimit=2, afterLimit=1)
    between = await world.use(session, "session_get_events", afterEventId=ids[10], beforeEventId=ids[14])

    assert shown_ids(before) == ids[12:15]
    assert shown_ids(after) == ids[16:19]
    assert shown_ids(around) == ids[13:17]
    assert shown_ids(between) == ids[11:14]


@proves("navigation.events")
@pytest.mark.parametrize("direction", ["afterEventId", "beforeEventId"])
async def test_the_suggested_calls_lead_through_the_whole_log(world: World, direction: str) -> None:
    session, ids = await start_long(world)
    start = ids[0] if direction == "afterEventId" else ids[-1]
    seen = [start]
    arguments: dict[str, Any] = {direction: start, "limit": 7}
    for _ in range(len(ids)):
        found = await world.use(session, "session_get_events", **arguments)
        seen = seen + shown_ids(found) if direction == "afterEventId" else shown_ids(found) + seen
        if not found["hasMore"]:
            break
        assert found["nextStep"]["tool"] == "session_get_events"
        arguments = found["nextStep"]["args"]

    assert seen == ids


@proves("navigation.events")
@pytest.mark.parametrize("anchor", ["afterEventId", "beforeEventId", "aroundEventId"])
async def test_an_event_of_another_session_is_refused(world: World, anchor: str) -> None:
    session, other = await world.start(), await world.start(message("x"))
    foreign = (await ids_of(world, other))[-1]

    for name in (foreign, "evt_unknown"):
        refused = await world.refuse(session, "session_get_events", **{anchor: name})
        assert refused.reason == "event_not_found"
    assert shown_ids(await world.use(session, "session_get_events", sessionId=other, aroundEventId=foreign)) == [foreign]


@proves("navigation.events")
async def test_an_old_event_is_found_behind_many_newer_ones(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_STEP", 2)
    session, ids = await start_long(world, 60)

    found = await world.use(session, "session_get_events", aroundEventId=ids[1], afterLimit=1)

    assert shown_ids(found) == ids[1:3]


@proves("navigation.events")
async def test_types_and_pending_events_are_filtered(world: World) -> None:
    session = await world.start(message("first"))
    started = make(e.SPAN_STARTED, {"span_kind": "wake", "wake_id": "w1", "processed_seq": 2})
    await world.append(session, started, reply("w1", "answer"), make(e.SPAN_COMPLETED, {"span_kind": "wake", "wake_id": "w1"}))
    await world.append(session, message("second"))

    replies = await world.use(session, "session_get_events", types=[e.AGENT_MESSAGE])
    pending = await world.use(session, "session_get_events", includeProcessed=False)
    taken = await world.use(session, "session_get_events", types=[e.USER_MESSAGE])

    assert [event["type"] for event in replies["events"]] == [e.AGENT_MESSAGE]
    assert (await world.use(session, "session_get_events", includeProcessed=False, types=[e.AGENT_MESSAGE]))["events"] == []
    assert [event["payload"]["content"][0]["text"] for event in pending["events"]] == ["second"]
    first, second = taken["events"]
    assert first["processedAt"] is not None
    assert second["processedAt"] is None


@proves("navigation.events")
async def test_an_unknown_type_and_contradicting_anchors_are_refused_by_name(world: World) -> None:
    session = await world.start()
    known = (await ids_of(world, session))[0]

    assert "types" in str(await world.refuse(session, "session_get_events", types=["agent.massage"]))
    contradicting = await world.refuse(session, "session_get_events", aroundEventId=known, afterEventId=known)
    assert "aroundEventId" in str(contradicting)
    assert e.AGENT_MESSAGE in EVENT_TYPES


@proves("navigation.bounded")
async def test_many_long_events_stay_within_the_bound_and_one_alone_is_whole(world: World) -> None:
    text = store_text("x" * 9_000)
    body = {"tool_use_id": "t", "name": "read", "is_error": False, "result": text.body}
    events = [NewEvent(type=e.TOOL_RESULT, body=body, blobs=text.digests)] * 100
    session = await world.start()
    await world.context.ledger.commit(Change(session=session, events=tuple(events), blobs=text.blobs))

    many = await world.use(session, "session_get_events", limit=100)
    alone = await world.use(session, "session_get_events", aroundEventId=many["events"][0]["id"])

    # Beside the payloads each event has an id, a type and times.
    assert len(msgspec.json.encode(many["events"])) <= TOTAL_CHARS + 100 * 260
    assert all(event["shortened"] for event in many["events"])
    assert many["nextStep"]["args"].keys() >= {"sessionId"}
    assert alone["events"][0]["payload"]["result"]["text"] == "x" * 9_000
    assert "shortened" not in alone["events"][0]


@proves("navigation.bounded")
async def test_an_event_that_is_longer_than_a_result_may_be_is_cut(world: World) -> None:
    session = await world.start(message("y" * 100_000))
    newest = (await ids_of(world, session))[-1]

    found = await world.use(session, "session_get_events", aroundEventId=newest)

    assert len(msgspec.json.encode(found)) < WHOLE_CHARS + 1_000
    assert found["events"][0]["shortened"] is True


@proves("navigation.bounded")
async def test_reading_logs_again_and_again_does_not_make_results_grow(world: World) -> None:
    session = await world.start(*(message("z" * 300) for _ in range(20)))
    sizes = []
    for each in range(12):
        found = await world.use(session, "session_get_events", limit=20)
        sizes.append(len(msgspec.json.encode(found)))
        stored = store_text(msgspec.json.encode(found).decode())
        body = {"tool_use_id": f"t{each}", "name": "session_get_events", "is_error": False, "result": stored.body}
        event = NewEvent(type=e.TOOL_RESULT, body=body, blobs=stored.digests)
        await world.context.ledger.commit(Change(session=session, events=(event,), blobs=stored.blobs))

    assert max(sizes) == sizes[0]


@proves("navigation.bounded")
async def test_neither_directories_of_the_host_nor_data_of_images_are_shown(world: World) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 100}}
    session = await world.start(
        make(e.USER_MESSAGE, {"content": [image]}), project="/home/anna/secret", mount_source="/home/anna/x"
    )

    text = msgspec.json.encode(await world.use(session, "session_get_events")).decode()

    assert "/home/anna" not in text
    assert "QUJD" not in text
    assert "(400 characters)" in text


@proves("navigation.traces")
async def test_a_trace_has_exactly_the_events_of_its_wake(world: World) -> None:
    use = make(e.TOOL_USE, {"id": "t1", "name": "read", "input": {"text": "{}"}, "wake_id": "wake_1"})
    session = await world.start(message("go"), *wake("wake_1", use, message("meanwhile"), reply("wake_1", "done")))
    await world.append(session, *wake("wake_2", reply("wake_2", "again"), summary="Looked once more."))

    found = await world.use(session, "session_get_trace", wakeId="wake_1")
    same = await world.use(session, "session_get_events", wakeId="wake_1")

    expected = [e.SPAN_STARTED, e.STATUS_RUNNING, e.TOOL_USE, e.AGENT_MESSAGE, e.STATUS_IDLE, e.SPAN_COMPLETED]
    assert [event["type"] for event in found["events"]] == expected
    assert {event["wakeId"] for event in found["events"]} == {"wake_1"}
    assert shown_ids(same) == shown_ids(found)
    assert (found["wakeId"], found["hasMore"]) == ("wake_1", False)


@proves("navigation.traces")
async def test_a_trace_that_is_cut_goes_on_where_it_stopped(world: World) -> None:
    inner = [reply("w", str(each)) for each in range(10)]
    session = await world.start(*wake("w", *inner))

    first = await world.use(session, "session_get_trace", wakeId="w", limit=4)
    rest = await world.use(session, "session_get_events", **first["nextStep"]["args"])

    assert first["hasMore"] is True
    assert shown_ids(first) + shown_ids(rest) == (await ids_of(world, session))[1:]


@proves("navigation.traces")
async def test_an_unknown_wake_is_refused_and_an_unfinished_one_is_shown(world: World) -> None:
    session = await world.start(*wake("w", reply("w", "x"))[:3])

    assert (await world.refuse(session, "session_get_trace", wakeId="nope")).reason == "wake_not_found"
    assert (await world.use(session, "session_get_trace", wakeId="w"))["count"] == 3
    (trace,) = (await world.use(session, "session_list_traces"))["traces"]
    assert trace["isFinished"] is False


@proves("navigation.traces")
async def test_wakes_are_listed_newest_first_with_their_summaries(world: World) -> None:
    session = await world.start()
    for each in range(5):
        await world.append(session, *wake(f"wake_{each}", reply(f"wake_{each}", "x"), summary=f"Summary {each}."))

    found = await world.use(session, "session_list_traces", limit=3)

    assert [trace["wakeId"] for trace in found["traces"]] == ["wake_4", "wake_3", "wake_2"]
    assert [trace["latestSummary"] for trace in found["traces"]] == ["Summary 4.", "Summary 3.", "Summary 2."]
    assert found["traces"][0]["eventCount"] == 5
    assert e.AGENT_MESSAGE in found["traces"][0]["eventTypes"]


@proves("navigation.traces")
async def test_a_trace_costs_no_reading_of_the_log_before_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await world.start(*(message("old") for _ in range(900)))
    await world.append(session, *wake("w", reply("w", "x")))
    seen: list[int] = []
    read = world.context.ledger.events

    async def watch(*args: Any, **options: Any) -> Any:
        seen.append(options.get("after", 0))
        return await read(*args, **options)

    monkeypatch.setattr(world.context.ledger, "events", watch)
    await world.use(session, "session_get_trace", wakeId="w")

    assert min(seen) > 600


@proves("navigation.suggestions")
async def test_every_suggested_call_is_one_that_its_tool_accepts(world: World) -> None:
    session = await world.start(*(message("x" * 4_000) for _ in range(40)))
    await world.append(session, *wake("w", reply("w", "y" * 9_000)))
    outputs = [
        await world.use(session, "session_get_events", limit=3),
        await world.use(session, "session_get_trace", wakeId="w", limit=2),
        await world.use(session, "session_get_trace", wakeId="w"),
        await world.use(session, "session_list_traces"),
    ]

    steps = suggestions(outputs)

    assert len(steps) >= 4
    for step in steps:
        read_arguments(step["tool"], DEFINITIONS[step["tool"]].parameters, step["args"])
        await world.use(session, step["tool"], **step["args"])


@proves("navigation.events")
@pytest.mark.parametrize(
    "arguments", [{"limit": 0}, {"limit": 101}, {"beforeLimit": 51}, {"types": "x"}, {"includeProcessed": "yes"}, {"since": 1}]
)
def test_wrong_arguments_are_refused_by_name(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageProblem, match=next(iter(arguments))):
        read_arguments("session_get_events", ReadEvents, arguments)
