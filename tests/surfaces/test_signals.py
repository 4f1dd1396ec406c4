"""Commands that wait are ended by SIGTERM and by Ctrl-C, however they were started."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fidelio.home import Home
from fidelio.ledger import open_ledger
from tests.support import proves
from tests.support.ledgers import start

SECONDS = 60
WAITING = [
    ["inbox", "--watch"],
    ["events", "s_one", "--follow"],
    ["work", "--idle-seconds", "600"],
    ["mcp"],
    ["up", "--port=0"],
    ["demo"],
]
INTERRUPTED = [["inbox", "--watch"], ["mcp"], ["up", "--port=0"]]


@contextmanager
def sigint_of_children(action: signal.Handlers | None) -> Iterator[None]:
    """Processes started in the block ignore Ctrl-C (`SIG_IGN`), as in the background of a shell, or are ended by it."""
    handler = signal.default_int_handler if action is None else action
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@pytest.fixture
async def session(home: Path) -> str:
    async with await open_ledger(Home(home).ensure().ledger) as ledger:
        await start(ledger, "s_one")
    return "s_one"


async def start_command(environ: dict[str, str], arguments: list[str]) -> asyncio.subprocess.Process:
    """Start a command and wait until it handles SIGTERM: before that, the signal has its default action."""
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "fidelio", *arguments]
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdin=pipe, stdout=pipe, stderr=pipe)
    async with asyncio.timeout(SECONDS):
        while not _handles_sigterm(process.pid):
            assert process.returncode is None, await process.communicate()
            # Nothing tells another process that a handler was set.
            await asyncio.sleep(0.01)
    return process


def _handles_sigterm(pid: int) -> bool:
    caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text("utf-8"))
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


async def end(process: asyncio.subprocess.Process, number: signal.Signals) -> tuple[int | None, str]:
    process.send_signal(number)
    async with asyncio.timeout(SECONDS):
        _, said = await process.communicate()
    return process.returncode, said.decode()


@proves("cli.signals")
@pytest.mark.parametrize("arguments", WAITING, ids=" ".join)
@pytest.mark.usefixtures("session")
async def test_sigterm_ends_a_command_that_ignores_ctrl_c(environ: dict[str, str], arguments: list[str]) -> None:
    with sigint_of_children(signal.SIG_IGN):
        process = await start_command(environ, arguments)
    code, said = await end(process, signal.SIGTERM)

    assert (code, said.strip()) == (143, "" if arguments == ["mcp"] else "fidelio: Stopped.")


@proves("cli.signals")
@pytest.mark.parametrize("arguments", INTERRUPTED, ids=" ".join)
@pytest.mark.usefixtures("session")
async def test_ctrl_c_has_an_exit_code_of_its_own(environ: dict[str, str], arguments: list[str]) -> None:
    with sigint_of_children(None):
        process = await start_command(environ, arguments)
    code, said = await end(process, signal.SIGINT)

    assert (code, said.strip()) == (130, "" if arguments == ["mcp"] else "fidelio: Stopped.")


@proves("cli.signals")
@pytest.mark.usefixtures("session")
async def test_a_command_ends_with_its_terminal(environ: dict[str, str]) -> None:
    process = await start_command(environ, ["inbox", "--watch"])

    assert (await end(process, signal.SIGHUP))[0] == 129
