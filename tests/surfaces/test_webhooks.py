"""Webhooks of the inbox: signed, retried, and delivered also if the sender is killed."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.app.webhooks import DELIVERED, Webhooks, describe_address, send_webhooks, sign
from fidelio.clock import now_ms
from fidelio.errors import UsageProblem
from fidelio.home import Home
from fidelio.inbox import open_request
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.processes.table import AGENT_MARKER
from fidelio.settings import load_settings
from fidelio.surfaces.cli.inbox import request_json
from tests.support import proves
from tests.support.command_line import run_fidelio
from tests.surfaces.conftest import Fidelio

SECRET = "a secret of the person"
SESSION = "s_000000000001"


class Receiver:
    """A server on loopback that answers with the statuses it is told; None: it never answers."""

    def __init__(self, *statuses: int | None) -> None:
        self._statuses = list(statuses)
        self.deliveries: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()
        self.url = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers["content-length"]))
        status = self._statuses.pop(0) if self._statuses else 204
        self.deliveries.put_nowait((headers, body))
        if status is None:
            await reader.read()
        else:
            location = "Location: /other\r\n" if status == 302 else ""
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n{location}Connection: close\r\n\r\n".encode())
        writer.close()

    async def next(self) -> tuple[dict[str, str], Any]:
        async with asyncio.timeout(50):
            headers, body = await self.deliveries.get()
        timestamp = int(headers["fidelio-signature"].partition("t=")[2].partition(",")[0])
        assert headers["fidelio-signature"] == sign(SECRET, timestamp, body)
        assert abs(timestamp - now_ms() / 1000) < 60
        return headers, json.loads(body)


@asynccontextmanager
async def receiving(*statuses: int | None) -> AsyncIterator[Receiver]:
    receiver = Receiver(*statuses)
    server = await asyncio.start_server(receiver.handle, "127.0.0.1", 0)
    receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        server.close()


async def ask(home: Path, question: str) -> str:
    request = open_request("question", question, question, (), {})
    async with await open_ledger(home / "ledger.db") as ledger:
        await ledger.commit(Change(session=SESSION, events=(NewEvent(type="asked"),), requests=(request,)))
    return request.id


@pytest.fixture
async def prepared(home: Path) -> Path:
    """A home with a session, and a request that was open before."""
    Home(home).ensure()
    async with await open_ledger(home / "ledger.db") as ledger:
        await ledger.commit(Change(session=SESSION, create=NewSession(kind="agent")))
    await ask(home, "An old question?")
    return home


@asynccontextmanager
async def sending(home: Path) -> AsyncIterator[Application]:
    settings = load_settings(environ={"FIDELIO_HOME": str(home)})
    async with Application(settings) as application, send_webhooks(application, request_json):
        yield application


async def list_delivered(home: Path) -> list[str]:
    async with await open_ledger(home / "ledger.db") as ledger:
        return [str(event.body["delivery"]) for event in await ledger.events(types=(DELIVERED,))]


async def until_delivered(home: Path, count: int) -> list[str]:
    async with asyncio.timeout(50), await open_ledger(home / "ledger.db") as ledger:
        position = 0
        while len(found := await list_delivered(home)) < count:
            position = await ledger.wait(after=position, timeout=1.0)
    return found


@proves("webhooks.signed", "webhooks.retried")
async def test_a_new_request_is_sent_signed_and_again_until_it_is_accepted(prepared: Path) -> None:
    async with receiving(500, 302) as receiver:
        webhook = Webhooks(Home(prepared)).add(receiver.url, SECRET, now=now_ms())
        async with sending(prepared):
            request = await ask(prepared, "Which port?")
            sent = [await receiver.next() for _ in range(3)]
            delivered = await until_delivered(prepared, 1)

    assert delivered == [f"{webhook.id}.{request}"]
    assert {headers["fidelio-delivery"] for headers, _ in sent} == {f"{webhook.id}.{request}"}
    assert [body["request"]["question"] for _, body in sent] == ["Which port?"] * 3
    assert sent[0][1]["type"] == "request.opened"
    assert receiver.deliveries.empty()


@proves("webhooks.at-least-once")
async def test_a_delivery_survives_the_death_of_its_sender(prepared: Path, environ: dict[str, str], tmp_path: Path) -> None:
    async with receiving(None) as receiver:
        webhook = Webhooks(Home(prepared)).add(receiver.url, SECRET, now=now_ms())
        command = [sys.executable, "-m", "fidelio", "inbox", "--watch"]
        first = await asyncio.create_subprocess_exec(*command, env=environ, cwd=tmp_path, stdout=subprocess.DEVNULL)
        request = await ask(prepared, "Which port?")
        hanging, _ = await receiver.next()
        first.send_signal(signal.SIGKILL)
        await first.wait()
        assert await list_delivered(prepared) == []
        # While nobody sends, another is opened; it waits for the next sender.
        missed = await ask(prepared, "Which host?")
        async with sending(prepared):
            again = [await receiver.next() for _ in range(2)]
            await until_delivered(prepared, 2)
        # What was delivered is not sent again by the next process.
        async with sending(prepared):
            third = await ask(prepared, "Which path?")
            (headers, _) = await receiver.next()

    assert hanging["fidelio-delivery"] == f"{webhook.id}.{request}"
    assert {sent["fidelio-delivery"] for sent, _ in again} == {f"{webhook.id}.{request}", f"{webhook.id}.{missed}"}
    assert headers["fidelio-delivery"] == f"{webhook.id}.{third}"


@proves("webhooks.settings")
def test_the_secret_is_read_from_a_file_or_standard_input_and_never_shown(
    home: Path, tmp_path: Path, environ: dict[str, str], fidelio: Fidelio
) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    added = fidelio("webhooks", "add", "http://127.0.0.1:1/x", "--secret-file", "secret")
    piped = run_fidelio(
        ("webhooks", "add", "https://example.org/x", "--json"), environ=environ, directory=tmp_path, text=f"{SECRET}\n"
    )
    listed = fidelio("webhooks", "list", "--json")

    assert (added.returncode, piped.returncode) == (0, 0), (added.stderr, piped.stderr)
    assert "this machine or in a private network" in added.stdout
    assert "It is not encrypted" in " ".join(added.stdout.split())
    assert json.loads(piped.stdout)["remark"] == ""
    assert [item["url"] for item in json.loads(listed.stdout)["items"]] == ["http://127.0.0.1:1/x", "https://example.org/x"]
    assert SECRET not in added.stdout + piped.stdout + listed.stdout
    assert stat.S_IMODE((home / "webhooks.json").stat().st_mode) == 0o600
    removed = fidelio("webhooks", "remove", json.loads(piped.stdout)["id"])
    assert removed.returncode == 0
    assert len(Webhooks(Home(home)).list()) == 1


@proves("webhooks.settings")
def test_an_agent_adds_no_webhook_and_an_untrusted_home_has_none(home: Path, fidelio: Fidelio) -> None:
    refused = fidelio("webhooks", "add", "https://example.org/x", **{AGENT_MARKER: "s_000000000000.1"})
    Webhooks(Home(home)).add("https://example.org/x", SECRET, now=0)

    assert refused.returncode == 2
    assert "only a person may do this" in refused.stderr
    assert Webhooks(Home(home, is_trusted=False)).list() == ()


@proves("webhooks.settings")
@pytest.mark.parametrize("url", ["ftp://example.org", "example.org", "https://me:pass@example.org", "http://[::1", "https://"])
def test_an_address_that_cannot_be_used_is_refused(home: Path, url: str) -> None:
    with pytest.raises(UsageProblem, match="address"):
        Webhooks(Home(home)).add(url, SECRET, now=0)


@proves("webhooks.settings")
def test_a_short_secret_is_refused_and_addresses_are_described(home: Path) -> None:
    with pytest.raises(UsageProblem, match="The secret has 5 characters"):
        Webhooks(Home(home)).add("https://example.org", "short", now=0)

    private = [f"https://{host}/x" for host in ("localhost", "10.1.2.3", "[fd00::1]", "printer.local", "intranet")]
    assert all("private network" in describe_address(url) for url in private)
    assert describe_address("https://example.org/x") == ""
