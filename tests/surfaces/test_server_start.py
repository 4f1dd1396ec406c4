"""Errors of a server whose home, keys, ledger or workflows are unusable."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fidelio.surfaces.cli.serve import PORT
from tests.support import proves
from tests.surfaces.conftest import Fidelio
from tests.surfaces.mcp.wire import Json, call, initialize, notification, request, text_of
from tests.surfaces.test_demo import line_with, started

BreakHome = Callable[[Path], dict[str, str]]


def without_directory(home: Path) -> dict[str, str]:
    home.write_text("a file where the directory should be")
    return {}


def with_overwritten_ledger(home: Path) -> dict[str, str]:
    home.mkdir()
    (home / "ledger.db").write_bytes(b"overwritten " * 1000)
    return {}


def with_empty_keys(home: Path) -> dict[str, str]:
    home.mkdir()
    (home / "keys.json").touch(mode=0o600)
    return {}


def with_short_key(_: Path) -> dict[str, str]:
    return {"FIDELIO_KEY": "abc"}


def with_ledger_out_of_reach(_: Path) -> dict[str, str]:
    return {"FIDELIO_LEDGER": "postgresql://127.0.0.1:1/nothing"}


UNUSABLE_HOMES = pytest.mark.parametrize(
    ("break_home", "sentence"),
    [
        (without_directory, "cannot be created"),
        (with_overwritten_ledger, "ledger.db"),
        (with_empty_keys, "keys.json"),
        (with_short_key, "FIDELIO_KEY"),
        (with_ledger_out_of_reach, "postgresql://127.0.0.1:1/nothing"),
    ],
)


def served(environ: dict[str, str], *messages: Json, workflows: str = "") -> subprocess.CompletedProcess[str]:
    """`fidelio mcp`, sent these messages and then no more."""
    command = [sys.executable, "-m", "fidelio", "mcp", *(["--workflows", workflows] if workflows else [])]
    lines = "".join(f"{json.dumps(message)}\n" for message in messages)
    return subprocess.run(command, env=environ, input=lines, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Occupy a port, unless another process does already."""
    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError:
        yield
    else:
        with listener:
            yield


@proves("cli.serves-what-works")
@UNUSABLE_HOMES
def test_up_greets_nobody_when_it_cannot_work(fidelio: Fidelio, home: Path, break_home: BreakHome, sentence: str) -> None:
    done = fidelio("up", "--port", "0", **break_home(home))

    assert (done.returncode > 0, done.stdout, sentence in done.stderr) == (True, "", True)


@proves("mcp.tells-why-not")
@UNUSABLE_HOMES
def test_the_log_of_a_client_says_once_why_every_call_fails(
    environ: dict[str, str], home: Path, break_home: BreakHome, sentence: str
) -> None:
    environ |= break_home(home)
    greeting = (initialize(), notification("notifications/initialized"))

    listed = served(environ, *greeting, request(1, "tools/list"))
    called = served(environ, *greeting, call(1, "list_workflows"), call(2, "list_workflows"))

    assert (listed.returncode, listed.stderr) == (0, "")
    replies = [json.loads(line) for line in called.stdout.splitlines()]
    assert [sentence in text_of(reply) for reply in replies if reply["id"] != "init"] == [True, True]
    (complaint,) = called.stderr.splitlines()
    assert complaint.startswith("fidelio: ")
    assert sentence in complaint


@proves("cli.serves-what-works", "mcp.tells-why-not")
def test_a_directory_of_workflows_that_is_not_there_is_told_at_once(fidelio: Fidelio, environ: dict[str, str]) -> None:
    for done in (fidelio("up", "--port", "0", "--workflows", "nowhere"), served(environ, workflows="nowhere")):
        assert (done.returncode, done.stdout) == (2, "")
        assert "There is no directory nowhere." in done.stderr


@proves("cli.demo-port")
async def test_a_demo_takes_a_free_port_where_the_usual_one_is_taken(environ: dict[str, str], fidelio: Fidelio) -> None:
    with taken(PORT):
        async with started(environ, "up", "--demo") as (_, output):
            await line_with(output, f"Port {PORT} is in use, so the demo takes a free one.")
            assert f":{PORT}/" not in await line_with(output, "leads agents")
        asked = fidelio("up", "--demo", "--port", str(PORT))

    assert (asked.returncode, f"Port {PORT} on 127.0.0.1 is in use." in asked.stderr) == (2, True)
