"""Who sends a request: looked up at the other end of its connection, and not by what a header claims."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
from anthropic import AsyncAnthropic

from fidelio.processes.caller import PERSON, Caller
from fidelio.processes.table import AGENT_MARKER
from fidelio.surfaces.http import plain
from fidelio.surfaces.http.connections import PeerAddress
from tests.support import proves
from tests.surfaces.v1.conftest import TOKEN

PROGRAM = """
import sys, urllib.error, urllib.request
headers = {"x-api-key": sys.argv[2], "content-type": "application/json", **dict(pair.split("=") for pair in sys.argv[3:])}
request = urllib.request.Request(sys.argv[1] + "/v1/agents", b'{"name": "A", "model": "scripted:test"}', headers)
try:
    print(urllib.request.urlopen(request, timeout=30).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


async def create_agent(url: str, *headers: str, **environ: str) -> str:
    """The status of a request from a program with these headers and environment variables."""
    command = [sys.executable, "-c", PROGRAM, url, TOKEN, *headers]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **environ}, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    return output.decode().strip()


@proves("v1.peer")
@pytest.mark.parametrize("headers", [(), ("X-Forwarded-For=203.0.113.9",)])
async def test_an_agent_of_ours_cannot_hide_its_process_behind_a_header(url: str, headers: tuple[str, ...]) -> None:

    assert await create_agent(url, *headers, **{AGENT_MARKER: "s_0123456789ab.1"}) == "403"
    assert await create_agent(url, *headers) == "200"


@proves("v1.peer")
async def test_the_process_of_a_connection_is_looked_up_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    now = [10.0]

    def identify(peer: object, _: object) -> Caller:
        seen.append(peer)
        return PERSON

    monkeypatch.setattr(plain, "identify_peer", identify)
    first, second = PeerAddress(("127.0.0.1", 5000)), PeerAddress(("127.0.0.1", 5000))

    for connection, moment in ((first, 10.0), (first, 10.9), (second, 10.9), (first, 11.0), (("127.0.0.1", 6000), 11.0)):
        now[0] = moment
        found = await plain.identify_client({"client": connection, "server": ("127.0.0.1", 7333)}, lambda: now[0])
        assert found is PERSON

    assert len(seen) == 4


@proves("v1.peer")
async def test_requests_of_a_client_share_a_lookup(sdk: AsyncAnthropic, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def identify(peer: object, _: object) -> Caller:
        seen.append(peer)
        return PERSON

    monkeypatch.setattr(plain, "identify_peer", identify)
    monkeypatch.setattr(plain, "PEER_SECONDS", 60.0)
    for number in range(4):
        await sdk.beta.agents.create(name=f"Agent {number}", model="scripted:test")

    assert len(seen) == 1
