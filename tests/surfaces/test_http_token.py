"""The token of `fidelio up` and `fidelio demo`: every user of a machine can connect to a port on loopback."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from fidelio.errors import HomeProblem
from fidelio.home import Home
from fidelio.surfaces.http.token_file import load_token
from tests.support import proves
from tests.support.users import as_other_user, needs_root, open_to_all
from tests.surfaces.conftest import Fidelio, Shell
from tests.surfaces.mcp.serving import ACCEPT
from tests.surfaces.mcp.wire import call, initialize
from tests.surfaces.test_demo import line_with, started


@asynccontextmanager
async def up(environ: dict[str, str], *options: str) -> AsyncIterator[tuple[str, str]]:
    """`fidelio up` on a free port: its address, and what it prints up to the line with its command for a client."""
    async with started(environ, "up", "--port", "0", *options) as (_, output):
        address = (await line_with(output, "leads agents")).split()[-1].removesuffix("/mcp")
        yield address, await line_with(output, "claude mcp add")


async def ask(url: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=30) as client:
        return await client.post(url, json=initialize(), headers={**ACCEPT, **headers})


@proves("cli.up-token")
async def test_up_serves_nobody_without_the_token_of_its_home(environ: dict[str, str], home: Path) -> None:
    async with up(environ) as (address, line):
        token = (home / "http-token").read_text().strip()
        sent = [{}, {"Authorization": f"Bearer {token}"}, {"x-api-key": token}, {"x-api-key": ""}, {"x-api-key": f"{token}x"}]
        urls = (f"{address}/mcp", f"{address}/mcp/gates")
        statuses = [(await ask(url, **headers)).status_code for headers in sent for url in urls]

    assert statuses == [401, 401, 200, 200, 200, 200, 401, 401, 401, 401]
    assert stat.S_IMODE((home / "http-token").stat().st_mode) == 0o600
    assert token not in line
    assert f'--header "Authorization: Bearer $(cat {home / "http-token"})"' in line


@proves("cli.up-token")
async def test_the_header_that_up_prints_is_what_a_shell_makes_of_it(environ: dict[str, str], shell: Shell) -> None:
    async with up(environ) as (address, line):
        header = line.partition("--header ")[2].strip()
        name, _, value = shell(f"printf %s {header}").stdout.partition(": ")

        assert (await ask(f"{address}/mcp", **{name: value})).status_code == 200


@proves("cli.up-token")
async def test_the_environment_sets_another_token_and_no_file_is_made(environ: dict[str, str], home: Path) -> None:
    async with up({**environ, "FIDELIO_TOKEN": "sesame"}) as (address, line):
        statuses = [(await ask(f"{address}/mcp", **{"x-api-key": token})).status_code for token in ("sesame", "other")]

    assert statuses == [200, 401]
    assert '"Authorization: Bearer $FIDELIO_TOKEN"' in line
    assert not (home / "http-token").exists()


@proves("cli.up-token")
async def test_a_second_start_uses_the_same_token(environ: dict[str, str], home: Path) -> None:
    async with up(environ):
        first = (home / "http-token").read_text()
    async with up(environ) as (address, _):
        assert (await ask(f"{address}/mcp", **{"x-api-key": first.strip()})).status_code == 200


@proves("cli.up-open-paths")
async def test_without_the_token_there_is_health_and_nothing_else(environ: dict[str, str]) -> None:
    async with up(environ) as (address, _), httpx2.AsyncClient(timeout=30) as client:
        paths = ("/health", "/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server/mcp", "/other")
        replies = [await client.get(f"{address}{path}") for path in paths]
        refusal = await ask(f"{address}/mcp")

    # What is not for programs is the web page, which leads to signing in.
    assert [reply.status_code for reply in replies] == [200, 404, 404, 303]
    assert replies[3].headers["location"] == "/sign-in?next=%2Fother"
    assert "`fidelio up` prints the header" in refusal.json()["error"]
    assert refusal.headers["WWW-Authenticate"].startswith("Bearer")


@proves("cli.up-no-token")
async def test_without_a_token_a_short_handle_opens_nothing_and_the_start_says_so(
    environ: dict[str, str], fidelio: Fidelio
) -> None:
    session = fidelio("tour", "--json").stdout.partition('"id": "')[2].partition('"')[0]
    async with started(environ, "up", "--port", "0", "--no-token", "--demo") as (process, output):
        address = (await line_with(output, "leads agents")).split()[-1]
        await line_with(output, " answer r_")
        async with httpx2.AsyncClient(timeout=30) as client:
            wanted = call(1, "get_workflow_status", {"session_token": session})
            headers = {**ACCEPT, "MCP-Protocol-Version": "2025-11-25"}
            replies = [await client.post(f"{address}{path}", json=wanted, headers=headers) for path in ("", "/demo")]
        process.terminate()
        _, said = await process.communicate()

    assert session.startswith("s_")
    assert [reply.json()["result"]["isError"] for reply in replies] == [True, True]
    assert b"every user of this machine can use this server" in said


@proves("cli.up-no-token")
def test_a_token_and_none_contradict_each_other(fidelio: Fidelio) -> None:
    assert "contradict" in fidelio("up", "--token", "a", "--no-token").stderr


@proves("cli.up-token-file")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_token_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    home = Home(tmp_path / "home")
    load_token(home)
    home.http_token.chmod(mode)

    with pytest.raises(HomeProblem, match=r"can be read or written by other users\. Delete it"):
        load_token(home)


@proves("cli.up-token-file")
def test_a_token_file_is_a_file_of_its_own(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").ensure()
    secret = tmp_path / "secret"
    secret.write_text("known")
    secret.chmod(0o600)
    home.http_token.symlink_to(secret)
    with pytest.raises(HomeProblem, match="cannot be read"):
        load_token(home)

    home.http_token.unlink()
    os.mkfifo(home.http_token, 0o600)
    with pytest.raises(HomeProblem, match="not a regular file"):
        load_token(home)


@proves("cli.up-token-file")
def test_an_empty_token_lets_nobody_in(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").ensure()
    home.http_token.touch(0o600)

    with pytest.raises(HomeProblem, match="is empty"):
        load_token(home)


@needs_root
@proves("cli.up-token-file")
def test_the_token_of_another_user_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    load_token(home)
    os.chown(home.http_token, 65534, 65534)

    with pytest.raises(HomeProblem, match="belongs to the user"):
        load_token(home)


@needs_root
@proves("cli.up-token")
async def test_another_user_of_the_machine_is_not_served(environ: dict[str, str], home: Path, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    attack = (
        "try: token = pathlib.Path(sys.argv[2]).read_text().strip()\n"
        "except OSError: token = 'unreadable'\n"
        "for headers in ({}, {'Authorization': 'Bearer ' + token}, {'x-api-key': 's_1'}):\n"
        "    sent = urllib.request.Request(sys.argv[1], b'{}', headers)\n"
        "    try: print(urllib.request.urlopen(sent, timeout=30).status)\n"
        "    except urllib.error.HTTPError as error: print(error.code)\n"
    )
    async with up(environ) as (address, _):
        done = await as_other_user(attack, f"{address}/mcp/orchestrator", str(home / "http-token"))

    assert done.stdout.split() == ["401", "401", "401"]


@proves("cli.up-token")
def test_init_writes_no_token_into_files_that_may_be_committed(fidelio: Fidelio, home: Path, tmp_path: Path) -> None:
    token = load_token(Home(home)).value
    fidelio("init", "--all")

    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != home / "http-token"]
    assert written
    assert not any(token in path.read_text("latin-1") for path in written)


@proves("cli.up-token", "cli.demo")
def test_the_demo_makes_the_token_of_its_home_and_needs_no_other(fidelio: Fidelio, home: Path) -> None:
    done = fidelio("demo", "--headless")

    assert done.returncode == 0
    assert (home / "http-token").read_text().strip() not in done.stdout
