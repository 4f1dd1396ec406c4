"""The loop over standard input and output, in a process of its own: calls in flight, cancellation, questions, progress."""

from __future__ import annotations

import json
import os

import pytest

from tests.support import proves
from tests.surfaces.mcp.example import REQUEST
from tests.surfaces.mcp.wire import ASKABLE, call, initialize, notification, request, text_of, wired


@proves("mcp.in-flight")
async def test_a_quick_call_overtakes_a_slow_one() -> None:
    async with wired() as wire:
        wire.send(initialize(), call(1, "later", {"seconds": 0.3}), call(2, "echo", {"text": "quick"}))

        assert [(await wire.receive())["id"] for _ in range(3)] == ["init", 2, 1]


@proves("mcp.in-flight")
async def test_the_same_id_twice_in_flight_does_not_confuse_the_first() -> None:
    async with wired() as wire:
        wire.send(call(1, "later", {"seconds": 0.2}), call(1, "echo", {"text": "second"}), call("1", "echo", {"text": "other"}))
        refused, other, first = [await wire.receive() for _ in range(3)]

        assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        assert (other["id"], text_of(other)) == ("1", "other")
        assert (first["id"], text_of(first)) == (1, "late")
        assert text_of(await wire.ask(call(1, "echo", {"text": "again"}))) == "again"


@proves("mcp.cancel")
async def test_a_cancelled_call_is_stopped_and_gets_no_reply() -> None:
    async with wired() as wire:
        wire.send(call(1, "hang"), notification("notifications/cancelled", requestId=99, reason="unknown"))
        assert json.loads(text_of(await wire.ask(call(2, "tally")))) == {"started": 1, "cancelled": 0}

        wire.send(notification("notifications/cancelled", requestId=1))
        reply = await wire.ask(call(3, "tally"))

        assert (reply["id"], json.loads(text_of(reply))) == (3, {"started": 1, "cancelled": 1})


@proves("mcp.batch")
async def test_the_replies_to_a_batch_come_together() -> None:
    batch = [
        request(1, "ping"),
        notification("notifications/initialized"),
        call(2, "later", {"seconds": 0.05}),
        "rubbish",
        call(3, "echo", {"text": "x"}),
    ]
    async with wired() as wire:
        replies = await wire.ask(batch)

        assert sorted(str(reply["id"]) for reply in replies) == ["1", "2", "3", "None"]
        assert (await wire.ask([]))[0]["error"]["code"] == -32600
        wire.send([notification("notifications/initialized")])
        assert (await wire.ask(request(4, "ping")))["id"] == 4


@proves("mcp.progress")
async def test_progress_comes_before_the_reply() -> None:
    async with wired() as wire:
        wire.send(call(1, "count", {"steps": 2}, _meta={"progressToken": "p"}))
        told = [await wire.receive() for _ in range(3)]

        assert [message.get("method") for message in told] == ["notifications/progress", "notifications/progress", None]
        assert told[1]["params"] == {"progressToken": "p", "progress": 2.0, "total": 2.0, "message": "step 2"}


@proves("mcp.elicitation")
async def test_a_question_goes_to_the_client_and_its_answer_comes_back() -> None:
    async with wired() as wire:
        await wire.ask(initialize(elicitation={}))
        question = await wire.ask(call(1, "choose"))
        assert (question["method"], question["params"]["mode"]) == ("elicitation/create", "form")

        answer = {"action": "accept", "content": {"answer": "cool"}}
        wire.send({"jsonrpc": "2.0", "id": "never asked", "result": answer})
        reply = await wire.ask({"jsonrpc": "2.0", "id": question["id"], "result": answer})

        assert (reply["id"], text_of(reply)) == (1, '["cool", "user of wire"]')


@proves("mcp.elicitation", "mcp.declined")
async def test_a_client_that_fails_to_ask_leaves_the_question_waiting() -> None:
    async with wired() as wire:
        await wire.ask(initialize(elicitation={}))
        question = await wire.ask(call(1, "choose"))
        failed = {"jsonrpc": "2.0", "id": question["id"], "error": {"code": -32601, "message": "no"}}
        reply = await wire.ask(failed)

        assert f"fidelio answer {REQUEST}" in text_of(reply)
        assert reply["result"]["content"][1]["text"] == "The client could not ask its user. No answer was recorded."


@proves("mcp.cancel", "mcp.elicitation")
async def test_a_cancelled_call_takes_its_question_back() -> None:
    async with wired() as wire:
        await wire.ask(initialize(elicitation={}))
        question = await wire.ask(call(1, "choose"))
        taken_back = await wire.ask(notification("notifications/cancelled", requestId=1))

        assert (taken_back["method"], taken_back["params"]["requestId"]) == ("notifications/cancelled", question["id"])


@proves("mcp.input-required")
async def test_a_question_without_handshake_needs_no_way_back() -> None:
    async with wired() as wire:
        asked = (await wire.ask(call(1, "choose", _meta=ASKABLE)))["result"]
        answer = {"person": {"action": "accept", "content": {"answer": "warm"}}}
        retried = call(2, "choose", _meta=ASKABLE, requestState=asked["requestState"], inputResponses=answer)

        assert asked["resultType"] == "input_required"
        assert text_of(await wire.ask(retried)) == '["warm", "user of an unnamed client"]'


@proves("mcp.stdout")
async def test_whatever_is_printed_stays_out_of_the_protocol() -> None:
    # Python keeps back what is printed to a pipe, unless the environment forbids it.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    async with wired(**buffered) as wire:
        reply = await wire.ask(call(1, "chatter"))
        code, rest = await wire.end()

    # The tool and its child found nothing to read, either: the client's messages are not theirs.
    assert text_of(reply) == "'' 0"
    assert (code, rest) == (0, b"")


@proves("mcp.errors")
async def test_a_reply_that_is_no_json_is_an_error_and_not_silence() -> None:
    async with wired() as wire:
        reply = await wire.ask(call(1, "strange"))

        assert (reply["id"], reply["error"]["code"]) == (1, -32603)


@proves("mcp.in-flight")
@pytest.mark.parametrize("separator", [b"\n", b"\r\n", b"\n\n \n"])
async def test_many_calls_in_one_write_are_all_answered(separator: bytes) -> None:
    async with wired() as wire:
        lines = [json.dumps(call(number, "echo", {"text": "é😀"})).encode() for number in range(500)]
        wire.write(separator.join(lines) + b"\n")
        replies = [await wire.receive() for _ in lines]

        assert sorted(reply["id"] for reply in replies) == list(range(500))
        assert {text_of(reply) for reply in replies} == {"é😀"}
