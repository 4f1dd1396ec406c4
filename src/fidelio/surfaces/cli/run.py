"""`fidelio run`: run a workflow with agents and print its progress."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import click

from fidelio.app.application import Application
from fidelio.conductor.conductor import Conductor
from fidelio.conductor.context import ProgressEvent
from fidelio.conductor.plan import DEFAULT_TRIES, DEFAULT_WORKER, Plan, parse_inputs
from fidelio.errors import PROGRAM, UsageProblem
from fidelio.inbox import require_person
from fidelio.orchestrator.record.model import AgentSession
from fidelio.surfaces.cli.agent_watch import describe_stop
from fidelio.surfaces.cli.attended import AttendedTerminal, print_last_words
from fidelio.surfaces.cli.context import (
    CliContext,
    calling_actor,
    calling_session,
    complete_path,
    json_option,
    print_json,
    print_line,
    quote_name,
    resolve_project,
    run_async,
    with_cli_context,
    workflows_option,
)
from fidelio.surfaces.cli.prompting import can_draw, can_prompt
from fidelio.surfaces.cli.references import BLUEPRINT, WORKFLOW
from fidelio.surfaces.cli.run_display import Display, LiveDisplay
from fidelio.surfaces.cli.signals import finish

# Held, so that the interpreter does not complain about a process that goes on when this command ends.
_BACKGROUND: list[subprocess.Popen[bytes]] = []


@click.command("run")
@click.argument("workflow", type=WORKFLOW)
@click.option(
    "--agent",
    metavar="BLUEPRINT",
    type=BLUEPRINT,
    default=DEFAULT_WORKER,
    show_default=True,
    help="The agent that carries out the activities.",
)
@click.option(
    "--activity-agent",
    "pairs",
    metavar="ACTIVITY=BLUEPRINT",
    multiple=True,
    help="Another agent for this activity (repeatable).",
)
@click.option("--input", "inputs", metavar="NAME=VALUE", multiple=True, help="Set a variable at the start (repeatable).")
@click.option(
    "--tries",
    type=click.IntRange(1, 20),
    default=DEFAULT_TRIES,
    show_default=True,
    help="How many attempts an activity gets until the run fails.",
)
@click.option("--new", "anew", is_flag=True, help="Start a new session even if a run of this workflow is unfinished.")
@click.option("--detach", is_flag=True, help="Start the run and return; it goes on in the background.")
@click.option(
    "--project", metavar="DIR", shell_complete=complete_path, help="Where the agents work (default: the working directory)."
)
@workflows_option
@json_option
@with_cli_context
def run_command(
    cli: CliContext, /, project: str | None, directories: tuple[str, ...], with_bundled: bool, **options: Any
) -> int:
    """Run WORKFLOW with agents, activity by activity.

    A question of a workflow is asked here, if this is a terminal; it waits in the inbox, too, and whoever answers first counts.
    Ctrl-C stops the agents. The same command goes on where the run was. The key d, or --detach, leaves it working.
    """
    directory = resolve_project(project)
    display = _choose_display(cli, as_json=options["as_json"], detach=options["detach"])

    async def work() -> None:
        async with cli.open(directories, with_bundled=with_bundled, create=True) as application:
            plan = await _build_plan(application, directory, options)
            run = AttendedRun(cli, application, display)
            conductor = await application.conductor(run.show, cli.render)
            found = await conductor.find_or_start(plan, force_new=options["anew"])
            command = _background_command(cli, plan, directories, with_bundled=with_bundled)
            # Before anything is printed: a run of another process is not stopped by Ctrl-C here.
            conductor.require_free_run(found.session)
            if options["detach"]:
                run.detach(found.session, command, as_json=options["as_json"])
                return
            display.begin(found.session, plan.workflow, goes_on=found.is_resumed)
            if await run.carry_out(conductor, found.session, attended=not options["as_json"]):
                run.detach(found.session, command, as_json=False)

    run_async(work())
    return 0


def _choose_display(cli: CliContext, *, as_json: bool, detach: bool) -> Display:
    return LiveDisplay(cli.program) if can_draw() and not as_json and not detach else Display(cli.program, as_json=as_json)


def _background_command(cli: CliContext, plan: Plan, directories: tuple[str, ...], *, with_bundled: bool) -> list[str]:
    """The command line that continues this run in the background; the rest of the plan is stored with the session."""
    sources = [word for path in directories for word in ("--workflows", os.path.abspath(path))]  # noqa: PTH100  # Path.absolute leaves the dots in
    bundled = ["--with-bundled"] if with_bundled else []
    agents = [word for pair in plan.activity_agents.items() for word in ("--activity-agent", "=".join(pair))]
    who = ["--agent", plan.agent, *agents, "--tries", str(plan.tries)]
    return ["--home", str(cli.settings.home.path), "run", plan.workflow, *who, "--project", plan.project, *sources, *bundled]


class AttendedRun:
    """A run at a terminal: it asks its questions here, is stopped by Ctrl-C, and goes on in the background with a key."""

    def __init__(self, cli: CliContext, application: Application, display: Display) -> None:
        self._cli, self._application, self._display = cli, application, display
        self._terminal: AttendedTerminal | None = None

    def show(self, event: ProgressEvent) -> None:
        """Show an event, and ask the request that it reports."""
        self._display.show(event)
        if event.kind == "waiting" and self._terminal is not None:
            self._terminal.ask(event.request)

    async def carry_out(self, conductor: Conductor, session: str, *, attended: bool) -> bool:
        """Run to the end. True: the person leaves it to the background."""
        display = self._display
        async with AttendedTerminal(
            self._cli, self._application, attended=attended, pause=display.pause, resume=display.resume
        ) as terminal:
            self._terminal = terminal
            if isinstance(display, LiveDisplay):
                display.tree.is_attended = terminal.is_attended
            working = asyncio.create_task(conductor.run(session))
            detaching = asyncio.create_task(terminal.detached.wait())
            try:
                await asyncio.wait({working, detaching}, return_when=asyncio.FIRST_COMPLETED)
                if is_ended := working.done():
                    working.result()
                else:
                    # Here, because Ctrl-C still stops the agents: nothing goes on in the background yet.
                    await _cancel(working)
            # The output may be closed before the signal of a closed terminal arrives.
            except (asyncio.CancelledError, OSError):
                workers = await finish(self._request_stop(conductor, session, working))
                await terminal.stop_asking()
                with suppress(OSError):
                    display.end()
                await self._wait_until_stopped(conductor, session, workers)
                raise
            finally:
                await _cancel(working, detaching)
                with suppress(OSError):
                    display.end()
        return not is_ended

    async def _request_stop(self, conductor: Conductor, session: str, working: asyncio.Task[Any]) -> Sequence[AgentSession]:
        """Put on record that the agents of the run are stopped: from then on they are, even if this process ends."""
        await _cancel(working)
        return await conductor.request_stop(session, by=await self._actor())

    async def _wait_until_stopped(self, conductor: Conductor, session: str, workers: Sequence[AgentSession]) -> None:
        """Say which agents have stopped: a person who presses Ctrl-C does not expect them to go on."""
        print_last_words("Stopping. Ctrl-C again does not wait for it.")
        for worker in await conductor.wait_until_stopped(workers, by=await self._actor()):
            print_last_words(f"{quote_name(worker.name)} {describe_stop(worker)}.")
        print_last_words(f"The run {session} is kept: the same command goes on where it was.")

    async def _actor(self) -> str:
        return await calling_actor(await self._application.agents())

    def detach(self, session: str, command: list[str], *, as_json: bool) -> None:
        """Continue the run in a process that outlives this command, and say how to come back."""
        settings = self._cli.settings
        log = settings.home.ensure().worker_log.with_name(f"run-{session}.log")
        environ = {**os.environ, "FIDELIO_LEDGER": settings.ledger}
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603  # our own program, with values that were checked before
                [sys.executable, "-m", PROGRAM, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environ,
                start_new_session=True,
            )
        _BACKGROUND.append(process)
        if as_json:
            print_json({"session": session, "detached": True, "process": process.pid, "log": str(log)})
            return
        program = self._cli.program
        print_line(f"The run {session} goes on in the background.")
        print_line(f"`{program} events {session} --follow` shows what happens.", "  ")
        print_line(f"`{program} answer` asks what waits for you.", "  ")
        print_line(f"`{program} sessions --end {session}` ends it.", "  ")
        print_line(f"Its log is {quote_name(str(log), 200)}.", "  ")


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def _build_plan(application: Application, project: str, options: dict[str, Any]) -> Plan:
    workflow = (await application.library()).workflow(options["workflow"])
    attended = can_prompt() and not options["as_json"]
    caller = await calling_session(await application.agents(host=not options["detach"], attended=attended))
    return Plan(
        workflow=workflow.id,
        project=project,
        agent=options["agent"],
        activity_agents=dict(_parse_pair(pair) for pair in options["pairs"]),
        inputs=parse_inputs(options["inputs"], workflow),
        tries=options["tries"],
        caller=caller,
        inputs_by=f"agent:{caller}" if caller else require_person(),
    )


def _parse_pair(pair: str) -> tuple[str, str]:
    activity, equals, blueprint = pair.partition("=")
    if not activity or not equals or not blueprint:
        raise UsageProblem(f"--activity-agent has the invalid value {pair!r}.", remedy="Write ACTIVITY=BLUEPRINT.")
    return activity, blueprint
