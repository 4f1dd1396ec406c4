"""The socket of the host: who may connect, one host per home, and clients that send what is not allowed."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from fidelio.locks import FileLock
from fidelio.sandbox.host.client import SOCKET_NAME, HostLink, open_link
from fidelio.sandbox.host.operations import Attach, OperationReply
from fidelio.sandbox.inside.frames import HEADER, MAX_PAYLOAD
from fidelio.sandbox.model import SandboxSpec
from tests.sandbox.host.fakes import HostHarness, connect_socket
from tests.support import proves
from tests.support.users import as_other_user, needs_root, open_to_all


async def reply_to(link: HostLink, payload: bytes) -> OperationReply:
    async with asyncio.timeout(10):
        return msgspec.json.decode(await link.send(payload), type=OperationReply)


async def send_raw(harness: HostHarness, data: bytes) -> bytes:
    """Everything that the host answers until it closes the connection."""
    reader, writer = await connect_socket(harness.home.path / SOCKET_NAME)
    try:
        writer.write(data)
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@proves("sandbox.socket-private")
async def test_only_this_user_may_open_the_socket(harness: HostHarness) -> None:
    async with harness.serving():
        status = (harness.home.path / SOCKET_NAME).stat()

        assert stat.S_IMODE(status.st_mode) == 0o600
        assert status.st_uid == os.geteuid()
    assert not (harness.home.path / SOCKET_NAME).exists()


@needs_root
@proves("sandbox.socket-private")
async def test_another_user_is_refused_even_if_the_file_lets_him_connect(open_directory: Path) -> None:
    harness = HostHarness(open_directory / "home")
    program = (
        "connection = socket.socket(socket.AF_UNIX)\n"
        "connection.settimeout(20)\n"
        "os.chdir(os.path.dirname(sys.argv[1]))\n"
        "connection.connect(os.path.basename(sys.argv[1]))\n"
        "try:\n"
        "    connection.sendall(bytes.fromhex(sys.argv[2]))\n"
        "    print(connection.recv(1000))\n"
        "except ConnectionError:\n"
        "    print(b'')\n"
    )
    request = b'{"op": "level"}'
    frame = HEADER.pack(len(request), 1) + request
    async with harness.serving():
        path = harness.home.path / SOCKET_NAME
        open_to_all(harness.home.path)
        path.chmod(0o666)
        done = await as_other_user(program, str(path), frame.hex())

        assert (done.stdout.strip(), done.stderr) == ("b''", "")
        assert (await harness.client().level()).level == "bubblewrap"


@proves("sandbox.one-host")
async def test_a_socket_that_a_killed_host_has_left_is_replaced(harness: HostHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    path = harness.home.path / SOCKET_NAME
    with socket.socket(socket.AF_UNIX) as left:
        monkeypatch.chdir(harness.home.path)
        left.bind(path.name)
    (harness.home.path / f".{SOCKET_NAME}-0123").touch()

    async with harness.serving():
        assert (await harness.client().level()).level == "bubblewrap"
        assert [entry.name for entry in harness.home.path.glob(f".{SOCKET_NAME}*")] == []


@proves("sandbox.one-host")
async def test_a_home_has_one_host_and_the_next_one_takes_over(harness: HostHarness) -> None:
    async with harness.serving() as first:
        async with harness.serving() as second:
            assert first.is_hosting
            assert not second.is_hosting
        assert (await harness.client().level()).level == "bubblewrap"
    async with harness.serving() as third:
        assert third.is_hosting
    lock = FileLock(harness.home.path / "sandboxes.lock")
    assert lock.acquire()
    lock.release()


@proves("sandbox.socket-private")
async def test_a_home_with_a_path_longer_than_an_address_can_be_used(tmp_path: Path) -> None:
    harness = HostHarness(tmp_path / ("long-name-" * 12) / "home")
    async with harness.serving():
        result = await harness.client().call(harness.spec(), "stat", {"path": "."})

    assert result.output == {"echo": {"path": "."}}


@proves("sandbox.hostile-frames")
@pytest.mark.parametrize(
    "data",
    [
        HEADER.pack(MAX_PAYLOAD + 1, 1),
        HEADER.pack(0xFFFFFFFF, 1) + b"x" * 1000,
        HEADER.pack(2 << 20, 1) + b" " * (2 << 20),
        HEADER.pack(2, 0) + b"{}",
        # A second frame while the first operation is carried out.
        (HEADER.pack(15, 1) + b'{"op": "level"}') * 2,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1000,
    ],
    ids=["too-large", "largest", "large-operation", "notice", "two-at-once", "http"],
)
async def test_hostile_frames_of_a_client_end_only_its_own_connection(harness: HostHarness, data: bytes) -> None:
    async with harness.serving():
        client, spec = harness.client(), harness.spec()
        await client.start(spec)

        assert await send_raw(harness, data) == b""

        assert (await client.call(spec, "stat", {"path": "a"})).ok
        assert len(harness.launcher.started) == 1


@proves("sandbox.hostile-frames")
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"garbage",
        b"{}",
        b'{"op": "shell"}',
        b'{"op": "attach"}',
        b'{"op": "attach", "spec": {"session": 3}}',
        b"[" * 900_000,
    ],
    ids=["empty", "garbage", "no-op", "wrong-op", "no-spec", "wrong-spec", "nested"],
)
async def test_an_operation_that_is_not_valid_is_answered_with_an_error(harness: HostHarness, payload: bytes) -> None:
    async with harness.serving():
        link = await open_link(harness.home)
        reply = await reply_to(link, payload)
        again = await reply_to(link, b'{"op": "level"}')
        await link.close()

    assert reply.error is not None
    assert reply.error.code == "sandbox.unavailable"
    assert again.error is None


@proves("sandbox.hostile-frames")
async def test_garbage_after_attaching_is_forwarded_and_hurts_nobody(harness: HostHarness) -> None:
    async with harness.serving():
        client, spec, other = harness.client(), harness.spec(), harness.spec("s_2")
        await client.start(other)
        link = await open_link(harness.home)
        assert (await reply_to(link, msgspec.json.encode(Attach(spec)))).error is None

        async with asyncio.timeout(10):
            reply = await link.send(b"\xff\x00 garbage")
        await link.close()

        assert b"bad_request" in reply
        assert (await client.call(other, "stat", {})).ok


@proves("sandbox.hostile-frames")
async def test_a_client_that_does_not_read_its_replies_loses_its_connection(harness: HostHarness) -> None:
    async with harness.serving():
        spec, size, count = harness.spec(), 1 << 20, 200
        await harness.client().start(spec)
        harness.launcher.of("s_1").raw_reply = b'{"ok": true, "output": {"text": "' + b"x" * size + b'"}}'
        request = b'{"action": "read_text", "arguments": {}}'
        reader, writer = await connect_socket(harness.home.path / SOCKET_NAME, limit=1)
        attach = msgspec.json.encode(Attach(spec))
        writer.write(HEADER.pack(len(attach), 1) + attach)
        await reader.readexactly(HEADER.size)
        for number in range(count):
            writer.write(HEADER.pack(len(request), number + 2) + request)

        assert (await harness.client().call(spec, "stat", {})).ok

        received = 0
        async with asyncio.timeout(20):
            with suppress(ConnectionError):
                while data := await reader.read(1 << 20):
                    received += len(data)
        assert received < 100 * size
        writer.transport.abort()


@proves("sandbox.hostile-frames")
async def test_a_client_with_many_requests_waits_and_gets_all_replies(
    harness: HostHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fidelio.sandbox.host.server._MAX_PENDING", 4)
    monkeypatch.setattr("fidelio.sandbox.host.server._MAX_PENDING_BYTES", 500_000)
    async with harness.serving():
        client, spec, text = harness.client(), harness.spec(), "x" * 100_000
        results = await asyncio.gather(*(client.call(spec, "write_text", {"n": n, "text": text}) for n in range(50)))

    assert [result.output["echo"]["n"] for result in results] == list(range(50))


@proves("sandbox.host-directory")
@pytest.mark.parametrize(
    "directory", ["/", "/tmp", "", "HOME", "HOME/sandboxes", "HOME/sandboxes/../keys", "HOME/sandboxes/a/b"]
)
async def test_a_directory_outside_of_the_home_is_refused(harness: HostHarness, directory: str) -> None:
    spec = SandboxSpec("s_1", directory.replace("HOME", str(harness.home.path)), ())
    async with harness.serving():
        link = await open_link(harness.home)
        reply = await reply_to(link, msgspec.json.encode(Attach(spec)))
        await link.close()

    assert reply.error is not None
    assert "is not the directory of a sandbox of this home" in reply.error.sentence
    assert harness.launcher.started == []
