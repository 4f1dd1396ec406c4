"""`fidelio runtime worker`: the process that carries out wakes, or the tool calls of a self-hosted environment."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from fidelio.errors import UsageProblem
from fidelio.inbox import require_person
from fidelio.runtime.work.worker import EnvironmentWorker, SandboxTools, WorkApi, open_client
from fidelio.surfaces.cli.context import (
    CliContext,
    complete_path,
    json_reply_option,
    print_sentence,
    quote_name,
    with_cli_context,
)
from fidelio.surfaces.cli.sandbox import real_project


@click.command("worker", short_help="Carry out wakes, or the tools of a self-hosted environment, until Ctrl-C.")
@click.option("--environment", metavar="ID", help="A self-hosted environment whose tool calls are carried out here.")
@click.option("--url", metavar="URL", help="The server of the environment; its token is taken from FIDELIO_TOKEN.")
@click.option(
    "--mount",
    metavar="DIR[:ro|rw|copy]",
    shell_complete=complete_path,
    help="A directory that the tools see at /workspace/project.",
)
@click.option("--sandbox", metavar="NAME", help="The environment of this home whose network and programs the tools have.")
@json_reply_option
@with_cli_context
async def worker_command(
    cli: CliContext, environment: str | None, url: str | None, mount: str | None, sandbox: str | None
) -> None:
    """Carry out the wakes of all sessions of this home until Ctrl-C.

    With --environment and --url it works for a self-hosted environment of a server instead: it carries out the tool calls of
    its sessions in sandboxes of this machine. The first Ctrl-C lets the call that runs finish.

    Any number of workers may run. Without one, the commands that send something start one in the background; `fidelio up` is
    one too. What a worker leaves unfinished is finished by the next, from the record.
    """
    require_person()
    if environment or url or mount or sandbox:
        await _work_for_environment(cli, environment, url, mount, sandbox)
        return
    async with cli.open(create=True) as app:
        await app.host_sandboxes()
        await app.host_runtime()
        click.echo("Carrying out wakes. Ctrl-C ends it.", err=True)
        await asyncio.Event().wait()


async def _work_for_environment(
    cli: CliContext, environment: str | None, url: str | None, mount: str | None, sandbox: str | None
) -> None:
    key = os.environ.get("FIDELIO_TOKEN", "")
    if not environment or not url or not key:
        remedy = "Pass --environment and --url, and the token of the server in FIDELIO_TOKEN."
        raise UsageProblem("A worker of an environment needs its id, the address of its server and a key.", remedy=remedy)
    stop = asyncio.Event()
    async with cli.open(create=True) as app, open_client(url, key) as client:
        await app.host_sandboxes()
        tools = SandboxTools(await app.runtime(), real_project(None), environment=sandbox, mount=mount)
        await tools.check()
        print_sentence(f"Working for {quote_name(environment)}. Ctrl-C ends it.", err=True)
        with _catch_interrupt(stop):
            await EnvironmentWorker(WorkApi(client, environment), tools, stop, lambda line: click.echo(line, err=True)).run()


@contextmanager
def _catch_interrupt(stop: asyncio.Event) -> Iterator[None]:
    """Let the first Ctrl-C set the event. The second ends the process as usual."""
    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)

    def catch() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)

    with suppress(ValueError, RuntimeError):
        # Only the main thread gets signals.
        loop.add_signal_handler(signal.SIGINT, catch)
    try:
        yield
    finally:
        with suppress(ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)
