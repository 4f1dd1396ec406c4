"""The demo and the server over HTTP, started as a user starts them."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.types import CallToolResult, TextContent

from fidelio.surfaces.mcp.options import SERVING
from tests.support import proves
from tests.surfaces.conftest import Fidelio

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@asynccontextmanager
async def up(environ: dict[str, str], *options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """`fidelio up` on a free port, interrupted at the end."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "fidelio", "up", "--port", "0", *options]
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield process, process.stdout
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line_with(output: asyncio.StreamReader, words: str) -> str:
    while line := (await output.readline()).decode():
        if words in line:
            return line
    raise AssertionError(f"the output ended without {words!r}")


@proves("cli.demo")
def test_the_headless_demo_walks_to_the_end_by_itself(fidelio: Fidelio) -> None:
    done = fidelio("demo", "--headless")
    (session,) = json.loads(fidelio("sessions", "--json").stdout)["sessions"]

    assert (done.returncode, done.stderr) == (0, "")
    assert "The workflow has ended." in done.stdout
    assert session["status"] == "completed"
    assert fidelio("verify", session["id"]).returncode == 0


@proves("cli.demo", "cli.up")
async def test_the_demo_waits_in_the_inbox_for_a_person_and_goes_on_with_the_answer(
    environ: dict[str, str], fidelio: Fidelio
) -> None:
    async with up(environ, "--demo") as (process, output):
        asked = await line_with(output, " answer r_")
        request = next(word for word in asked.split() if word.startswith("r_"))
        assert [one["id"] for one in json.loads(fidelio("inbox", "--json").stdout)["requests"]] == [request]
        fidelio("answer", request, "none")
        await line_with(output, "answered none over cli")
        await line_with(output, "The workflow has ended.")
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


@proves("cli.up")
async def test_an_agent_connects_by_the_address_that_is_printed(environ: dict[str, str]) -> None:
    async with up(environ) as (process, output):
        address = (await line_with(output, "/mcp")).split()[-1]
        async with Client(address) as client:
            listed = await client.list_tools()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0

    assert len(listed.tools) == 16


@proves("cli.up")
async def test_with_a_token_only_its_bearer_is_served(environ: dict[str, str]) -> None:
    async with up(environ, "--token", "sesame") as (_, output), httpx2.AsyncClient() as web:
        address = (await line_with(output, "/mcp")).split()[-1]
        assert "Authorization: Bearer" in await line_with(output, "claude mcp add")
        answers = [
            await web.post(address, json=PING, headers={**ACCEPT, "Authorization": f"Bearer {token}"})
            for token in ("sesame", "simsalabim", "sesam")
        ]
        without = await web.post(address, json=PING, headers=ACCEPT)

    assert [answer.status_code for answer in (*answers, without)] == [200, 401, 401, 401]


@proves("cli.up", "cli.errors")
def test_other_machines_are_not_let_in_without_a_token_and_a_taken_port_is_named(fidelio: Fidelio) -> None:
    open_to_all = fidelio("up", "--host", "0.0.0.0")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        in_use = fidelio("up", "--port", str(taken.getsockname()[1]))

    assert (open_to_all.returncode, in_use.returncode) == (2, 2)
    assert "Set a bearer token" in open_to_all.stderr
    assert "is in use" in in_use.stderr


@proves("cli.up", "orchestrator-tools.contract")
async def test_one_server_offers_every_dialect_and_the_orchestrator(environ: dict[str, str]) -> None:
    expected = {"/mcp": "yield_checkpoint", "/mcp/gates": "get_checkpoint", "/mcp/navigator": "nav_start"}
    async with up(environ) as (_, output):
        address = (await line_with(output, "leads agents")).split()[-1].removesuffix("/mcp")
        for path, tool in {**expected, "/mcp/orchestrator": "start_agent_session"}.items():
            async with Client(f"{address}{path}") as client:
                assert tool in [one.name for one in (await client.list_tools()).tools]


@proves("cli.demo", "cli.bundled-only")
async def test_the_demo_beside_a_server_shows_its_token_and_needs_no_workflow_of_the_user(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "hello.yaml").write_text("id: hello\nversion: [")
    async with up({**environ, "FIDELIO_TOKEN": "sesame"}, "--demo", "--workflows", str(tmp_path)) as (_, output):
        assert "answer r_" in await line_with(output, " answer r_")


@proves("cli.up-options")
async def test_what_stdio_can_be_told_http_can_be_told(environ: dict[str, str]) -> None:
    named = ("--server-name", "workflow-server", "--server-version", "9.9", "--min-response-seconds", "86400")
    async with up(environ, *named) as (_, output):
        address = (await line_with(output, "/mcp")).split()[-1]
        async with Client(address) as client:
            info = client.server_info
            refused = await answer_at_once(client)

    assert info is not None
    assert (info.name, info.version) == ("workflow-server", "9.9")
    assert "86400" in refused


@proves("cli.up-options")
def test_both_servers_list_every_option_that_they_share(fidelio: Fidelio) -> None:
    helps = [fidelio(command, "--help").stdout for command in ("mcp", "up")]

    assert all(f"--{option.flag}" in text for option in SERVING for text in helps)


@proves("cli.allowed-hosts")
@pytest.mark.parametrize("by", ["option", "environment"])
async def test_a_server_answers_to_the_names_it_is_given(environ: dict[str, str], by: str) -> None:
    names = ["fidelio.example", "Other.example"]
    options = [word for name in names for word in ("--allowed-host", name)] if by == "option" else []
    outside = {"FIDELIO_ALLOWED_HOSTS": ", ".join(names)} if by == "environment" else {}
    async with up({**environ, **outside}, *options) as (_, output), httpx2.AsyncClient() as web:
        address = (await line_with(output, "/mcp")).split()[-1].replace("/mcp", "/health")
        hosts = ("fidelio.example", "other.example:443", "evil.example")
        answers = [await web.get(address, headers={"Host": host}) for host in hosts]

    assert [answer.status_code for answer in answers] == [200, 200, 421]


@proves("cli.allowed-hosts", "cli.errors")
@pytest.mark.parametrize("name", ["https://fidelio.example", "fidelio.example:443", "a b", "*.example"])
def test_what_no_host_header_can_hold_is_refused_at_the_start(fidelio: Fidelio, name: str) -> None:
    done = fidelio("up", "--port", "0", "--allowed-host", name)

    assert (done.returncode, "not the name of a host" in done.stderr) == (2, True)


async def answer_at_once(client: Client) -> str:
    """Answers the question of `hello` before anybody can have read it; what the server says to that."""
    token, text = "", ""
    calls: list[tuple[str, dict[str, str]]] = [
        ("start_session", {"workflow_id": "hello"}),
        ("next_activity", {"activity_id": "greet"}),
        ("yield_checkpoint", {"checkpoint_id": "choose-tone"}),
        ("respond_checkpoint", {"option_id": "none"}),
    ]
    for tool, arguments in calls:
        result = await client.call_tool(tool, {**arguments, **({"session_token": token} if token else {})})
        assert isinstance(result, CallToolResult)
        assert isinstance(result.content[0], TextContent)
        token, text = (result.meta or {}).get("session_token", token), result.content[0].text
    return text
