"""Input that no honest client sends: every piece of it gets a bounded answer, and the server goes on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fidelio.surfaces.mcp.stdio.loop import MAX_MESSAGE
from fidelio.surfaces.mcp.stdio.streams import LineSplitter
from tests.support import proves
from tests.surfaces.mcp.wire import Wire, call, request, text_of, wired


@proves("mcp.hostile", "mcp.errors")
@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"garbage", -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"', -32700),
        (b"\xff\xfe\x00", -32700),
        (b'{"a": "\xff"}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', -32700),
        (b"[" * 100_000, -32700),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, -32700),
        (b"NaN", -32700),
        (b"null", -32600),
        (b"7", -32600),
        (b'"text"', -32600),
        (b"{}", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"notifications/initialized"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"no/such/method"}', -32601),
    ],
)
async def test_a_broken_message_is_answered_with_an_error_and_the_next_one_is_served(line: bytes, code: int) -> None:
    async with wired() as wire:
        wire.write(line + b"\n")
        reply = await wire.receive()
        assert reply["error"]["code"] == code

        assert (await wire.ask(request(2, "ping")))["result"] == {}


@proves("mcp.hostile", "mcp.errors")
@pytest.mark.parametrize("value", [b'"\\ud800"', b"1e400", b"7" * 4000, b"-" + b"7" * 50_000])
async def test_whoever_sends_a_value_that_is_not_taken_gets_a_reply_to_its_request(value: bytes) -> None:
    async with wired() as wire:
        wire.write(b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":' + value + b"}}\n")
        reply = await wire.receive()

        assert reply["id"] == 7


@proves("mcp.hostile")
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}',
        b'{"jsonrpc":"2.0","method":"notifications/unheard/of","params":7}',
        b'{"jsonrpc":"2.0","method":7}',
        b'{"jsonrpc":"2.0","id":"x","result":{}}',
        b'{"jsonrpc":"2.0","id":[],"error":7}',
        b'{"jsonrpc":"2.0"}',
        b"   ",
    ],
)
async def test_what_wants_no_reply_gets_none_however_broken_it_is(line: bytes) -> None:
    async with wired() as wire:
        wire.write(line + b"\n")

        assert (await wire.ask(request(2, "ping")))["id"] == 2


@proves("mcp.hostile")
async def test_a_very_long_text_goes_through_unchanged() -> None:
    text = "ä" * 1_000_000
    async with wired() as wire:
        reply = await wire.ask(call("n" * 1000, "echo", {"text": text}))

        assert text_of(reply) == text


@proves("mcp.hostile", "mcp.arguments")
async def test_a_deeply_nested_argument_is_refused_in_a_sentence() -> None:
    nested = json.loads("[" * 500 + "]" * 500)
    async with wired() as wire:
        assert text_of(await wire.ask(call(1, "echo", {"text": nested}))).startswith("Invalid arguments for tool echo: `text`")


@proves("mcp.bounded")
async def test_a_message_that_is_too_long_is_refused_as_a_whole() -> None:
    async with wired() as wire:
        wire.write(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"long":"' + b"x" * MAX_MESSAGE + b'"}}\n')
        refused = await wire.receive()

        assert (refused["id"], refused["error"]["code"]) == (None, -32600)
        assert (await wire.ask(request(2, "ping")))["id"] == 2


@proves("mcp.bounded")
def test_lines_are_cut_the_same_way_however_the_bytes_arrive() -> None:
    stream = b"one\n\ntwo two\n" + b"x" * 50 + b"\nthree\n" + b"y" * 51 + b"\nrest"
    wanted = [b"one", b"", b"two two", b"x" * 50, b"three", None]

    for size in (1, 2, 3, 7, 49, 50, 51, len(stream)):
        lines = LineSplitter(50)
        chunks = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert [line for chunk in chunks for line in lines.feed(chunk)] == wanted


def memory_of(wire: Wire) -> int:
    status = Path(f"/proc/{wire.process.pid}/status").read_text("ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@proves("mcp.backpressure")
async def test_a_client_that_does_not_read_cannot_fill_our_memory() -> None:
    async with wired() as wire:
        await wire.ask(request(0, "ping"))
        before = memory_of(wire)
        reading = wire.process._transport.get_pipe_transport(1)  # type: ignore[attr-defined]  # to stop our own reading
        reading.pause_reading()
        line = json.dumps(call(1, "echo", {"text": "x" * 1000, "times": 100})).encode() + b"\n"
        for number in range(2000):  # two hundred megabytes of replies, if they were all made
            wire.write(line.replace(b'"id": 1', b'"id": %d' % number))
        stuck = await _is_stuck(wire)

        assert stuck
        assert memory_of(wire) - before < 60_000
        reading.resume_reading()
        replies = [await wire.receive() for _ in range(2000)]
        assert len({reply["id"] for reply in replies}) == 2000


async def _is_stuck(wire: Wire) -> bool:
    """True once the server has stopped reading: then what we write stays with us."""
    assert wire.process.stdin is not None
    try:
        async with asyncio.timeout(1.0):
            await wire.process.stdin.drain()
    except TimeoutError:
        return True
    return False
