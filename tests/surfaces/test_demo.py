"""`fidelio demo` and `fidelio up` as separate processes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.types import CallToolResult, TextContent

from fidelio.surfaces.mcp.options import SERVER_OPTIONS
from tests.support import proves
from tests.surfaces.conftest import Connect, Fidelio

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
ACCEPT = {"Accept": "application/json, text/event-stream"}
GREET, COMPOSE, FAREWELL = ["look", "ask"], ["read-advice", "write"], ["tell", "show-record"]
STEPS_FOR = {
    "warm": [("greet", GREET), ("compose", COMPOSE), ("farewell", FAREWELL)],
    "brief": [("greet", GREET), ("compose", [*COMPOSE, "shorten"]), ("farewell", FAREWELL)],
    "none": [("greet", GREET), ("farewell", FAREWELL)],
}
ASKING = """
id: asking
version: 1.0.0
title: Asking
initialActivity: ask
activities:
  - id: ask
    version: 1.0.0
    name: Ask
    checkpoints: [{id: well, name: Well?, message: Well?, options: [{id: fine, label: Fine}, {id: bad, label: Bad}]}]
"""


@asynccontextmanager
async def started(
    environ: dict[str, str], *arguments: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """A command that goes on until it is told to end."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "fidelio", *arguments]
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield process, process.stdout
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def up(
    environ: dict[str, str], *options: str
) -> AbstractAsyncContextManager[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """`fidelio up` on a free port; without a token, where the test is not about it."""
    has_token = "FIDELIO_TOKEN" in environ or "--token" in options
    return started(environ, "up", "--port", "0", *([] if has_token else ["--no-token"]), *options)


async def line_with(output: asyncio.StreamReader, words: str) -> str:
    while line := (await output.readline()).decode():
        if words in line:
            return line
    raise AssertionError(f"the output ended without {words!r}")


async def question_in(output: asyncio.StreamReader) -> str:
    """The id of the request that the demo says it waits for."""
    return next(word for word in (await line_with(output, " answer r_")).split() if word.startswith("r_"))


def report_in(fidelio: Fidelio) -> dict[str, Any]:
    """The report of the only session."""
    (session,) = json.loads(fidelio("sessions", "--json").stdout)["items"]
    report: dict[str, Any] = json.loads(fidelio("report", session["id"], "--json").stdout)
    return report


def steps_in(report: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(visit["activity"], [entry["step_id"] for entry in visit["done"]]) for visit in report["visits"]]


@proves("cli.demo")
def test_the_headless_demo_walks_to_the_end_by_itself(fidelio: Fidelio) -> None:
    done = fidelio("demo", "--headless")
    (session,) = json.loads(fidelio("sessions", "--json").stdout)["items"]

    assert (done.returncode, done.stderr) == (0, "")
    assert "The workflow has ended." in done.stdout
    # A single variable is named once.
    assert re.search(r"set project_name: (?!project_name)\S", done.stdout)
    assert session["status"] == "completed"
    assert fidelio("verify", session["id"]).returncode == 0


@proves("cli.demo-record")
def test_the_record_of_the_headless_demo_claims_nothing_that_was_not_done(fidelio: Fidelio, tmp_path: Path, home: Path) -> None:
    fidelio("demo", "--headless")
    report = report_in(fidelio)
    (answer,) = [answer for visit in report["visits"] for answer in visit["answers"]]

    assert (steps_in(report), report["differences"]) == (STEPS_FOR["warm"], [])
    assert all(entry["output"].startswith("Scripted: ") for visit in report["visits"] for entry in visit["done"])
    assert (answer["option"], answer["by"], answer["assurance"]) == ("warm", "person:scripted", "local")
    assert report["variables"]["project_name"] == tmp_path.name
    assert list(tmp_path.iterdir()) == [home]


@proves("cli.demo", "cli.demo-record", "cli.up")
@pytest.mark.parametrize("answer", ["brief", "none"])
async def test_the_demo_waits_in_the_inbox_for_a_person_and_does_what_the_answer_calls_for(
    environ: dict[str, str], fidelio: Fidelio, answer: str
) -> None:
    async with up(environ, "--demo") as (process, output):
        request = await question_in(output)
        assert [one["id"] for one in json.loads(fidelio("inbox", "--json").stdout)["items"]] == [request]
        fidelio("answer", request, answer)
        await line_with(output, f"answered choose-tone with {answer} over cli")
        await line_with(output, "The workflow has ended.")
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 143
    report = report_in(fidelio)

    assert (steps_in(report), report["differences"]) == (STEPS_FOR[answer], [])


@proves("cli.demo-stopped")
@pytest.mark.parametrize("command", [["demo"], ["up", "--port", "0", "--demo"]])
async def test_a_demo_that_is_stopped_leaves_no_question_behind(
    environ: dict[str, str], fidelio: Fidelio, command: list[str]
) -> None:
    async with started(environ, *command) as (process, output):
        request = await question_in(output)
        process.send_signal(signal.SIGINT)
        said, _ = await process.communicate()

    assert "its session is deleted and its question withdrawn" in said.decode()
    assert json.loads(fidelio("inbox", "--json").stdout)["items"] == []
    assert json.loads(fidelio("sessions", "--json").stdout)["items"] == []
    assert fidelio("answer", request, "warm").returncode != 0
    assert fidelio("verify", "--all").stdout == "1 of 1 sessions hold.\n"


@proves("cli.demo-ended")
async def test_the_server_goes_on_when_somebody_has_ended_the_demo(environ: dict[str, str], fidelio: Fidelio) -> None:
    async with up(environ, "--demo") as (process, output):
        address = (await line_with(output, "leads agents")).split()[-1].removesuffix("/mcp")
        await question_in(output)
        (session,) = json.loads(fidelio("sessions", "--json").stdout)["items"]
        fidelio("sessions", "--end", session["id"])
        await line_with(output, "Somebody has ended the session of the demo")
        async with httpx2.AsyncClient() as web:
            health = await web.get(f"{address}/health")
        assert process.returncode is None

    assert health.status_code == 200


@proves("cli.demo-record", "sessions.report-conditions")
async def test_an_agent_that_reports_what_the_answer_ruled_out_differs_in_the_report(
    connect: Connect, fidelio: Fidelio
) -> None:
    reported = {"compose": GREET, "farewell": [*COMPOSE, "shorten"], "__terminal__": FAREWELL}
    async with connect() as client:
        token, yielded = await up_to_question(client, "hello", "greet", "choose-tone")
        fidelio("answer", json.loads(yielded)["request_id"], "warm")
        for activity, steps in reported.items():
            manifest = [{"step_id": step, "output": "Done."} for step in steps]
            token, _ = await call(client, token, "next_activity", activity_id=activity, step_manifest=manifest)

    assert report_in(fidelio)["differences"] == ["compose: Step 'shorten' was reported although its condition is not met."]


@proves("cli.up")
async def test_an_agent_connects_by_the_address_that_is_printed(environ: dict[str, str]) -> None:
    async with up(environ) as (process, output):
        address = (await line_with(output, "/mcp")).split()[-1]
        async with Client(address) as client:
            listed = await client.list_tools()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 143

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
    open_to_all = fidelio("up", "--host", "0.0.0.0", "--no-token")
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
async def test_what_stdio_can_be_told_http_can_be_told(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "asking.yaml").write_text(ASKING)
    named = ("--server-name", "workflow-server", "--server-version", "9.9", "--min-response-seconds", "86400")
    async with up(environ, *named, "--workflows", str(tmp_path)) as (_, output):
        address = (await line_with(output, "/mcp")).split()[-1]
        async with Client(address) as client:
            info = client.server_info
            token, _ = await up_to_question(client, "asking", "ask", "well")
            # Before anybody can have read it.
            _, refused = await call(client, token, "respond_checkpoint", option_id="fine")

    assert info is not None
    assert (info.name, info.version) == ("workflow-server", "9.9")
    assert "86400" in refused


@proves("cli.up-options")
def test_both_servers_list_every_option_that_they_share(fidelio: Fidelio) -> None:
    helps = [fidelio(command, "--help").stdout for command in ("mcp", "up")]

    assert all(f"--{option.flag}" in text for option in SERVER_OPTIONS for text in helps)


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

    assert (done.returncode, "not a host name" in done.stderr) == (2, True)


async def up_to_question(client: Client, workflow: str, activity: str, checkpoint: str) -> tuple[str, str]:
    """Begins the workflow and stops at the question: the newest token, and what the server says."""
    token, _ = await call(client, "", "start_session", workflow_id=workflow)
    token, _ = await call(client, token, "next_activity", activity_id=activity)
    return await call(client, token, "yield_checkpoint", checkpoint_id=checkpoint)


async def call(client: Client, token: str, tool: str, **arguments: Any) -> tuple[str, str]:
    """The token after the call, and the text of the reply."""
    result = await client.call_tool(tool, {**arguments, **({"session_token": token} if token else {})})
    assert isinstance(result, CallToolResult)
    assert isinstance(result.content[0], TextContent)
    return (result.meta or {}).get("session_token", token), result.content[0].text


@proves("cli.demo-stopped", "cli.json")
async def test_a_demo_that_is_stopped_prints_nothing_but_json(environ: dict[str, str]) -> None:
    async with started(environ, "demo", "--json") as (process, output):
        await line_with(output, "waiting")
        process.send_signal(signal.SIGTERM)
        rest, said = await process.communicate()

    assert json.loads(rest.splitlines()[-1])["kind"] == "stopped"
    assert all(json.loads(line)["kind"] for line in rest.splitlines())
    assert json.loads(said)["error"]["exit_code"] == 143
