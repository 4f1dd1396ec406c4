"""The agent of `fidelio tour`: a runtime session with a scripted model that works in a sandbox, asks, and is graded.

It needs no key and no network, and belongs to the home, not to a project, so that no file of the user decides what it shows.
At any moment it may be stopped: its session is ended then, and with it its sandbox and its question.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import click

from fidelio.app.application import Application
from fidelio.errors import FidelioError
from fidelio.locks import FileLock
from fidelio.processes.caller import identify_process
from fidelio.runtime import events as e
from fidelio.runtime.agents.definition import NO_GRADER, parse_agent
from fidelio.runtime.agents.versions import define_agent
from fidelio.runtime.environments import Environment
from fidelio.runtime.outcomes.record import Outcome
from fidelio.runtime.reading import list_sessions, load_body
from fidelio.runtime.service import NewAgentSession, RuntimeService
from fidelio.sandbox.levels import detect_level
from fidelio.surfaces.cli.context import CliContext, escape_line, output_layout, print_line
from fidelio.surfaces.cli.runtime.answers import Answer, Answers
from fidelio.surfaces.cli.runtime.event_lines import EventLines
from fidelio.surfaces.text import Layout

AGENT = "tour"
# Not a person: what it allows is recorded under this name.
SCRIPTED = "person:scripted"
INDENT = "  "
_MODEL = "scripted:demo"
_SECONDS = 60.0
_DEFINITION = {"model": _MODEL, "description": "The scripted agent of the tour.", "grader": NO_GRADER}
_CHECK = {"type": "file_exists", "path": "/workspace/hello.txt"}
_OUTCOME = {
    "type": e.USER_OUTCOME,
    "title": "Write hello.txt",
    "successCriteria": [{"text": "The file /workspace/hello.txt exists.", "check": _CHECK}],
}
_STOPPED = "The tour has shown it, and nothing continues it."


async def show_agent(cli: CliContext, application: Application) -> None:
    """Show the agent, or why it is left out. Leaves no session that could go on, and no process."""
    if reason := _find_obstacle():
        print_line(f"This part is left out: {escape_line(reason)}", INDENT)
        return
    try:
        async with application, asyncio.timeout(_SECONDS):
            await application.host_sandboxes()
            await _show(application, await application.runtime())
    except FidelioError as error:
        print_line(f"This part ended early: {escape_line(cli.render(error.text))}", INDENT)
    except TimeoutError:
        print_line(f"This part ended early: it took more than {_SECONDS:g} seconds.", INDENT)


def _find_obstacle() -> str:
    """Why the agent cannot be shown here; empty if it can."""
    if identify_process().is_agent:
        return "An agent runs this command, and only a person may allow what the agent of the tour asks for."
    report = detect_level()
    return "" if report.runs_commands else f"Sandboxes run no commands on this machine. {report.reason} {report.remedy}".strip()


async def _show(application: Application, service: RuntimeService) -> None:
    async with _ending_sessions(service) as is_alone:
        if not is_alone:
            print_line("This part is left out: another tour shows it at this moment.", INDENT)
            return
        session = await _begin(service)
        print_line(f"The model is {_MODEL}, without a key. A check decides the outcome.", INDENT)
        await application.host_runtime()
        await service.send(session, [_OUTCOME], by=SCRIPTED, channel="cli")
        await _follow(service, session, Answers(application, service, session, SCRIPTED))
        (outcome,) = (await service.load(session)).record.outcomes.outcomes
        print_line(describe_verdict(outcome), INDENT)
    print_line(f"The session {session} is ended, and its sandbox is closed.", INDENT)


async def _begin(service: RuntimeService) -> str:
    """Begin the session, with a definition and an environment of the tour's own."""
    project = str(service.context.home.path)
    definition = parse_agent(_DEFINITION, "The agent of the tour")
    agent = await define_agent(service.context, project, AGENT, definition, by=AGENT)
    await service.environments.define(AGENT, Environment(), by=AGENT)
    wanted = NewAgentSession(project=project, agent=AGENT, version=agent.version, environment=AGENT, title="Tour")
    return await service.start_session(wanted)


async def _follow(service: RuntimeService, session: str, answers: Answers) -> None:
    """Print what happens, and allow what the agent asks for, until it has nothing more to do."""
    layout = output_layout()
    lines = EventLines(Layout(layout.width - len(INDENT), layout.encoding))
    async for event in service.follow(session):
        for line in lines.render(event, await load_body(service.context, event)):
            click.echo(f"{INDENT}{line}")
        if event.type == e.STATUS_IDLE:
            if not event.body.get("blockingEventIds"):
                return
            await _allow(answers)


async def _allow(answers: Answers) -> None:
    """Show what the agent asks for, and allow it in the name of the script."""
    for request in await answers.list_open():
        print_line("? It waits for a person:", INDENT)
        for line in output_layout().quote_text(request.question, INDENT):
            click.echo(line)
        print_line("You would press y here, or answer it in the inbox. Now the script allows it.", INDENT)
        await answers.submit(request, Answer("allow"))


def describe_verdict(outcome: Outcome) -> str:
    """The verdict about the outcome, and what decided each criterion."""
    latest = outcome.latest
    if latest is None:
        return "Verdict: nothing was evaluated."
    reasons = [f"The {result.by} says: {escape_line(result.reason)}" for result in latest.results]
    return " ".join((f"Verdict: {latest.status}.", *reasons))


@asynccontextmanager
async def _ending_sessions(service: RuntimeService) -> AsyncIterator[bool]:
    """End what the tour begins in the block, and before it what a killed tour has left. Yields False if another tour runs.

    An ended session stays readable until the next tour, which deletes it with its files.
    """
    lock = FileLock(service.context.home.lock_path(f"{AGENT}-agent"))
    if not lock.acquire():
        yield False
        return
    try:
        await _end_sessions(service, deletes=True)
        yield True
    finally:
        await _end_sessions(service, deletes=False)
        lock.release()


async def _end_sessions(service: RuntimeService, *, deletes: bool) -> None:
    project = str(service.context.home.path)
    found = [
        session.id async for session, record in list_sessions(service.context, project, ended=deletes) if record.agent == AGENT
    ]
    for session in found:
        if deletes:
            await service.delete_session(session, by=AGENT, reason=_STOPPED)
        else:
            await service.end_session(session, by=AGENT)
