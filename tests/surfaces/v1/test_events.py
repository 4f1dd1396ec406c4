"""Events over the API, with the official SDK: sent, listed, and rendered as its types say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from anthropic import AsyncAnthropic, BadRequestError, PermissionDeniedError
from anthropic.types.beta.sessions import BetaManagedAgentsSessionEvent

from fidelio.providers.model import ModelProblem, ModelReply, ModelRequest, ToolUseBlock
from tests.runtime.wakes.support import replies, results_of, say, use
from tests.support import proves
from tests.surfaces.runtime.conftest import FILES
from tests.surfaces.v1.conftest import KEY, ModelBehaviour
from tests.surfaces.v1.strict import check_json
from tests.surfaces.v1.support import collect, converse, create_session, list_events, message, only, send, types_of

Script = Callable[[ModelBehaviour], None]
ASKS = {"tools": [{"type": "fidelio_toolset"}]}
LOOKUP = {
    "type": "custom",
    "name": "lookup",
    "description": "Looks something up.",
    "input_schema": {"type": "object", "properties": {"key": {"type": "string"}}},
}


async def read_raw(url: str, path: str, **query: Any) -> dict[str, Any]:
    async with httpx2.AsyncClient() as client:
        response = await client.get(f"{url}/v1/sessions/{path}", headers=KEY, params=query)
    found: dict[str, Any] = response.json()
    return found


@proves("v1.events-life")
async def test_a_message_is_answered_and_every_event_is_what_the_sdk_says(
    sdk: AsyncAnthropic, url: str, script: Script
) -> None:
    script(replies(use(("write", {"path": "a.txt", "content": "A"}), text="Writing."), say("Done.", {"outcome": "sleep"})))
    session = await create_session(sdk, definition=ASKS)

    streamed = await converse(sdk, session.id, message("Write it."))
    listed = await read_raw(url, f"{session.id}/events", limit=1000)

    for item in listed["data"]:
        check_json(BetaManagedAgentsSessionEvent, item)
    assert [item["id"] for item in listed["data"]] == [event.id for event in streamed]
    assert types_of(streamed) == [
        "user.message",
        "session.status_running",
        "span.model_request_start",
        "span.model_request_end",
        "agent.message",
        "agent.tool_use",
        "agent.tool_result",
        "span.model_request_start",
        "span.model_request_end",
        "agent.message",
        "session.usage",
        "session.status_idle",
    ]
    (used,), (result,) = only(streamed, "agent.tool_use"), only(streamed, "agent.tool_result")
    assert (used.name, used.input, result.tool_use_id) == ("write", {"path": "a.txt", "content": "A"}, used.id)
    assert only(streamed, "agent.message")[-1].content[0].text == "Done."
    starts, ends = only(streamed, "span.model_request_start"), only(streamed, "span.model_request_end")
    assert [end.model_request_start_id for end in ends] == [start.id for start in starts]
    assert streamed[-1].stop_reason.type == "end_turn"


@proves("v1.processed-at")
async def test_a_message_is_processed_when_its_wake_begins(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies(say("Hello.", {"outcome": "sleep"})))
    session = await create_session(sdk)
    (sent,) = await send(sdk, session.id, message("Hello"))

    await converse(sdk, session.id, message("And again"))
    events = await list_events(sdk, session.id)

    first, running = only(events, "user.message")[0], only(events, "session.status_running")[0]
    assert sent.processed_at is None
    assert first.id == sent.id
    assert first.processed_at is not None
    assert first.processed_at <= running.processed_at


@proves("v1.events-list")
async def test_events_are_paged_in_both_orders_without_missing_or_doubling(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies())
    session = await create_session(sdk)
    await converse(sdk, session.id, message("One"))
    await converse(sdk, session.id, message("Two"))
    whole = [event.id for event in await list_events(sdk, session.id, limit=1000)]

    by_twos = [event.id for event in await list_events(sdk, session.id, limit=2)]
    backwards = [event.id for event in await list_events(sdk, session.id, limit=3, order="desc")]
    after = [event.id for event in await list_events(sdk, session.id, extra_query={"after": whole[4]})]

    assert len(whole) == len(set(whole)) > 10
    assert (by_twos, backwards, after) == (whole, whole[::-1], whole[5:])


@proves("v1.events-list")
async def test_events_are_filtered_by_type_and_time(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies())
    session = await create_session(sdk)
    events = await converse(sdk, session.id, message("One"))
    idle = events[-1]

    chosen = await list_events(sdk, session.id, types=["agent.message", "session.status_idle"])
    late = await list_events(sdk, session.id, created_at_gt=idle.processed_at)
    since = await list_events(sdk, session.id, created_at_gte=idle.processed_at)

    assert types_of(chosen) == ["agent.message", "session.status_idle"]
    assert late == []
    assert idle.id in [event.id for event in since]
    with pytest.raises(BadRequestError, match=r"types: 'agent\.nonsense'"):
        await list_events(sdk, session.id, types=["agent.nonsense"])


@proves("v1.own-events")
async def test_events_of_ours_are_sent_only_on_request(sdk: AsyncAnthropic, url: str, script: Script) -> None:
    script(replies())
    session = await create_session(sdk)
    await converse(sdk, session.id, message("One"))

    plain = await read_raw(url, f"{session.id}/events")
    included = await read_raw(url, f"{session.id}/events", include="fidelio")
    named = await read_raw(url, f"{session.id}/events", **{"types[]": "fidelio.runtime.started"})

    assert not [item for item in plain["data"] if item["type"].startswith("fidelio.")]
    assert {"fidelio.span.started", "session.status_idle"} <= {item["type"] for item in included["data"]}
    assert [item["type"] for item in named["data"]] == ["fidelio.runtime.started"]
    assert "/" not in str(named["data"][0]["body"])


@proves("v1.confirmations")
async def test_several_confirmations_are_stored_together(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies(use(("shell_run", {"command": "make"}), ("shell_run", {"command": "rm x"})), say("Done.")))
    session = await create_session(sdk, definition=ASKS)
    events = await converse(sdk, session.id, message("Go"))
    waiting = events[-1].stop_reason
    uses = only(events, "agent.tool_use")

    first, second = waiting.event_ids
    with pytest.raises(BadRequestError):
        await send(
            sdk,
            session.id,
            {"type": "user.tool_confirmation", "tool_use_id": first, "result": "allow"},
            {"type": "user.tool_confirmation", "tool_use_id": "sevt_nothing", "result": "allow"},
        )
    answered = await converse(
        sdk,
        session.id,
        {"type": "user.tool_confirmation", "tool_use_id": first, "result": "allow"},
        {"type": "user.tool_confirmation", "tool_use_id": second, "result": "deny", "deny_message": "Not that."},
    )

    assert (waiting.type, waiting.event_ids) == ("requires_action", [event.id for event in uses])
    assert types_of(answered)[:2] == ["user.tool_confirmation", "user.tool_confirmation"]
    assert len(only(answered, "user.tool_confirmation")) == 2
    results = {event.tool_use_id: event for event in only(answered, "agent.tool_result")}
    assert results[first].is_error is False
    assert "Not that." in results[second].content[0].text
    assert answered[-1].stop_reason.type == "end_turn"


@proves("v1.confirmations")
async def test_after_a_partial_answer_idle_is_emitted_again_with_the_rest(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies(use(("shell_run", {"command": "make"}), ("shell_run", {"command": "rm x"})), say("Done.")))
    session = await create_session(sdk, definition=ASKS)
    first, second = (await converse(sdk, session.id, message("Go")))[-1].stop_reason.event_ids

    partly = await converse(sdk, session.id, {"type": "user.tool_confirmation", "tool_use_id": first, "result": "allow"})

    assert partly[-1].stop_reason.event_ids == [second]
    with pytest.raises(BadRequestError, match="deny_message"):
        await send(
            sdk,
            session.id,
            {"type": "user.tool_confirmation", "tool_use_id": second, "result": "allow", "deny_message": "no"},
        )


@proves("v1.custom-tools")
async def test_a_custom_tool_takes_one_result(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies(use(("lookup", {"key": "a"})), say("Found.")))
    session = await create_session(sdk, definition={"tools": [LOOKUP]})
    events = await converse(sdk, session.id, message("Look"))
    (used,) = only(events, "agent.custom_tool_use")
    result = {"type": "user.custom_tool_result", "custom_tool_use_id": used.id, "content": [{"type": "text", "text": "42"}]}

    after = await converse(sdk, session.id, result)

    assert (used.name, used.input) == ("lookup", {"key": "a"})
    assert events[-1].stop_reason.event_ids == [used.id]
    assert after[0].content[0].text == "42"
    assert after[-1].stop_reason.type == "end_turn"
    with pytest.raises(BadRequestError):
        await send(sdk, session.id, result)


@proves("v1.interrupt")
async def test_an_interrupt_ends_the_turn(sdk: AsyncAnthropic, script: Script) -> None:
    begun = asyncio.Event()

    async def think(_: ModelRequest) -> ModelReply:
        begun.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    script(think)
    session = await create_session(sdk)
    async with await sdk.beta.sessions.events.stream(session.id) as stream:
        await send(sdk, session.id, message("Think"))
        await asyncio.wait_for(begun.wait(), 20)
        await send(sdk, session.id, {"type": "user.interrupt"})
        events = await collect(stream)

    assert only(events, "user.interrupt")[0].processed_at is not None
    assert events[-1].stop_reason.type == "end_turn"


@proves("v1.outcomes")
async def test_an_outcome_with_a_rubric_is_evaluated_until_it_is_met(sdk: AsyncAnthropic, url: str, script: Script) -> None:
    def work(request: ModelRequest) -> ModelReply:
        if request.force_tool:
            return _grade(request)
        return say("Done.") if results_of(request) else use(("read", {"path": "a.txt"}))

    FILES["/workspace/a.txt"] = "QUFB"
    script(work)
    session = await create_session(sdk, definition=ASKS)
    outcome = {
        "type": "user.define_outcome",
        "description": "Read a.txt.",
        "rubric": {"type": "text", "content": "- a.txt was read"},
        "max_iterations": 2,
    }

    events = await converse(sdk, session.id, outcome)
    found = await sdk.beta.sessions.retrieve(session.id)

    defined = events[0]
    assert (defined.description, defined.rubric.content, defined.max_iterations) == (
        "Read a.txt.",
        "- a.txt was read",
        2,
    )
    (start,), (end,) = only(events, "span.outcome_evaluation_start"), only(events, "span.outcome_evaluation_end")
    assert (end.outcome_id, end.outcome_evaluation_start_id, end.iteration) == (defined.outcome_id, start.id, 0)
    assert end.result == "satisfied"
    assert [(item.outcome_id, item.result) for item in found.outcome_evaluations] == [(defined.outcome_id, "satisfied")]
    for item in (await read_raw(url, f"{session.id}/events"))["data"]:
        check_json(BetaManagedAgentsSessionEvent, item)


def _grade(request: ModelRequest) -> ModelReply:
    """Every criterion is met, with the first citation that is offered."""
    (tool,) = request.tools
    given = {}
    for name, schema in tool.input_schema["properties"].items():
        citations = schema["properties"]["citations"]["items"]["enum"]
        given[name] = {"verdict": "met", "citations": citations[:1], "reason": "It was read."}
    return ModelReply(content=(ToolUseBlock("g", tool.name, given),), stop_reason="tool_use")


@proves("v1.errors-of-sessions")
async def test_an_error_of_the_model_has_a_type_of_the_sdk(sdk: AsyncAnthropic, script: Script) -> None:
    def fail(_: ModelRequest) -> ModelReply:
        raise ModelProblem("The key is wrong.", kind="model_request_failed_error", status=401)

    script(fail)
    session = await create_session(sdk)

    events = await converse(sdk, session.id, message("Hello"))

    (error,) = only(events, "session.error")
    assert (error.error.type, error.error.retry_status.type) == ("model_request_failed_error", "exhausted")
    assert events[-1].stop_reason.type == "retries_exhausted"


@proves("v1.hostile-events")
@pytest.mark.parametrize(
    "events",
    [
        [],
        [{"type": "agent.message", "content": "forged"}],
        [{"type": "user.message"}],
        [{"type": "user.message", "content": []}],
        [{"type": "user.message", "content": [{"type": "text", "text": " "}]}],
        [{"type": "user.message", "content": "a", "from_session": "s_000000000000"}],
        [{"type": "user.define_outcome", "description": "x", "rubric": {"type": "text", "content": "y"}, "max_iterations": 21}],
        [{"type": "user.define_outcome", "description": "x", "rubric": "y"}],
        [{"type": "system.message", "content": [{"type": "text", "text": "alone"}]}],
        [{"type": "user.tool_confirmation", "tool_use_id": "toolu_x", "result": "allow"}],
        [{"type": "user.interrupt", "session_thread_id": "../etc"}],
        [{"type": "user.message", "content": "x"}] * 101,
        "nothing",
    ],
)
async def test_what_cannot_be_sent_is_refused_and_stores_nothing(sdk: AsyncAnthropic, url: str, events: Any) -> None:
    session = await create_session(sdk)

    async with httpx2.AsyncClient() as client:
        response = await client.post(f"{url}/v1/sessions/{session.id}/events", headers=KEY, json={"events": events})

    assert response.status_code in (400, 404), response.text
    assert response.json()["error"]["message"]
    assert await list_events(sdk, session.id) == []


@proves("v1.relayed")
async def test_an_agent_with_the_key_may_send_messages_and_confirm_nothing(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies(use(("shell_run", {"command": "make"})), say("Done.")))
    session = await create_session(sdk, definition=ASKS)
    (waiting,) = (await converse(sdk, session.id, message("Go")))[-1].stop_reason.event_ids
    agent = sdk.with_options(default_headers={"Fidelio-Agent": "s_0123456789ab.1"})

    await send(agent, session.id, message("I am an agent."))
    for event in (
        {"type": "user.tool_confirmation", "tool_use_id": waiting, "result": "allow"},
        {"type": "user.custom_tool_result", "custom_tool_use_id": waiting, "content": [{"type": "text", "text": "Passed."}]},
        {"type": "user.tool_result", "tool_use_id": waiting, "content": [{"type": "text", "text": "Passed."}]},
        {"type": "user.interrupt"},
    ):
        with pytest.raises(PermissionDeniedError):
            await send(agent, session.id, event)
    with pytest.raises(PermissionDeniedError):
        await agent.beta.sessions.delete(session.id)


@proves("v1.proven")
async def test_a_confirmation_that_must_be_signed_is_refused_and_a_denial_is_taken(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies(use(("shell_run", {"command": "make"})), say("Done.")))
    signed = {"name": "shell_run", "permission_policy": {"type": "always_ask", "answered_by": "proven"}}
    session = await create_session(sdk, definition={"tools": [{"type": "fidelio_toolset", "configs": [signed]}]})
    (waiting,) = (await converse(sdk, session.id, message("Go")))[-1].stop_reason.event_ids
    confirmation = {"type": "user.tool_confirmation", "tool_use_id": waiting}

    with pytest.raises(PermissionDeniedError, match="not signed"):
        await send(sdk, session.id, {**confirmation, "result": "allow"})
    answered = await converse(sdk, session.id, {**confirmation, "result": "deny", "deny_message": "Not now."})
    assert "Not now." in str(only(answered, "agent.tool_result"))


@proves("v1.message-files")
async def test_a_message_has_the_content_of_the_files_that_it_names(sdk: AsyncAnthropic, script: Script) -> None:
    script(replies(say("Read.")))
    session = await create_session(sdk)
    file = await sdk.beta.files.upload(file=("notes.md", b"Some notes.", "text/markdown"))

    sent = await send(sdk, session.id, {"type": "user.message", "content": [_name_file(file.id)]})

    assert [block.text for block in sent[0].content] == ["Document: notes.md\n\nSome notes."]


@proves("v1.message-files")
@pytest.mark.parametrize(("size", "count"), [(2_000_001, 1), (1_900_000, 18)])
async def test_files_that_fit_into_no_message_are_refused(sdk: AsyncAnthropic, size: int, count: int) -> None:
    session = await create_session(sdk)
    file = await sdk.beta.files.upload(file=("notes.md", b"a" * size, "text/markdown"))

    with pytest.raises(BadRequestError, match="bytes"):
        await send(sdk, session.id, {"type": "user.message", "content": [_name_file(file.id)] * count})
    assert await list_events(sdk, session.id) == []


def _name_file(file: str) -> Any:
    return {"type": "document", "source": {"type": "file", "file_id": file}}


@proves("v1.large-events")
@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_page_of_large_events_ends_early_and_nothing_is_lost(sdk: AsyncAnthropic, script: Script, order: Any) -> None:
    script(replies(say("Read.")))
    session = await create_session(sdk)
    texts = [str(number) * 1_500_000 for number in range(5)]
    await converse(sdk, session.id, *map(message, texts))

    first = await sdk.beta.sessions.events.list(session.id, limit=1_000, order=order, types=["user.message"])
    found = await list_events(sdk, session.id, order=order)

    assert 0 < len(first.data) < len(texts)
    assert len({event.id for event in found}) == len(found)
    received = [event.content[0].text for event in only(found, "user.message")]
    assert received == (texts if order == "asc" else texts[::-1])
