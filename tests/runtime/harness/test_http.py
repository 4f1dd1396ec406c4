"""Wakes against real HTTP: every fault of a vendor's API, on the API of each vendor."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fidelio.runtime import events as e
from tests.providers.servers import (
    BAD_REQUEST,
    FAILED,
    OVERLOADED,
    RATE_LIMITED,
    UNAUTHORIZED,
    ApiReply,
    Cut,
    Hang,
    Json,
    Refuse,
    ScriptedCall,
)
from tests.runtime.harness.http import HttpRuntime, Wire, every_wire, open_http_runtime
from tests.runtime.harness.support import make_sandboxes
from tests.support import proves

SECONDS = 10
FIRST_REQUEST = 12_000
# It would take longer than the test waits.
SLOW = ApiReply("word " * 1_000, delay=0.05)
DONE = 'Done.\n<fidelio-loop>{"outcome":"sleep","summary":"All done."}</fidelio-loop>'


async def talk(http: HttpRuntime, session: str, text: str) -> None:
    await http.runtime.tell(session, text)
    async with asyncio.timeout(SECONDS):
        await http.runtime.work()


async def list_errors(http: HttpRuntime, session: str) -> list[Json]:
    return [event.body["error"] for event in await http.runtime.events(session, e.SESSION_ERROR)]


async def read_reply(http: HttpRuntime, session: str) -> str:
    messages = await http.runtime.events(session, e.AGENT_MESSAGE)
    return str(messages[-1].body["content"][0]["text"])


@proves("runtime.http-faults")
@every_wire
@pytest.mark.parametrize(
    ("step", "pause", "kind"),
    [
        (RATE_LIMITED, 3.0, "model_rate_limited_error"),
        (OVERLOADED, 0.5, "model_overloaded_error"),
        (FAILED, 0.5, "model_request_failed_error"),
        (Refuse(503), 0.5, "model_request_failed_error"),
        (Cut(ApiReply("Half of it"), 150), 0.5, "model_request_failed_error"),
    ],
    ids=["429", "529", "500", "503", "cut"],
)
async def test_a_passing_failure_is_retried_and_on_record(
    tmp_path: Path, wire: Wire, step: Refuse | Cut, pause: float, kind: str
) -> None:
    async with open_http_runtime(tmp_path, wire, step, step, ApiReply(DONE)) as http:
        session = await http.begin()
        await talk(http, session, "Hello.")

        assert http.runtime.pauses == pytest.approx([pause, pause if pause == 3.0 else 2 * pause])
        errors = await list_errors(http, session)
        assert [(error["type"], error["retry_status"]["type"]) for error in errors] == [(kind, "retrying")] * 2
        assert await read_reply(http, session) == "Done."
        assert [wire.conversation(body) for body in http.bodies[1:]] == [wire.conversation(http.bodies[0])] * 2


@proves("runtime.http-faults")
@every_wire
@pytest.mark.parametrize("step", [BAD_REQUEST, UNAUTHORIZED], ids=["400", "401"])
async def test_a_permanent_failure_is_made_once_and_the_next_message_works(tmp_path: Path, wire: Wire, step: Refuse) -> None:
    async with open_http_runtime(tmp_path, wire, step, ApiReply(DONE)) as http:
        session = await http.begin()
        await talk(http, session, "Hello.")
        (error,) = await list_errors(http, session)

        assert len(http.bodies) == 1
        assert (error["type"], error["retry_status"]["type"]) == ("model_request_failed_error", "terminal")
        assert error["remedy"]
        record = await http.runtime.record(session)
        assert (record.status, record.wakes.stop_reason) == ("idle", "retries_exhausted")
        await talk(http, session, "Again.")
        assert await read_reply(http, session) == "Done."


@proves("runtime.http-faults")
@every_wire
async def test_a_server_that_stays_overloaded_ends_after_eight_attempts(tmp_path: Path, wire: Wire) -> None:
    async with open_http_runtime(tmp_path, wire, *[OVERLOADED] * 8, ApiReply(DONE)) as http:
        session = await http.begin()
        await talk(http, session, "Hello.")

        assert len(http.bodies) == 8
        assert (await http.runtime.record(session)).wakes.stop_reason == "retries_exhausted"
        errors = await list_errors(http, session)
        assert [error["retry_status"]["type"] for error in errors] == ["retrying"] * 7 + ["exhausted"]


@proves("runtime.http-faults")
@every_wire
async def test_a_reply_that_is_cut_off_before_a_call_is_complete_has_no_effect(tmp_path: Path, wire: Wire) -> None:
    sandboxes = make_sandboxes()
    call = ScriptedCall("write", {"path": "a.txt", "content": "A"})
    whole = len(b"".join(wire.api.server(()).encode_events(ApiReply("I write.", (call,)))))
    steps = [Cut(ApiReply("I write.", (call,)), whole * part // 10) for part in range(1, 8)]
    async with open_http_runtime(tmp_path, wire, *steps, ApiReply(DONE), sandboxes=sandboxes) as http:
        session = await http.begin()
        await talk(http, session, "Write.")

        assert len(http.bodies) == 8
        assert sandboxes.actions == []
        assert await http.runtime.events(session, e.TOOL_USE) == ()
        assert len(await http.runtime.events(session, e.AGENT_MESSAGE)) == 1


@proves("runtime.http-interrupt")
@every_wire
@pytest.mark.parametrize("step", [SLOW, Hang(), Hang(after=3)], ids=["slow", "silent", "stalled"])
async def test_an_interrupt_closes_the_connection_of_a_slow_model(tmp_path: Path, wire: Wire, step: ApiReply | Hang) -> None:
    async with open_http_runtime(tmp_path, wire, step, ApiReply(DONE)) as http:
        runtime = http.runtime
        session = await http.begin()
        await runtime.tell(session, "Think.")
        working = asyncio.create_task(runtime.work())
        async with asyncio.timeout(SECONDS):
            await http.server.reached.wait()
            await runtime.send(session, {"type": "user.interrupt"}, {"type": "user.message", "content": "Do this."})
            await working
            if isinstance(step, Hang):
                await http.server.closed.wait()

        assert await read_reply(http, session) == "Done."
        assert len(await runtime.events(session, e.AGENT_MESSAGE)) == 1
        assert (await runtime.record(session)).status == "idle"


@proves("runtime.http-task")
@every_wire
async def test_a_whole_task_with_tools_a_person_and_a_directive(tmp_path: Path, wire: Wire) -> None:
    sandboxes = make_sandboxes()
    read, write, run = (
        ScriptedCall("read", {"path": "a.txt"}, "call_1"),
        ScriptedCall("write", {"path": "b.txt", "content": "B"}, "call_2"),
        ScriptedCall("shell_run", {"command": "make"}, "call_3"),
    )
    steps = (ApiReply("I look.", (read, write)), ApiReply("Now I build.", (run,), thinking="Is it safe?"), ApiReply(DONE))
    async with open_http_runtime(tmp_path, wire, *steps, sandboxes=sandboxes) as http:
        runtime = http.runtime
        session = await http.begin()
        await talk(http, session, "Read, write and build.")
        (call,) = (await runtime.record(session)).wakes.blocking
        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "allow"})
        await runtime.work()

        assert sorted(sandboxes.actions) == ["read_text", "run_shell", "write_text"]
        assert [len(wire.results(body)) for body in http.bodies] == [0, 2, 3]
        record = await runtime.record(session)
        assert (record.wakes.summary, record.wakes.stop_reason) == ("All done.", "end_turn")
        # Three requests with 100 tokens of input, 40 of which were cached, and 7 of output.
        usage = record.wakes.usage
        assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens, usage.requests) == (180, 120, 21, 3)


@proves("runtime.http-task")
@every_wire
async def test_a_malformed_call_is_told_to_the_model_and_has_no_effect(tmp_path: Path, wire: Wire) -> None:
    sandboxes = make_sandboxes()
    broken = ScriptedCall("write", '{"path": "a.txt", "content": ', "call_1")
    wrong = ScriptedCall("write", {"path": 7}, "call_2")
    unknown = ScriptedCall("fly", {}, "call_3")
    steps = (ApiReply("", (broken, wrong, unknown)), ApiReply(DONE))
    async with open_http_runtime(tmp_path, wire, *steps, sandboxes=sandboxes) as http:
        session = await http.begin()
        await talk(http, session, "Write.")

        results = wire.results(http.bodies[1])
        assert len(results) == 3
        assert "cannot be read" in results[0]
        assert "path" in results[1]
        assert "no tool" in results[2]
        assert sandboxes.actions == []
        assert (await http.runtime.record(session)).status == "idle"


@proves("runtime.http-cache")
@every_wire
async def test_every_request_begins_with_the_one_before_from_wake_to_wake(tmp_path: Path, wire: Wire) -> None:
    write, run = ScriptedCall("write", {"path": "b.txt", "content": "B"}), ScriptedCall("shell_run", {"command": "make"})
    steps = (
        ApiReply("I write.", (write,)),
        ApiReply(DONE),
        ApiReply("I build.", (run,)),
        ApiReply(DONE),
        OVERLOADED,
        ApiReply(DONE),
    )
    async with open_http_runtime(tmp_path, wire, *steps, sandboxes=make_sandboxes()) as http:
        runtime = http.runtime
        session = await http.begin()
        await talk(http, session, "Write.")
        await talk(http, session, "Build.")
        (call,) = (await runtime.record(session)).wakes.blocking
        await runtime.send(session, {"type": "user.tool_confirmation", "tool_use_id": call.id, "result": "deny"})
        await runtime.work()
        await talk(http, session, "Thanks.")

        assert len(http.bodies) == 6
        for before, after in pairwise(http.bodies):
            assert wire.fixed(after) == wire.fixed(before)
            earlier, later = wire.conversation(before), wire.conversation(after)
            assert later[: len(earlier)] == earlier


def list_texts(value: object) -> Iterator[object]:
    """All keys and values of a request's parts, without the syntax around them."""
    if isinstance(value, dict):
        yield from value
        yield from (text for inner in value.values() for text in list_texts(inner))
    elif isinstance(value, list):
        yield from (text for inner in value for text in list_texts(inner))
    else:
        yield value


@proves("runtime.http-cache")
@every_wire
async def test_the_first_request_of_an_empty_agent_is_small(tmp_path: Path, wire: Wire) -> None:
    async with open_http_runtime(tmp_path, wire, ApiReply(DONE)) as http:
        session = await http.begin()
        await talk(http, session, "Hello.")

        (body,) = http.bodies
        texts = [str(text) for text in list_texts([wire.fixed(body), wire.conversation(body)])]
        assert "Hello." in texts
        assert 5_000 < sum(map(len, texts)) <= FIRST_REQUEST


@proves("runtime.http-too-long")
@every_wire
async def test_a_conversation_that_is_too_long_for_the_vendor_is_told_to_the_person(tmp_path: Path, wire: Wire) -> None:
    async with open_http_runtime(tmp_path, wire, wire.api.server.too_long, ApiReply(DONE)) as http:
        session = await http.begin()
        await talk(http, session, "Hello.")
        errors = await list_errors(http, session)

        assert [error["type"] for error in errors] == ["context_too_long_error"]
        assert (await http.runtime.record(session)).wakes.stop_reason == "retries_exhausted"
        await talk(http, session, "Again.")
        assert await read_reply(http, session) == "Done."


@proves("runtime.http-too-long")
@every_wire
async def test_a_conversation_that_is_too_long_is_shortened_if_it_can_be(tmp_path: Path, wire: Wire) -> None:
    steps = (ApiReply("One."), ApiReply("Two."), wire.api.server.too_long, ApiReply("They said one and two."), ApiReply(DONE))
    async with open_http_runtime(tmp_path, wire, *steps) as http:
        session = await http.begin()
        for text in ("First.", "Second.", "Third."):
            await talk(http, session, text)

        assert len(await http.runtime.events(session, e.CONTEXT_COMPACTED)) == 1
        assert await list_errors(http, session) == []
        assert "They said one and two." in str(wire.conversation(http.bodies[-1]))
        assert "Third." in str(wire.conversation(http.bodies[-1]))
        assert await read_reply(http, session) == "Done."


@proves("runtime.http-task")
@every_wire
async def test_a_missing_key_is_an_error_of_the_first_wake_that_names_the_variable(tmp_path: Path, wire: Wire) -> None:
    async with open_http_runtime(tmp_path, wire, ApiReply(DONE)) as http:
        provider, _ = http.runtime.context.ports.models.find(wire.model)
        provider._environment = {}  # type: ignore[attr-defined]  # the key is gone
        session = await http.begin()
        await talk(http, session, "Hello.")
        (error,) = await list_errors(http, session)

        assert (wire.api.key in error["remedy"]) or (wire.api.base in error["remedy"])
        assert http.bodies == []
        assert (await http.runtime.record(session)).wakes.stop_reason == "retries_exhausted"
