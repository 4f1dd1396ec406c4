"""Webhooks of the inbox: signed, retried, and delivered also if the sender is killed."""

from __future__ import annotations

import asyncio
import json
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fidelio.app.application import Application
from fidelio.app.asking import note_address
from fidelio.app.webhooks.deliveries import Delivery, list_deliveries
from fidelio.app.webhooks.sending import DELIVERED, QUEUED, send_webhooks, sign
from fidelio.app.webhooks.settings import Webhooks, describe_address
from fidelio.clock import now_ms
from fidelio.errors import UsageProblem
from fidelio.home import Home
from fidelio.inbox import open_request
from fidelio.ledger import open_ledger
from fidelio.ledger.model import Change, NewEvent, NewSession
from fidelio.processes.table import AGENT_MARKER
from fidelio.settings import load_settings
from fidelio.surfaces.views.requests import notification_json
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
        # A sender that is stopped meanwhile closes its connection.
        with suppress(asyncio.IncompleteReadError):
            await self._answer(reader, writer)
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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
    async with Application(settings) as application, send_webhooks(application, partial(notification_json, settings)):
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


@proves("webhooks.retried")
async def test_a_delivery_that_is_refused_takes_one_line_of_the_terminal(
    prepared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with receiving(500) as receiver:
        Webhooks(Home(prepared)).add(receiver.url, SECRET, now=now_ms())
        async with sending(prepared):
            await ask(prepared, "Which port?")
            await until_delivered(prepared, 1)

    (refused,) = caplog.records
    assert refused.getMessage().endswith(f"failed (attempt 1): {receiver.url} answered 500.")
    assert refused.exc_info is None


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


@proves("webhooks.noticed")
async def test_a_webhook_that_is_added_and_removed_while_the_sender_runs_counts_at_once(prepared: Path) -> None:
    webhooks = Webhooks(Home(prepared))
    async with receiving() as receiver, sending(prepared) as application:
        await application.records()
        first = webhooks.add(receiver.url, SECRET, now=now_ms())
        request = await ask(prepared, "Which port?")
        headers, _ = await receiver.next()
        await until_delivered(prepared, 1)
        webhooks.remove(first.id)
        second = webhooks.add(receiver.url, SECRET, now=now_ms())
        later = await ask(prepared, "Which host?")
        again, _ = await receiver.next()

    assert headers["fidelio-delivery"] == f"{first.id}.{request}"
    assert again["fidelio-delivery"] == f"{second.id}.{later}"


@proves("webhooks.at-least-once")
async def test_two_senders_of_a_home_send_once_and_the_second_takes_over(prepared: Path) -> None:
    async with receiving() as receiver:
        webhooks = Webhooks(Home(prepared))
        webhooks.add(receiver.url, SECRET, now=now_ms())
        async with sending(prepared):
            async with sending(prepared):
                await ask(prepared, "Which port?")
                await receiver.next()
                await until_delivered(prepared, 1)
                assert webhooks.is_sending()
            await ask(prepared, "Which host?")
            _, body = await receiver.next()
            await until_delivered(prepared, 2)
        async with await open_ledger(prepared / "ledger.db") as ledger:
            queued = await ledger.events(types=(QUEUED,))

    assert body["request"]["question"] == "Which host?"
    assert len(queued) == 2
    assert receiver.deliveries.empty()
    assert not webhooks.is_sending()


@proves("webhooks.link")
@pytest.mark.parametrize(
    ("public", "base"), [("", "http://127.0.0.1:7333"), ("https://fidelio.example/", "https://fidelio.example")]
)
async def test_a_delivery_links_to_the_page_of_its_question(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, public: str, base: str
) -> None:
    note_address(Home(prepared), "http://127.0.0.1:7333")
    settings = load_settings(environ={"FIDELIO_HOME": str(prepared), "FIDELIO_PUBLIC_URL": public})
    async with receiving() as receiver:
        Webhooks(Home(prepared)).add(receiver.url, SECRET, now=now_ms())
        describe = partial(notification_json, settings)
        async with Application(settings) as application, send_webhooks(application, describe):
            request = await ask(prepared, "Which port?")
            _, body = await receiver.next()

    assert body["url"] == f"{base}/inbox/{request}"


@proves("webhooks.link")
@pytest.mark.parametrize("public", ["fidelio.example", "https://me@fidelio.example", "https://fidelio.example/x", "https://"])
def test_a_public_address_that_is_none_is_refused(home: Path, public: str) -> None:
    with pytest.raises(UsageProblem, match="FIDELIO_PUBLIC_URL"):
        load_settings(environ={"FIDELIO_HOME": str(home), "FIDELIO_PUBLIC_URL": public})


async def until_first(application: Application, state: str) -> tuple[Delivery, ...]:
    """The deliveries once the first has this state."""
    records = await application.records()
    async with asyncio.timeout(50):
        while (found := await list_deliveries(application))[:1] == () or found[0].state != state:
            # Settling a job is no event.
            await records.wait(after=await records.wait(after=0, timeout=0), timeout=0.1)
    return found


@proves("webhooks.states")
async def test_the_state_of_a_delivery_is_due_retrying_delivered_or_dropped(prepared: Path) -> None:
    settings = load_settings(environ={"FIDELIO_HOME": str(prepared)})
    webhooks = Webhooks(Home(prepared))
    async with receiving(204, 500) as receiver, Application(settings) as application:
        assert await list_deliveries(application) == ()
        webhook = webhooks.add(receiver.url, SECRET, now=now_ms())
        describe = partial(notification_json, settings)
        async with send_webhooks(application, describe):
            first = await ask(prepared, "Which port?")
            await receiver.next()
            await until_delivered(prepared, 1)
            second = await ask(prepared, "Which host?")
            await receiver.next()
            states = await until_first(application, "retrying")
        webhooks.remove(webhook.id)
        async with send_webhooks(application, describe):
            webhooks.add(receiver.url, SECRET, now=now_ms() + 60_000)
            await ask(prepared, "Which path?")
            after = await until_first(application, "dropped")

    assert [(each.request, each.state, each.attempts) for each in states] == [(second, "retrying", 1), (first, "delivered", 1)]
    assert states[0].problem == f"{receiver.url} answered 500."
    assert states[0].time > now_ms() - 60_000
    assert states[1].status == 204
    assert [(each.request, each.state) for each in after] == [(second, "dropped"), (first, "delivered")]


async def run(environ: dict[str, str], directory: Path, *arguments: str) -> tuple[int | None, str]:
    """A command in a process of its own, because a server of this test answers it: exit code and output."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "fidelio", "webhooks", *arguments)
    process = await asyncio.create_subprocess_exec(*command, env=environ, cwd=directory, stdout=pipe, stderr=subprocess.STDOUT)
    output, _ = await asyncio.wait_for(process.communicate(), 50)
    return process.returncode, output.decode()


@proves("webhooks.states")
async def test_the_command_sends_a_test_and_lists_deliveries(prepared: Path, environ: dict[str, str], tmp_path: Path) -> None:
    async with receiving(204, 404) as receiver:
        webhook = Webhooks(Home(prepared)).add(receiver.url, SECRET, now=now_ms())
        done = await run(environ, tmp_path, "test", webhook.id, "--json")
        refused = await run(environ, tmp_path, "test", webhook.id)
        _, body = await receiver.next()
        async with sending(prepared):
            request = await ask(prepared, "Which port?")
            await until_delivered(prepared, 1)
            sending_now = await run(environ, tmp_path, "list")
    listed = await run(environ, tmp_path, "deliveries", "--json")
    shown = await run(environ, tmp_path, "deliveries")

    assert json.loads(done[1]) == {"webhook": webhook.id, "status": 204}
    assert body["type"] == "test"
    assert refused[0] == 1
    assert "answered 404" in refused[1]
    (item,) = json.loads(listed[1])["items"]
    assert (item["request"], item["state"], item["status"]) == (request, "delivered", 204)
    assert "delivered" in shown[1]
    assert "A process of this home sends now." in sending_now[1]
    assert "Nothing sends now." in shown[1]


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
