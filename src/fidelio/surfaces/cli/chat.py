"""`fidelio chat`: talk to an agent of the runtime. Lines are messages; what it asks for is answered here.

The wakes of the session run in this process while it is open, so text is shown as it arrives. Without a terminal the lines of
standard input are taken one by one, each when the session rests, which is how scripts use it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import click

from fidelio.app.application import Application
from fidelio.errors import Command, FidelioError, UsageProblem
from fidelio.inbox import require_person
from fidelio.ledger.model import Request
from fidelio.runtime.reading import find_newest_session
from fidelio.runtime.service import NewAgentSession, RuntimeService
from fidelio.surfaces.cli.context import (
    CliContext,
    complete_path,
    escape_line,
    json_option,
    output_layout,
    quote_name,
    uses_color,
    with_cli_context,
)
from fidelio.surfaces.cli.keyboard import Keyboard
from fidelio.surfaces.cli.prompting import Answer, Prompter, can_prompt, describe_closed
from fidelio.surfaces.cli.references import RUNTIME_SESSION, project_option
from fidelio.surfaces.cli.runtime.answers import Answers, describe_question, describe_request, read_answer
from fidelio.surfaces.cli.runtime.line_reader import LineReader
from fidelio.surfaces.cli.runtime.live import JsonView, LiveView, Screen, SilentScreen
from fidelio.surfaces.cli.runtime.targets import RUNTIME_AGENT, begin_session, find_session
from fidelio.surfaces.cli.sandbox import real_project

_PROMPT = "> "


@click.command("chat")
@click.argument("agent", type=RUNTIME_AGENT, default="default")
@click.option("--session", type=RUNTIME_SESSION, help="Continue this session: its name in the project, or its id.")
@click.option("--new", "anew", is_flag=True, help="Begin a new session instead of continuing the last one of the agent.")
@click.option("--model", default="", help="A new session: this model instead of the agent's, for example scripted:demo.")
@click.option(
    "--mount",
    metavar="DIR[:copy|ro|rw]",
    shell_complete=complete_path,
    help="A new session: show a directory at /workspace/project, as a copy, read-only or for writing.",
)
@project_option
@json_option
@with_cli_context
async def chat_command(
    cli: CliContext, agent: str, session: str | None, project: str | None, as_json: bool, **options: Any
) -> int:
    """Talk to AGENT.

    Each line is a message. The last session of the agent in this project is continued; --new begins another. What the agent
    asks for is shown and answered here. Ctrl-C interrupts the agent; a second Ctrl-C leaves, as Ctrl-D does. The session
    stays, and work that is under way goes on in the background.

    The agent `default` needs no definition: its model is that of FIDELIO_MODEL, else a scripted one.

    With --json every event is a line, for scripts that write messages and answers to standard input.

    \b
    fidelio chat --model scripted:demo
    echo "Write hello." | fidelio chat --new
    """
    person = require_person()
    if session and (options["anew"] or options["model"] or options["mount"]):
        raise UsageProblem("--session continues a session as it is.", remedy="Leave out --new, --model and --mount.")
    async with cli.open(create=True) as app:
        service = await app.runtime()
        found = await _open_session(app, service, agent, session, real_project(project), options)
        await Chat(cli, app, service, found, person, as_json=as_json).run()
    async with cli.open() as app:
        # This process has carried out the wakes; the ones that are still to come need another.
        await app.start_runtime_worker()
    return 0


async def _open_session(
    app: Application, service: RuntimeService, agent: str, name: str | None, project: str, options: dict[str, Any]
) -> str:
    if name is not None:
        found = await find_session(app, service, name, project)
        if not (await service.load(found.id)).record.agent_version:
            raise UsageProblem(f"Session {found.id} has no model to talk to.", remedy="Begin a session with --new.")
        return found.id
    newest = None if options["anew"] else await find_newest_session(service.context, project, agent)
    if newest is None:
        wanted = NewAgentSession(project=project, agent=agent, model=options["model"], mount=options["mount"])
        return await begin_session(service, wanted)
    used = (await service.describe(newest.id))["model"]
    if options["mount"] or options["model"] not in ("", used):
        raise UsageProblem(
            f"The last session of {agent} is {newest.id}, with the model {used}. A session keeps its model and mount.",
            remedy="Pass --new to begin another one.",
        )
    return newest.id


class Chat:
    """A conversation at a terminal, or with lines of a script."""

    def __init__(
        self, cli: CliContext, app: Application, service: RuntimeService, session: str, person: str, *, as_json: bool = False
    ) -> None:
        """`as_json`: every event is a line of JSON, and nothing else is shown."""
        self._cli, self._app, self._service = cli, app, service
        self._session, self._person = session, person
        screen, self._view_type = (SilentScreen, JsonView) if as_json else (Screen, LiveView)
        self._screen = screen(output_layout(), is_terminal=sys.stdout.isatty(), has_color=uses_color())
        self._answers = Answers(app, service, session, person)
        self._input = LineReader(sys.stdin)
        self._signal = asyncio.Event()
        self._postponed: set[str] = set()
        self._prompted = ""
        self._has_ended = False
        self._interrupts = 0
        self._is_working = False
        self._has_keys = not as_json and can_prompt()

    async def run(self, *, after: int | None = None) -> None:
        """Talk until the person leaves, or until the lines of the script have ended and the session rests.

        `after`: also show what happened after this event.
        """
        record = (await self._service.load(self._session)).record
        self._view = self._view_type(self._service, self._session, self._screen, after=record.seq if after is None else after)
        self._greet(await self._service.describe(self._session))
        await self._app.host_runtime(self._view.on_text)
        viewing = asyncio.create_task(self._view.run())
        try:
            with self._input:
                async with self._catch_interrupts():
                    await self._talk(viewing)
        finally:
            viewing.cancel()
            await asyncio.wait({viewing})
        self._say_goodbye()

    async def _talk(self, viewing: asyncio.Task[None]) -> None:
        reading: asyncio.Task[str | None] | None = None
        try:
            while not viewing.done():
                # Before looking: a change that comes while looking must not be missed.
                self._view.changed.clear()
                is_resting = self._note_rest(await self._view.is_resting())
                if is_resting and (self._has_ended or await self._is_over()):
                    return
                request = await self._prompt() if is_resting else None
                if request is not None and self._has_keys:
                    await _cancel(reading)
                    reading = None
                    if not await self._ask(viewing, request):
                        return
                    continue
                # A person may type at any time. Lines of a script wait for their turn.
                if reading is None and not self._has_ended and (is_resting or self._input.is_terminal):
                    reading = asyncio.create_task(self._input.read())
                if not await self._wait(viewing, reading, request):
                    return
                if reading is not None and reading.done():
                    reading = None
        finally:
            await _cancel(reading)
        viewing.result()

    async def _ask(self, viewing: asyncio.Task[None], request: Request) -> bool:
        """Ask a request by keys, until it is answered, here or elsewhere, or left open. False ends the conversation."""

        async def submit(request: Request, answer: Answer) -> None:
            self._view.own.update(await self._answers.choose(request, answer.option, answer.text))

        def show() -> None:
            for line in describe_question(request, self._screen.layout, self._session):
                click.echo(line)

        self._prompted = ""
        with self._screen.held(), self._input.released(), Keyboard() as keyboard:
            prompter = Prompter(self._cli, self._app, keyboard, self._person, submit=submit)
            asking = asyncio.create_task(prompter.ask(request, show))
            signalled = asyncio.create_task(self._signal.wait())
            try:
                await asyncio.wait({viewing, asking, signalled}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _cancel(asking)
                await _cancel(signalled)
        if self._signal.is_set():
            self._signal.clear()
            return await self._interrupt()
        if not asking.cancelled() and not asking.result():
            self._postponed.add(request.id)
        return True

    async def _wait(
        self, viewing: asyncio.Task[None], reading: asyncio.Task[str | None] | None, request: Request | None
    ) -> bool:
        """Wait for a line, a change of the session or Ctrl-C, and act on it. False ends the conversation."""
        waiters = [asyncio.create_task(self._view.changed.wait()), asyncio.create_task(self._signal.wait())]
        try:
            await asyncio.wait({viewing, *waiters, *([reading] if reading else [])}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
        if self._signal.is_set():
            self._signal.clear()
            return await self._interrupt()
        if reading is not None and reading.done():
            return await self._handle_line(reading.result(), request)
        return True

    def _note_rest(self, is_resting: bool) -> bool:
        """Count interrupts anew when the session has come to rest: the next Ctrl-C is the first again."""
        if is_resting and self._is_working:
            self._interrupts = 0
        self._is_working = not is_resting
        return is_resting

    async def _is_over(self) -> bool:
        record = (await self._service.load(self._session)).record
        return record.status == "terminated" or record.is_archived

    async def _prompt(self) -> Request | None:
        """Ask for the next line: the answer to the oldest request, or a message."""
        waiting = [request for request in await self._answers.list_open() if request.id not in self._postponed]
        request = waiting[0] if waiting else None
        wanted = request.id if request is not None else "message"
        if wanted != self._prompted:
            self._prompted = wanted
            if request is not None and self._has_keys:
                return request
            if request is not None:
                lines = describe_request(request, self._screen.layout, self._session)
                self._screen.write("".join(f"{line}\n" for line in lines))
            if self._input.is_terminal:
                self._screen.write(_PROMPT)
        return request

    async def _handle_line(self, line: str | None, request: Request | None) -> bool:
        self._interrupts, self._prompted = 0, ""
        if self._input.is_terminal and line is not None:
            self._screen.note_typed_line()
        if line is None:
            self._has_ended = True
            return not self._input.is_terminal
        try:
            await (self._send(line) if request is None else self._answer(request, line))
        except FidelioError as error:
            # A message that cannot be sent does not end the conversation.
            self._screen.write(f"! {escape_line(self._cli.render(error.text))}\n")
        return True

    async def _answer(self, request: Request, line: str) -> None:
        answer = read_answer(request, line)
        if answer.kind == "later":
            self._postponed.add(request.id)
            how = self._cli.render(Command("answer", request.id, "allow"))
            self._screen.write(f"It stays open, and messages wait for it. {how} answers it later.\n")
            return
        self._view.own.update(await self._answers.submit(request, answer))
        found = await (await self._app.inbox()).find(request.id)
        if found.state != "open" and found.answered_by != self._person:
            self._say(describe_closed(found))

    async def _send(self, line: str) -> None:
        if line.strip():
            event = {"type": "user.message", "content": [{"type": "text", "text": line}]}
            sent = await self._service.send(self._session, [event], by=self._person, channel="cli")
            self._view.own.update(event.id for event in sent)

    async def _interrupt(self) -> bool:
        """Handle Ctrl-C: the first interrupts the agent, the second leaves."""
        self._interrupts += 1
        self._prompted = ""
        self._view.break_off()
        self._screen.start_line()
        if self._interrupts > 1:
            return False
        record = (await self._service.load(self._session)).record
        if await self._view.is_resting() and not record.wakes.open_calls:
            self._screen.write("Ctrl-C again leaves.\n")
            return True
        self._screen.write("Interrupting. Ctrl-C again leaves.\n")
        sent = await self._service.send(self._session, [{"type": "user.interrupt"}], by=self._person, channel="cli")
        self._view.own.update(event.id for event in sent)
        return True

    @asynccontextmanager
    async def _catch_interrupts(self) -> AsyncIterator[None]:
        loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
        with suppress(ValueError, RuntimeError):
            # Only the main thread gets signals.
            loop.add_signal_handler(signal.SIGINT, self._signal.set)
        try:
            yield
        finally:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
                signal.signal(signal.SIGINT, before)

    def _greet(self, about: dict[str, Any]) -> None:
        how = "continues" if about["wakes"] else "begins"
        agent = f"{quote_name(about['agent'])}, version {about['version']}, with {quote_name(about['model'])}"
        self._say(f"Session {self._session} {how}: {agent}.")

    def _say_goodbye(self) -> None:
        self._screen.start_line()
        again = self._cli.render(Command("chat", "--session", self._session))
        self._say(f"The session stays. {again} continues it.")

    def _say(self, line: str) -> None:
        for part in self._screen.layout.wrap_line(line):
            self._screen.write(f"{part}\n")


async def _cancel(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task and wait for its end."""
    if task is not None:
        task.cancel()
        await asyncio.wait({task})
