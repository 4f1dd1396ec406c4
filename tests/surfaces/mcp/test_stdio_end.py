"""How a server ends, and from what kinds of input it reads."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import proves
from tests.surfaces.mcp.wire import COMMAND, SECONDS, call, initialize, request, text_of, wired


def lines(*messages: object) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


@proves("mcp.clean-end")
async def test_calls_in_flight_are_answered_after_the_client_has_closed_its_end() -> None:
    async with wired() as wire:
        wire.send(call(1, "later", {"seconds": 0.2}))
        code, rest = await wire.end()

    assert code == 0
    assert text_of(json.loads(rest)) == "late"


@proves("mcp.clean-end")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_calls_in_flight_finish(number: signal.Signals) -> None:
    async with wired() as wire:
        wire.send(call(1, "later", {"seconds": 0.3}))
        await wire.ask(call(2, "tally"))
        wire.process.send_signal(number)
        reply = await wire.receive()
        async with asyncio.timeout(SECONDS):
            code = await wire.process.wait()

    assert (text_of(reply), code) == ("late", 128 + number)


@proves("mcp.clean-end")
async def test_a_call_that_never_ends_does_not_keep_the_server_alive() -> None:
    async with wired() as wire:
        wire.send(call(1, "hang"))
        code, rest = await wire.end()

    assert (code, rest) == (0, b"")


@proves("mcp.clean-end")
async def test_a_question_to_a_client_that_has_gone_is_not_waited_for() -> None:
    async with wired() as wire:
        await wire.ask(initialize(elicitation={}))
        await wire.ask(call(1, "choose"))
        code, rest = await wire.end()

    remark = json.loads(rest)["result"]["content"][1]["text"]
    assert (code, remark) == (0, "The connection ended before the person answered. No answer was recorded.")


@proves("mcp.clean-end", "mcp.hostile")
async def test_an_unfinished_message_at_the_end_is_dropped() -> None:
    async with wired() as wire:
        wire.write(lines(request(1, "ping")) + b'{"jsonrpc":"2.0","id":2,"method":"pi')
        code, rest = await wire.end()

    assert (code, json.loads(rest)["id"]) == (0, 1)


@proves("mcp.clean-end")
def test_a_client_that_stops_reading_cannot_keep_us_from_being_stopped() -> None:
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(lines(request(0, "ping"), call(1, "echo", {"text": "x" * 1_000_000})))
        server.stdin.flush()
        server.stdout.readline()
        server.send_signal(signal.SIGTERM)

        assert server.wait(timeout=SECONDS) == 143


@proves("mcp.clean-end")
async def test_a_client_that_closes_our_output_ends_the_server() -> None:
    async with wired() as wire:
        await wire.ask(request(0, "ping"))
        wire.process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]  # as a client that died
        ended = asyncio.create_task(wire.process.wait())
        async with asyncio.timeout(SECONDS):
            # The first reply may still fit into the pipe, before it is closed; a later one does not.
            while not ended.done():
                wire.send(request(1, "ping"))
                await asyncio.wait([ended], timeout=0.05)
        assert await ended == 0


@proves("mcp.any-input")
def test_messages_may_come_from_a_file(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(lines(*(request(number, "ping") for number in range(10_000)), call("last", "echo", {"text": "end"})))

    with script.open("rb") as source:
        done = subprocess.run(COMMAND, stdin=source, capture_output=True, check=True, timeout=SECONDS)

    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(replies) == 10_001
    assert text_of(replies[-1]) == "end"


@proves("mcp.any-input")
def test_replies_may_go_to_a_file(tmp_path: Path) -> None:
    with (tmp_path / "replies").open("wb") as sink:
        subprocess.run(COMMAND, input=lines(request(1, "ping")), stdout=sink, check=True, timeout=SECONDS)

    assert json.loads((tmp_path / "replies").read_bytes())["id"] == 1


@proves("mcp.any-input")
def test_one_socket_may_be_input_and_output() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(SECONDS)
        server = subprocess.Popen(COMMAND, stdin=theirs.fileno(), stdout=theirs.fileno())
        theirs.close()
        ours.sendall(lines(call(1, "echo", {"text": "x" * 1000, "times": 1000})))
        ours.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: ours.recv(65536), b""))
        assert server.wait(timeout=SECONDS) == 0

    assert len(text_of(json.loads(received))) == 1_000_000


@proves("mcp.any-input")
@pytest.mark.parametrize("start", ["< /dev/null", "<&-", "<&- >&-", "<&- >&- 2>&-"])
def test_without_any_input_the_server_ends_at_once(start: str, tmp_path: Path) -> None:
    command = f'exec "{sys.executable}" -m fidelio mcp {start}'
    environ = {**os.environ, "FIDELIO_HOME": str(tmp_path)}

    done = subprocess.run(["sh", "-c", command], env=environ, capture_output=True, timeout=SECONDS, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
