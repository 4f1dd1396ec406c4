"""Who sends a request: looked up at the other end of its connection, and not by what a header claims."""

from __future__ import annotations

import asyncio
import os
import sys

import httpx2
import pytest
from anthropic import AsyncAnthropic

from fidelio.orchestrator.blueprints.servers import AGENT_HEADER
from fidelio.processes.caller import PERSON, UNKNOWN_AGENT, UNSEEN, Caller
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


RUN = "s_0123456789ab.1"


@proves("v1.peer", "v1.key-holder")
@pytest.mark.parametrize(
    ("above", "own", "status"),
    [
        ({AGENT_MARKER: RUN}, {AGENT_MARKER: RUN}, "403"),
        # Signs that contradict each other or are malformed name no run, and are signs all the same.
        ({AGENT_MARKER: RUN}, {AGENT_MARKER: "zzz"}, "403"),
        ({}, {AGENT_MARKER: "zzz"}, "403"),
        ({}, {AGENT_MARKER: ""}, "403"),
        ({AGENT_MARKER: RUN}, {}, "403"),
        # Agents that Fidelio did not start: the key is the proof.
        ({"CLAUDECODE": "1"}, {"CLAUDECODE": "1"}, "200"),
    ],
)
async def test_every_sign_of_an_agent_of_ours_counts_and_no_other(
    url: str, above: dict[str, str], own: dict[str, str], status: str
) -> None:
    """A program with an environment of its own, below a shell with another."""
    plain_environ = {name: value for name, value in os.environ.items() if name not in (AGENT_MARKER, "CLAUDECODE")}
    pairs = [f"{name}={value}" for name, value in own.items()]
    unset = [word for name in above for word in ("-u", name)]
    # Something behind the program keeps the shell from being replaced by it.
    inner = ["sh", "-c", '"$@"; true', "sh", "env", *unset, *pairs, sys.executable, "-c", PROGRAM, url, TOKEN]
    process = await asyncio.create_subprocess_exec(*inner, env={**plain_environ, **above}, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        output, _ = await process.communicate()

    assert output.decode().strip() == status


@proves("v1.key-holder")
@pytest.mark.parametrize("claim", [RUN, "zzz", "", " "])
async def test_a_header_that_names_an_agent_counts_in_every_form(url: str, claim: str) -> None:
    assert await create_agent(url, f"{AGENT_HEADER}={claim}") == "403"


@proves("v1.key-holder")
@pytest.mark.parametrize(("found", "status"), [(UNSEEN, 200), (PERSON, 200), (UNKNOWN_AGENT, 403)])
async def test_the_key_is_the_proof_on_another_machine_and_not_of_a_process_that_hides_here(
    url: str, found: Caller, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "identify_peer", lambda *_: found)
    async with httpx2.AsyncClient(base_url=url, headers={"x-api-key": TOKEN}) as client:
        answered = await client.post("/v1/agents", json={"name": "A", "model": "scripted:test"})

    assert answered.status_code == status


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
